package quichello

import (
	"encoding/binary"
	"errors"
)

// Versions of QUIC whose Initial packets can be read: RFC 9000, 15 and RFC 9369, 3.1.
const (
	Version1 = 0x00000001
	Version2 = 0x6b3343cf
)

// MaxID is the maximum length of a connection ID in versions 1 and 2, in bytes. RFC 9000, 17.2.
const MaxID = 20

// Kind is the kind of a packet.
type Kind uint8

// The kinds of packets. RFC 8999, 5 and 6, RFC 9000, 17, RFC 9369, 3.2.
const (
	Short              Kind = iota // after the handshake: the version and the length of the connection ID are not in it
	Initial                        // the first of a connection, with the ClientHello
	ZeroRTT                        // data of a client that has been here before, sent with its ClientHello
	Handshake                      // later messages of the handshake
	Retry                          // a server asks a client to begin again
	VersionNegotiation             // a server names its versions
	Unknown                        // of a version that is not known here
)

var kindNames = [...]string{"short header", "Initial", "0-RTT", "Handshake", "Retry", "Version Negotiation", "unknown version"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "no kind of packet"
}

// Header is what everybody can read of the first packet of a datagram.
type Header struct {
	Kind    Kind
	Version uint32 // 0 of a short header, and of Version Negotiation
	// DestID and SrcID are the connection IDs of the receiver and of the sender; they refer to the
	// datagram. A short header has no SrcID, and its DestID is all that follows the first byte, because
	// only the one who has chosen it knows its length.
	DestID, SrcID []byte
	// Greased reports that the second bit of the packet, which is 1 otherwise, is 0: client and server have agreed on that
	// (RFC 9287), or the datagram is of another protocol.
	Greased bool
}

// ErrNotQUIC is returned if bytes are not a packet of QUIC.
var ErrNotQUIC = errors.New("not a QUIC packet")

// ParseHeader reads the header of the first packet of a datagram. The error is [ErrNotQUIC] or nil: most
// datagrams of other protocols look like a short header. ParseHeader does not allocate.
func ParseHeader(datagram []byte) (Header, error) {
	h, _, err := parseHeader(datagram)
	return h, err
}

// The bits of a packet's first byte.
const (
	longHeader = 0x80
	fixedBit   = 0x40
)

// parseHeader returns also what follows the connection IDs.
func parseHeader(b []byte) (h Header, rest []byte, err error) {
	if len(b) == 0 {
		return h, nil, ErrNotQUIC
	}
	first := b[0]
	h.Greased = first&fixedBit == 0
	if first&longHeader == 0 {
		h.Kind, h.DestID = Short, b[1:]
		return h, nil, nil
	}
	if len(b) < 5 {
		return h, nil, ErrNotQUIC
	}
	h.Version = binary.BigEndian.Uint32(b[1:])
	ok := true
	if h.DestID, b, ok = prefixed(b[5:]); !ok {
		return Header{}, nil, ErrNotQUIC
	}
	if h.SrcID, b, ok = prefixed(b); !ok {
		return Header{}, nil, ErrNotQUIC
	}
	switch h.Version {
	case 0:
		h.Kind = VersionNegotiation
		return h, b, nil
	case Version1, Version2:
	default:
		h.Kind = Unknown
		return h, b, nil
	}
	if len(h.DestID) > MaxID || len(h.SrcID) > MaxID {
		return Header{}, nil, ErrNotQUIC
	}
	kind := first >> 4 & 3
	if h.Version == Version2 {
		kind = (kind + 3) & 3 // RFC 9369, 3.2
	}
	h.Kind = [...]Kind{Initial, ZeroRTT, Handshake, Retry}[kind]
	return h, b, nil
}

// prefixed takes bytes with a length of one byte in front.
func prefixed(b []byte) (p, rest []byte, ok bool) {
	if len(b) == 0 || len(b) < 1+int(b[0]) {
		return nil, nil, false
	}
	n := 1 + int(b[0])
	return b[1:n:n], b[n:], true
}

// varint takes a number of variable length. RFC 9000, 16.
func varint(b []byte) (v uint64, rest []byte, ok bool) {
	if len(b) == 0 {
		return 0, nil, false
	}
	n := 1 << (b[0] >> 6)
	if len(b) < n {
		return 0, nil, false
	}
	v = uint64(b[0] & 0x3f)
	for _, c := range b[1:n] {
		v = v<<8 | uint64(c)
	}
	return v, b[n:], true
}

// counted takes as many bytes as a number in front of them says.
func counted(b []byte) (p, rest []byte, ok bool) {
	n, b, ok := varint(b)
	if !ok || n > uint64(len(b)) {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}
