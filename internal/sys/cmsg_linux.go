package sys

import (
	"encoding/binary"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// Control has the contents of the control messages of one received datagram.
type Control struct {
	Segment   int        // UDP_GRO: size of the datagrams in a super-packet; 0 if absent
	TOS       uint8      // IP_TOS or IPV6_TCLASS
	Local     netip.Addr // IP_PKTINFO or IPV6_PKTINFO: the address to answer from, never 4-in-6
	Interface int        // the index of the interface it came in by
	ToMany    bool       // with Local: it was sent to a broadcast or multicast address
	Drops     uint32     // SO_RXQ_OVFL: datagrams that the socket dropped before this one
	HasDrops  bool
	Sec, Nsec int64 // SO_TIMESTAMPNS; 0, 0 if absent
}

const (
	alignTo = strconv.IntSize / 8 // CMSG_ALIGN rounds up to a long, cmsg(3)
	hdrLen  = unix.SizeofCmsghdr
)

// cutControl splits the first control message off b; ok is false if there is none or it is
// malformed.
func cutControl(b []byte) (level, typ int32, data, rest []byte, ok bool) {
	if len(b) < hdrLen {
		return 0, 0, nil, nil, false
	}
	var n uint64
	if alignTo == 8 {
		n = binary.NativeEndian.Uint64(b)
	} else {
		n = uint64(binary.NativeEndian.Uint32(b))
	}
	if n < hdrLen || n > uint64(len(b)) {
		return 0, 0, nil, nil, false
	}
	level = int32(binary.NativeEndian.Uint32(b[alignTo:]))
	typ = int32(binary.NativeEndian.Uint32(b[alignTo+4:]))
	return level, typ, b[hdrLen:n], b[min((int(n)+alignTo-1)&^(alignTo-1), len(b)):], true
}

// ParseControl parses the control messages of one datagram. It skips unknown ones, and stops at a
// malformed one. cmsg(3).
func ParseControl(b []byte) (c Control) {
	for {
		level, typ, data, rest, ok := cutControl(b)
		if !ok {
			return c
		}
		c.take(level, typ, data)
		b = rest
	}
}

func (c *Control) take(level, typ int32, data []byte) {
	switch level {
	case unix.SOL_UDP:
		// udp(7) says u16; the kernel writes an int (udp_cmsg_recv, Linux 5.0 to 6.18).
		if typ == unix.UDP_GRO && len(data) >= 4 {
			c.Segment = int(int32(binary.NativeEndian.Uint32(data)))
		}
	case unix.SOL_IP:
		switch {
		case typ == unix.IP_TOS && len(data) >= 1: // ip(7): one byte
			c.TOS = data[0]
		case typ == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			// struct in_pktinfo: index, local address, destination in the header. The two addresses
			// differ for broadcast and multicast, from which nobody can answer.
			// fib_compute_spec_dst, Linux 6.18.
			c.Interface = int(int32(binary.NativeEndian.Uint32(data)))
			c.Local = netip.AddrFrom4([4]byte(data[4:8]))
			c.ToMany = [4]byte(data[4:8]) != [4]byte(data[8:12])
		}
	case unix.SOL_IPV6:
		switch {
		case typ == unix.IPV6_TCLASS && len(data) >= 4:
			c.TOS = uint8(binary.NativeEndian.Uint32(data))
		case typ == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			// This is the destination in the header. For multicast, the kernel chooses the address
			// of the answer; for IPv4, IP_PKTINFO has a better one.
			c.Interface = int(int32(binary.NativeEndian.Uint32(data[16:])))
			switch a := netip.AddrFrom16([16]byte(data[:16])).Unmap(); {
			case a.IsMulticast():
				c.ToMany = true
			case a.Is6() || !c.Local.IsValid():
				c.Local = a
			}
		}
	case unix.SOL_SOCKET:
		switch {
		case typ == unix.SO_RXQ_OVFL && len(data) >= 4:
			c.Drops, c.HasDrops = binary.NativeEndian.Uint32(data), true
		case typ == unix.SO_TIMESTAMPNS && len(data) >= 16:
			c.Sec, c.Nsec = int64(binary.NativeEndian.Uint64(data)), int64(binary.NativeEndian.Uint64(data[8:]))
		case typ == unix.SO_TIMESTAMPNS && len(data) >= 8: // struct timespec of 32-bit systems
			c.Sec, c.Nsec = int64(int32(binary.NativeEndian.Uint32(data))), int64(int32(binary.NativeEndian.Uint32(data[4:])))
		}
	}
}

// CopyControl writes the control messages in src to dst as the kernel would have, except for those
// of UDP_GRO and SO_RXQ_OVFL, and returns the number of bytes written. If dst is too short, a
// message is cut, with its length adjusted, and those after it are left out; whole is then false.
// put_cmsg in net/core/scm.c, Linux 6.18.
func CopyControl(dst, src []byte) (n int, whole bool) {
	for {
		level, typ, data, rest, ok := cutControl(src)
		if !ok {
			return n, true
		}
		own := level == unix.SOL_UDP && typ == unix.UDP_GRO || level == unix.SOL_SOCKET && typ == unix.SO_RXQ_OVFL
		if !own {
			room := dst[n:]
			if len(room) < hdrLen {
				return n, false
			}
			length := hdrLen + len(data)
			n += copy(room, src[:len(src)-len(rest)])
			if length > len(room) {
				putLength(room, len(room))
				return n, false
			}
		}
		src = rest
	}
}

// putLength sets the length in a control message's header.
func putLength(h []byte, n int) {
	if alignTo == 8 {
		binary.NativeEndian.PutUint64(h, uint64(n))
	} else {
		binary.NativeEndian.PutUint32(h, uint32(n))
	}
}

// appendControl appends a control message with n zero bytes of data, and also returns those. b must
// have the capacity; it is never reallocated.
func appendControl(b []byte, level, typ int32, n int) (all, data []byte) {
	at := len(b)
	b = b[:at+hdrLen+(n+alignTo-1)&^(alignTo-1)]
	h := b[at:]
	putLength(h, hdrLen+n)
	binary.NativeEndian.PutUint32(h[alignTo:], uint32(level))
	binary.NativeEndian.PutUint32(h[alignTo+4:], uint32(typ))
	data = h[hdrLen:]
	clear(data)
	return b, data[:n]
}

// AppendSegment asks the kernel to cut the message every size bytes. udp(7), UDP_SEGMENT.
func AppendSegment(b []byte, size uint16) []byte {
	b, data := appendControl(b, unix.SOL_UDP, unix.UDP_SEGMENT, 2)
	binary.NativeEndian.PutUint16(data, size)
	return b
}

// AppendTOS sets the TOS byte or traffic class of one message; v6 says which. An IPv4 destination
// on an IPv6 socket takes the IPv4 form.
func AppendTOS(b []byte, v6 bool, tos uint8) []byte {
	level, typ := int32(unix.SOL_IP), int32(unix.IP_TOS)
	if v6 {
		level, typ = unix.SOL_IPV6, unix.IPV6_TCLASS
	}
	b, data := appendControl(b, level, typ, 4)
	binary.NativeEndian.PutUint32(data, uint32(tos))
	return b
}

// AppendLocal chooses the address and the interface that one message is sent from; an invalid
// address or an index of 0 leaves the choice to the kernel. v6 is the destination's family, as for
// [AppendTOS]. ip(7), ipv6(7).
func AppendLocal(b []byte, v6 bool, local netip.Addr, index int) []byte {
	if v6 {
		b, data := appendControl(b, unix.SOL_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo)
		if local.IsValid() {
			ip := local.As16()
			copy(data, ip[:])
		}
		binary.NativeEndian.PutUint32(data[16:], uint32(index))
		return b
	}
	b, data := appendControl(b, unix.SOL_IP, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo)
	binary.NativeEndian.PutUint32(data, uint32(index))
	if local = local.Unmap(); local.Is4() {
		ip := local.As4()
		copy(data[4:], ip[:])
	}
	return b
}

// AppendTxTime sets when one message is sent, in nanoseconds of CLOCK_MONOTONIC. The socket needs
// [SetTxTime]. SO_TXTIME, Linux 4.19.
func AppendTxTime(b []byte, nsec int64) []byte {
	b, data := appendControl(b, unix.SOL_SOCKET, unix.SCM_TXTIME, 8)
	binary.NativeEndian.PutUint64(data, uint64(nsec))
	return b
}

// OwnControl is the maximum number of bytes that the Append functions add to one message.
const OwnControl = 4*(hdrLen+8) + 24
