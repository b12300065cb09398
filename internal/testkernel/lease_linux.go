package testkernel

import (
	"os"
	"syscall"
)

// Lease makes whoever opens f wait until f is closed, or /proc/sys/fs/lease-break-time has passed, which is 45 s. The file must belong to this
// user, and nobody else may have it open. fcntl(2), F_SETLEASE.
func Lease(f *os.File) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var e syscall.Errno
	if err := c.Control(func(fd uintptr) {
		_, _, e = syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_SETLEASE, syscall.F_WRLCK)
	}); err != nil {
		return err
	}
	if e != 0 {
		return os.NewSyscallError("fcntl", e)
	}
	return nil
}
