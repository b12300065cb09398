package sys

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// What follows is for a [Kernel] in memory: it does to the messages of a Vector what recvmmsg(2) and sendmmsg(2) do.

// Destination returns the destination of opened message i; it is empty if the message has none.
func (v *Vector) Destination(i int) []byte {
	n := v.NameLen(i)
	if n == 0 {
		return nil
	}
	return v.Name(i)[:n]
}

// SentControl returns the control messages of opened message i.
func (v *Vector) SentControl(i int) []byte {
	return v.ctrl[i*ControlSize:][:v.hdrs[i].hdr.Controllen]
}

// AppendPayload appends the payload of opened message i to b.
func (v *Vector) AppendPayload(b []byte, i int) []byte {
	first := 0
	for j := range i {
		first += int(v.hdrs[j].hdr.Iovlen)
	}
	for j := range int(v.hdrs[i].hdr.Iovlen) {
		b = append(b, v.Buf(first+j)...)
	}
	return b
}

// Store stores a datagram in message i, as a receive by a socket of a family does: what there is no room for is cut off.
func (v *Vector) Store(i int, family Family, b, name, control []byte) {
	v.offer(family)
	h := &v.hdrs[i]
	h.n = uint32(copy(v.Buf(i), b))
	h.hdr.Flags = 0
	if int(h.n) < len(b) {
		h.hdr.Flags |= MsgTrunc
	}
	if v.name > 0 {
		copy(v.names[i*v.name:][:v.name], name)
		h.hdr.Namelen = uint32(len(name))
	}
	n := copy(v.ctrl[i*ControlSize:][:v.room], control)
	if n < len(control) {
		h.hdr.Flags |= MsgCtrunc
	}
	h.hdr.SetControllen(n)
}

// SentTOS returns the TOS byte, or the traffic class if v6 is set, that the control messages of a message to send ask for.
func SentTOS(b []byte, v6 bool) (tos uint8, ok bool) {
	for {
		level, typ, data, rest, more := cutControl(b)
		if !more {
			return tos, ok
		}
		if (!v6 && level == unix.SOL_IP && typ == unix.IP_TOS || v6 && level == unix.SOL_IPV6 && typ == unix.IPV6_TCLASS) && len(data) >= 4 {
			tos, ok = uint8(binary.NativeEndian.Uint32(data)), true
		}
		b = rest
	}
}

// AppendReceived appends the control messages that a datagram arrives with: those of c that are set, and if tos is set its TOS
// byte. v6 says whether it travelled as IPv6. It is the inverse of [ParseControl].
func AppendReceived(b []byte, c *Control, v6, tos bool) []byte {
	if c.HasDrops {
		all, data := appendControl(b, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 4)
		binary.NativeEndian.PutUint32(data, c.Drops)
		b = all
	}
	if c.Segment > 0 {
		all, data := appendControl(b, unix.SOL_UDP, unix.UDP_GRO, 4)
		binary.NativeEndian.PutUint32(data, uint32(c.Segment))
		b = all
	}
	if c.Local.IsValid() {
		at := len(b) + hdrLen
		b = AppendLocal(b, v6, c.Local, c.Interface)
		if !v6 { // the destination in the header
			ip := c.Local.Unmap().As4()
			copy(b[at+8:], ip[:])
		}
	}
	if tos {
		b = AppendTOS(b, v6, c.TOS)
	}
	return b
}

// SetRaw fills sa with an address as the kernel writes it.
func (s *Sockaddr) SetRaw(raw []byte) { s.n = uint32(copy(s.raw[:], raw)) }

// PutInetAddr writes ap as a socket of a family has it, and returns it.
func PutInetAddr(b []byte, family Family, ap netip.AddrPort) []byte {
	b = b[:unix.SizeofSockaddrInet6]
	return b[:PutAddrPort(b, family, ap, 0)]
}

// UnixName appends the address of a Unix socket as the kernel writes it: the family, and what follows it, which is a path with its
// NUL, an abstract name that begins with one, or nothing.
func UnixName(b []byte, name string) []byte {
	if name == "" { // unix_copy_addr
		return b
	}
	return append(binary.NativeEndian.AppendUint16(b, unix.AF_UNIX), name...)
}
