package testkernel

import (
	"net"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// Urgent sends b as TCP urgent data, or as a Unix socket's out-of-band byte.
func Urgent(c net.Conn, b byte) error {
	rc, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var e sys.Errno
	err = rc.Write(func(fd uintptr) bool {
		e = sys.SendUrgent(int(fd), b)
		return e != sys.EAGAIN
	})
	if err == nil && e != 0 {
		err = e
	}
	return err
}
