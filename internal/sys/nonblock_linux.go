package sys

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// SetNonblock makes fd's open file description non-blocking. It costs a second system call only if
// the description was blocking. fcntl(2), O_NONBLOCK.
//
// A package calls it when it takes ownership of a descriptor. A system call that waits inside
// RawSyscall keeps its P: the next garbage collection waits for it, and the whole process with it.
// [os.File.Fd] makes a description blocking, and with it every duplicate, such as the net.Conn that
// the File came from.
func SetNonblock(fd int) Errno {
	flags, _, e := syscall.RawSyscall(unix.SYS_FCNTL, uintptr(fd), unix.F_GETFL, 0)
	if e != 0 || flags&unix.O_NONBLOCK != 0 {
		return e
	}
	_, _, e = syscall.RawSyscall(unix.SYS_FCNTL, uintptr(fd), unix.F_SETFL, flags|unix.O_NONBLOCK)
	return e
}
