package sys

import (
	"math"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Message is the header of one message for [Kernel.RecvOne] and [Kernel.SendOne]: struct mmsghdr and its
// struct iovec. It lies in memory shared with another process, which learns from [Message.Moved] what a
// call has done, even if its caller was killed before it got the result: the kernel stores the length
// before the call returns.
//
// It has integers in place of pointers. What a process that died has left there must never look like a
// pointer to the garbage collector.
type Message struct {
	hdr struct {
		name       uintptr
		namelen    uint32
		iov        uintptr
		iovlen     uintptr
		control    uintptr
		controllen uintptr
		flags      int32
	}
	n    uint32
	base uintptr
	len  uintptr
}

// MessageSize is the size of a Message on a 64-bit system.
const MessageSize = 80

// unmoved is stored in a message's length before a call. No stream moves as much at once.
const unmoved = math.MaxUint32

// Moved returns the number of bytes that the last call has received or sent; ok reports whether it has
// done so. A call that failed has moved nothing.
func (m *Message) Moved() (n int, ok bool) { return int(m.n), m.n != unmoved }

// Clear forgets the last call.
func (m *Message) Clear() { m.n = unmoved }

// SetMoved stores what the kernel would: kernels of tests have no other way.
func (m *Message) SetMoved(n int) { m.n = uint32(n) }

// RecvOne implements [Kernel].
func (Linux) RecvOne(fd int, m *Message, p []byte) (int, Errno) {
	if len(p) == 0 {
		return 0, EINVAL
	}
	e := callMessage(unix.SYS_RECVMMSG, fd, m, uintptr(unsafe.Pointer(&p[0])), len(p), unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	if e != 0 {
		return 0, e
	}
	n := int(m.n)
	raceWrite(unsafe.Pointer(&p[0]), n)
	return n, 0
}

// SendOne implements [Kernel].
func (Linux) SendOne(fd int, m *Message, p []byte) (int, Errno) {
	if len(p) == 0 {
		m.n = 0
		return 0, 0
	}
	raceRead(unsafe.Pointer(&p[0]), len(p))
	e := callMessage(unix.SYS_SENDMMSG, fd, m, uintptr(unsafe.Pointer(&p[0])), len(p), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	if e != 0 {
		return 0, e
	}
	return int(m.n), 0
}

// callMessage makes the call. What base points to is on the heap, so that it cannot move, and stays alive.
//
//go:uintptrescapes
func callMessage(call uintptr, fd int, m *Message, base uintptr, n int, flags uintptr) Errno {
	m.n = unmoved
	m.base, m.len = base, uintptr(n)
	m.hdr.name, m.hdr.namelen = 0, 0
	m.hdr.iov, m.hdr.iovlen = uintptr(unsafe.Pointer(&m.base)), 1
	m.hdr.control, m.hdr.controllen = 0, 0 // no room for descriptors: the kernel drops them
	m.hdr.flags = 0
	_, _, e := syscall.RawSyscall6(call, uintptr(fd), uintptr(unsafe.Pointer(m)), 1, flags, 0, 0)
	return e
}

// Disconnect implements [Kernel].
func (Linux) Disconnect(fd int) Errno {
	var sa unix.RawSockaddr // AF_UNSPEC is 0
	_, _, e := syscall.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&sa)), unix.SizeofSockaddrInet4)
	return e
}

// ShutdownBoth implements [Kernel].
func (Linux) ShutdownBoth(fd int) Errno {
	_, _, e := syscall.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), unix.SHUT_RDWR, 0)
	return e
}
