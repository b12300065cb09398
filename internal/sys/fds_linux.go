package sys

import (
	"encoding/binary"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MaxFDs is the maximum number of descriptors in one message: SCM_MAX_FD. One more is EINVAL. unix(7).
const MaxFDs = 253

// Pair returns two connected sockets of type SOCK_SEQPACKET, non-blocking and close-on-exec: each send is
// one message, and a receiver learns of the end. socketpair(2).
func Pair() (a, b int, errno Errno) {
	return pair(unix.SOCK_SEQPACKET)
}

// StreamPair returns two connected Unix sockets of type SOCK_STREAM, non-blocking and close-on-exec. socketpair(2).
func StreamPair() (a, b int, errno Errno) { return pair(unix.SOCK_STREAM) }

func pair(kind uintptr) (a, b int, errno Errno) {
	var p [2]int32
	_, _, e := syscall.RawSyscall6(unix.SYS_SOCKETPAIR, unix.AF_UNIX, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, uintptr(unsafe.Pointer(&p)), 0, 0)
	if e != 0 {
		return -1, -1, e
	}
	return int(p[0]), int(p[1]), 0
}

// FDBuffer is the memory that [FDBuffer.Send] and [FDBuffer.Recv] need. The zero value is ready for use
// by one caller at a time.
type FDBuffer struct {
	hdr  unix.Msghdr
	iov  unix.Iovec
	ctrl [(16 + 4*MaxFDs + 7) / 8]uint64
}

// Send sends p as one message, with duplicates of up to MaxFDs descriptors, which stay the caller's. p
// must not be empty. It never waits: EAGAIN means that the socket is full, EMSGSIZE that p is too large
// for it, ETOOMANYREFS that too many descriptors are on their way. sendmsg(2), SCM_RIGHTS.
func (b *FDBuffer) Send(fd int, p []byte, fds []int) Errno {
	if len(p) == 0 || len(fds) > MaxFDs {
		return EINVAL
	}
	b.point(p)
	if len(fds) > 0 {
		control := AppendRights(b.control()[:0], fds...)
		b.hdr.Control = unsafe.SliceData(control)
		b.hdr.SetControllen(len(control))
	}
	raceRead(unsafe.Pointer(&p[0]), len(p))
	n, _, e := syscall.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.hdr)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	b.iov.Base = nil
	if e == 0 && int(n) != len(p) {
		return unix.EMSGSIZE // a stream socket
	}
	return e
}

// Recv receives one message into p and appends its descriptors, close-on-exec, to fds; they belong to the
// caller, whatever else it returns. lost says that the message or its descriptors did not fit, or that
// this process may not have as many: what is missing is gone, and nobody else is told. (0, nil) without
// lost is the end of the stream. It never waits. recvmsg(2), SCM_RIGHTS, MSG_CTRUNC.
func (b *FDBuffer) Recv(fd int, p []byte, fds []int) (n int, got []int, lost bool, errno Errno) {
	if len(p) == 0 {
		return 0, fds, false, EINVAL
	}
	b.point(p)
	control := b.control()
	b.hdr.Control = unsafe.SliceData(control)
	b.hdr.SetControllen(len(control))
	m, _, e := syscall.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.hdr)), unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	b.iov.Base = nil
	if e != 0 {
		return 0, fds, false, e
	}
	raceWrite(unsafe.Pointer(&p[0]), int(m))
	for data := range passed(control[:min(int(b.hdr.Controllen), len(control))]) {
		for ; len(data) >= 4; data = data[4:] {
			fds = append(fds, int(int32(binary.NativeEndian.Uint32(data))))
		}
	}
	return int(m), fds, b.hdr.Flags&(unix.MSG_CTRUNC|unix.MSG_TRUNC) != 0, 0
}

func (b *FDBuffer) point(p []byte) {
	b.iov.Base = &p[0]
	b.iov.SetLen(len(p))
	b.hdr = unix.Msghdr{Iov: &b.iov}
	b.hdr.SetIovlen(1)
}

func (b *FDBuffer) control() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&b.ctrl)), len(b.ctrl)*8)
}

// PeerPID returns the process that made the other end of a Unix socket: of a pair, the one that called
// [Pair]. unix(7), SO_PEERCRED.
func PeerPID(fd int) (int, Errno) {
	c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, errnoOf(err)
	}
	return int(c.Pid), 0
}
