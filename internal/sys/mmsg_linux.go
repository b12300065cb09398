package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmsghdr is struct mmsghdr of recvmmsg(2): the compiler adds the trailing
// padding that C adds.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
}

const (
	// ControlSize is the room for control messages in a header. Everything that this package can
	// ask the kernel for takes 200 bytes on 64-bit Linux: segment size 24, TOS 24, traffic class
	// 24, packet info 32 and 40, drops 24, time 32. The rest is for what a user asks for in
	// addition.
	ControlSize = 512

	// MaxVector is the maximum number of headers in one call, UIO_MAXIOV.
	MaxVector = 1024

	inetNameSize = unix.SizeofSockaddrInet6
	unixNameSize = (unix.SizeofSockaddrUnix + 7) &^ 7
)

// The flags of every receive into a Vector and of every send from one. MSG_DONTWAIT has an effect
// even if somebody who shares the socket's description makes it blocking, as os.File.Fd does; a
// RawSyscall that waits would stop the process.
const (
	recvFlags = unix.MSG_DONTWAIT | unix.MSG_CMSG_CLOEXEC
	sendFlags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
)

// Vector is a row of message headers for recvmmsg(2) and sendmmsg(2), with the memory for addresses
// and control messages that they point to. The headers keep those pointers between calls; only what
// differs from call to call is written again. [Vector.Release] drops the references to the user's
// buffers.
//
// A Vector serves one direction and one caller at a time.
type Vector struct {
	hdrs  []mmsghdr
	iovs  []unix.Iovec
	names []byte
	ctrl  []byte
	name  int // bytes per name
	room  int // bytes for control messages in each header that is set up for reading
	timed bool

	nhdr, niov int // filled by Open and Add
}

// NewVector returns a vector of n headers with room for iovs buffers in total. For reading, header
// i has buffer i. Family 0 is for connected sockets: the messages have no addresses.
func NewVector(n, iovs int, family Family) *Vector {
	v := &Vector{
		hdrs: make([]mmsghdr, n),
		iovs: make([]unix.Iovec, iovs),
		ctrl: aligned(n * ControlSize),
		name: inetNameSize,
		room: ControlSize,
	}
	switch family {
	case Unix:
		v.name, v.room = unixNameSize, 0
	case 0:
		v.name = 0
	}
	v.names = aligned(n * v.name)
	for i := range v.hdrs {
		h := &v.hdrs[i].hdr
		if v.name > 0 {
			h.Name = &v.names[i*v.name]
		}
		h.Control = &v.ctrl[i*ControlSize]
		if i < iovs {
			h.Iov = &v.iovs[i]
			h.SetIovlen(1)
		}
	}
	return v
}

// aligned returns n bytes that are aligned for a control message header.
func aligned(n int) []byte {
	words := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
}

// Len returns the number of headers.
func (v *Vector) Len() int { return len(v.hdrs) }

// Bufs returns the number of buffers that all headers together may have.
func (v *Vector) Bufs() int { return len(v.iovs) }

// Release forgets the user's buffers, so that the vector does not keep them alive.
func (v *Vector) Release() {
	clear(v.iovs[:v.niov])
	v.nhdr, v.niov = 0, 0
}

// SetBuf makes b the memory that message i is received into.
func (v *Vector) SetBuf(i int, b []byte) {
	iov := &v.iovs[i]
	iov.Base = unsafe.SliceData(b)
	iov.SetLen(len(b))
	h := &v.hdrs[i].hdr
	h.Namelen = uint32(v.name)
	h.SetControllen(v.room)
	v.nhdr, v.niov = i+1, i+1
}

// Recv receives into the buffers set since the last Release and returns how many messages came.
// family is the socket's. It does not wait, but because a long batch takes time, it notifies the
// scheduler.
//
// If an error occurs after the first message, the kernel keeps it for the next call. recvmmsg(2).
func (v *Vector) Recv(fd uintptr, family Family) (int, Errno) {
	v.offer(family)
	n, _, e := syscall.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(unsafe.SliceData(v.hdrs))), uintptr(v.nhdr), recvFlags, 0, 0)
	return v.received(family, 0, n, e)
}

// RecvRaw is Recv without notifying the scheduler, for short batches and for dedicated threads.
func (v *Vector) RecvRaw(fd uintptr, family Family) (int, Errno) {
	v.offer(family)
	n, _, e := syscall.RawSyscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(unsafe.SliceData(v.hdrs))), uintptr(v.nhdr), recvFlags, 0, 0)
	return v.received(family, 0, n, e)
}

// received completes a receive into the messages from index from on.
func (v *Vector) received(family Family, from int, n uintptr, e Errno) (int, Errno) {
	if e != 0 {
		return 0, e
	}
	if family == Unix && v.room > 0 {
		for i := from; i < from+int(n); i++ {
			v.dropPassed(i)
		}
	}
	if RaceEnabled {
		for i := from; i < from+int(n); i++ {
			raceWrite(unsafe.Pointer(v.iovs[i].Base), int(min(uint64(v.hdrs[i].n), uint64(v.iovs[i].Len))))
		}
	}
	return int(n), 0
}

// Received returns message i: its length, the flags of recvmsg(2), and the address and control
// messages as the kernel wrote them. The slices are valid until the next SetBuf(i).
func (v *Vector) Received(i int) (n, flags int, name, control []byte) {
	m := &v.hdrs[i]
	at, c := i*v.name, i*ControlSize
	return int(m.n), int(m.hdr.Flags) & (MsgTrunc | MsgCtrunc), v.names[at : at+min(int(m.hdr.Namelen), v.name)], v.ctrl[c : c+min(int(m.hdr.Controllen), ControlSize)]
}

// The flags that Received may return. recvmsg(2).
const (
	MsgTrunc  = unix.MSG_TRUNC
	MsgCtrunc = unix.MSG_CTRUNC
)

// Open starts the next message to send and returns its index. It has no
// buffer, no address and no control message yet.
func (v *Vector) Open() int {
	i := v.nhdr
	h := &v.hdrs[i].hdr
	h.Namelen = 0
	h.SetControllen(0)
	h.SetIovlen(0)
	if v.niov < len(v.iovs) {
		h.Iov = &v.iovs[v.niov]
	}
	v.nhdr++
	return i
}

// Add appends a buffer to the message opened last.
func (v *Vector) Add(b []byte) {
	iov := &v.iovs[v.niov]
	iov.Base = unsafe.SliceData(b)
	iov.SetLen(len(b))
	v.niov++
	v.hdrs[v.nhdr-1].hdr.Iovlen++
}

// Close undoes the last Open, if its message has no buffer yet.
func (v *Vector) Close() { v.nhdr-- }

// Opened returns the number of messages opened since the last Release.
func (v *Vector) Opened() int { return v.nhdr }

// Room reports whether a message with the given number of buffers can still be opened.
func (v *Vector) Room(bufs int) bool { return v.nhdr < len(v.hdrs) && v.niov+bufs <= len(v.iovs) }

// Name returns the memory for message i's destination; SetNameLen sets its length.
func (v *Vector) Name(i int) []byte { return v.names[i*v.name : (i+1)*v.name] }

// SetNameLen sets how many bytes of Name(i) are the destination.
func (v *Vector) SetNameLen(i, n int) { v.hdrs[i].hdr.Namelen = uint32(n) }

// Control returns the memory for message i's control messages, empty and with a capacity of
// ControlSize; SetControlLen sets how much of it is used.
func (v *Vector) Control(i int) []byte {
	return v.ctrl[i*ControlSize : i*ControlSize : (i+1)*ControlSize]
}

// SetControlLen sets how many bytes of Control(i) are sent.
func (v *Vector) SetControlLen(i, n int) { v.hdrs[i].hdr.SetControllen(n) }

// Send sends the opened messages with indexes from from up to, but not including, to, and returns
// how many were sent. It stops at the first that fails. It returns an error only for message from:
// to get the error of a later message, call Send again with that message first. sendmmsg(2).
func (v *Vector) Send(fd uintptr, from, to int) (int, Errno) {
	v.sending(from, to)
	n, _, e := syscall.Syscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&v.hdrs[from])), uintptr(to-from), sendFlags, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(n), 0
}

// SendRaw is Send without notifying the scheduler, for short batches and for dedicated threads.
func (v *Vector) SendRaw(fd uintptr, from, to int) (int, Errno) {
	v.sending(from, to)
	n, _, e := syscall.RawSyscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&v.hdrs[from])), uintptr(to-from), sendFlags, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(n), 0
}

func (v *Vector) sending(from, to int) {
	if RaceEnabled {
		for i := from; i < to; i++ {
			h := &v.hdrs[i].hdr
			for _, iov := range unsafe.Slice(h.Iov, int(h.Iovlen)) {
				raceRead(unsafe.Pointer(iov.Base), int(iov.Len))
			}
		}
	}
}
