package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// HungUp reports whether the peer of a Unix stream socket has closed it and nothing is left to read.
// ppoll(2), POLLHUP.
func HungUp(fd int) bool {
	pfd := unix.PollFd{Fd: int32(fd)}
	var now unix.Timespec
	n, _, e := syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&pfd)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	if e != 0 || n == 0 || pfd.Revents&unix.POLLHUP == 0 {
		return false
	}
	left, e := ReadQueued(fd)
	return e == 0 && left == 0
}

// HasError reports whether a socket has an error that nobody has been told yet. Unlike SockError it leaves
// the error there. ppoll(2), POLLERR.
func HasError(fd int) bool {
	pfd := unix.PollFd{Fd: int32(fd)}
	var now unix.Timespec
	n, _, e := syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&pfd)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return e != 0 || n > 0 && pfd.Revents&(unix.POLLERR|unix.POLLNVAL) != 0
}
