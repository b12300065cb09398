package sys

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// QueuedError is one entry of a socket's error queue: struct sock_extended_err of ip(7), with its
// addresses.
type QueuedError struct {
	Errno      Errno
	Origin     uint8 // EeOriginLocal, EeOriginICMP, EeOriginICMP6
	Type, Code uint8 // of the ICMP message
	Info       uint32
	To         netip.AddrPort // where the datagram was going
	ToScope    uint32
	From       netip.Addr // the address that refused it; invalid for a local error
	FromScope  uint32
}

// The origins of a QueuedError. linux/errqueue.h.
const (
	EeOriginLocal = 1
	EeOriginICMP  = 2
	EeOriginICMP6 = 3
)

// ErrQueue reads a socket's error queue. The zero value is ready for use by one caller at a time.
type ErrQueue struct {
	hdr  unix.Msghdr
	name [inetNameSize]byte
	ctrl [256 / 8]uint64
}

// Next takes one error from fd's queue; it returns EAGAIN if the queue is empty. It never waits.
// recvmsg(2), MSG_ERRQUEUE.
func (q *ErrQueue) Next(fd uintptr) (QueuedError, Errno) {
	q.hdr = unix.Msghdr{Name: &q.name[0], Namelen: inetNameSize, Control: (*byte)(unsafe.Pointer(&q.ctrl))}
	q.hdr.SetControllen(len(q.ctrl) * 8)
	_, _, e := syscall.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&q.hdr)), unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if e != 0 {
		return QueuedError{}, e
	}
	control := unsafe.Slice((*byte)(unsafe.Pointer(&q.ctrl)), int(q.hdr.Controllen))
	se := ParseQueuedError(control)
	se.To, se.ToScope = GetAddrPort(q.name[:min(q.hdr.Namelen, inetNameSize)])
	return se, 0
}

// ParseQueuedError finds the error in the control messages of an error queue entry.
func ParseQueuedError(b []byte) (se QueuedError) {
	for {
		level, typ, data, rest, ok := cutControl(b)
		if !ok {
			return se
		}
		b = rest
		isErr := level == unix.SOL_IP && typ == unix.IP_RECVERR || level == unix.SOL_IPV6 && typ == unix.IPV6_RECVERR
		const size = int(unsafe.Sizeof(unix.SockExtendedErr{}))
		if !isErr || len(data) < size {
			continue
		}
		se.Errno = Errno(binary.NativeEndian.Uint32(data))
		se.Origin, se.Type, se.Code = data[4], data[5], data[6]
		se.Info = binary.NativeEndian.Uint32(data[8:])
		var from netip.AddrPort
		from, se.FromScope = GetAddrPort(data[size:]) // SO_EE_OFFENDER: directly after the struct
		se.From = from.Addr()
	}
}
