package packets

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// Protocols of IP.
const (
	TCP = 6
	UDP = 17
)

// A Conn is one side of a flow as the relay has it: between two addresses. Local is zero if it is not known.
type Conn struct {
	Protocol      uint8
	Local, Remote netip.AddrPort
}

// A Packet is what a packet socket has received, from the header of IP on.
type Packet struct {
	At       time.Time
	Data     []byte
	Length   int // on the wire
	Device   int
	Outgoing bool // this host sends it
}

// size returns how much memory a packet takes while it waits: its data, and 128 bytes for what is beside it.
func (p *Packet) size() int { return len(p.Data) + 128 }

// Flags of TCP, RFC 9293, 3.1.
const (
	flagFIN = 1
	flagSYN = 2
	flagRST = 4
	flagACK = 16
)

// header is what is known of a packet by its headers.
type header struct {
	protocol uint8
	from, to netip.AddrPort
	flags    uint8  // of TCP
	seq      uint32 // of TCP
}

// parseHeader reads the headers of IP and of TCP or UDP. A fragment that is not the first one has none.
func parseHeader(b []byte) (h header, ok bool) {
	if len(b) == 0 {
		return h, false
	}
	var from, to netip.Addr
	switch b[0] >> 4 {
	case 4:
		n := int(b[0]&0xf) * 4
		if n < 20 || len(b) < n || binary.BigEndian.Uint16(b[6:])&0x1fff != 0 {
			return h, false
		}
		h.protocol = b[9]
		from, to = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		b = b[n:]
	case 6:
		if len(b) < 40 {
			return h, false
		}
		h.protocol = b[6]
		from, to = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		b = b[40:]
	default:
		return h, false
	}
	switch {
	case h.protocol == TCP && len(b) >= 14:
		h.flags, h.seq = b[13], binary.BigEndian.Uint32(b[4:])
	case h.protocol == UDP && len(b) >= 4:
	default:
		return h, false
	}
	h.from = netip.AddrPortFrom(from, binary.BigEndian.Uint16(b))
	h.to = netip.AddrPortFrom(to, binary.BigEndian.Uint16(b[2:]))
	return h, true
}
