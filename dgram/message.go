package dgram

import (
	"iter"
	"net/netip"
	"time"

	"github.com/penstock/penstock/internal/segment"
	"github.com/penstock/penstock/internal/sys"
)

// MaxSize is the size of a buffer that can hold any datagram and any super-packet.
const MaxSize = 1 << 16

// Message is one datagram, or a run of datagrams in one buffer.
//
// ReadBatch sets all fields except Buf. A received message can be sent back after
//
//	m.Buf = m.Buf[:m.N]
type Message struct {
	// Buf is the buffer to read into, or the payload to write. For reading it must have
	// MaxSize bytes if Mode.GRO is true, and should otherwise be as long as the longest
	// datagram expected.
	Buf []byte

	// N is the number of bytes received or sent. After a write it is less than len(Buf)
	// only if an error stopped the write in the middle of a run.
	N int

	// Addr is the source or the destination. A received IPv4 address is never in its
	// IPv6 form; a destination may have either form. The zone of a link-local address is
	// the name of an interface, or its index in digits. On a connected socket the
	// destination is the zero AddrPort or the peer.
	Addr netip.AddrPort

	// Path is the source or the destination on a Unix socket: a path, which has a
	// leading @ in the abstract namespace, or "" for a socket without a name. On a
	// connected socket the destination is "" or the peer's path.
	Path string

	// Segment, if it is not 0, is the size of each datagram in Buf except for the last,
	// which may be shorter. If it is 0, Buf is one datagram. A run to send may be of any
	// length, and is sent in as many pieces as the kernel needs.
	Segment int

	// Local is the address that a received datagram was sent to (Config.Local), or the
	// source address to send from. Interface is the index of the interface in the same
	// way. Zero values leave the choice to the kernel. For a datagram that was sent to a
	// broadcast or multicast address, from which no reply can be sent, Local is the
	// address of the interface, or invalid for IPv6 multicast.
	Local     netip.Addr
	Interface int

	// ECN is the congestion mark received (Config.ECN) or to send.
	ECN ECN

	// Flags has bits for what was cut off a received message.
	Flags Flags

	// Time is when the kernel received the message (Config.Time), or the earliest time
	// at which to send it (Config.Pace). The zero Time means unknown, or now.
	Time time.Time

	// Control holds raw control messages, cmsg(3). Linux only.
	//
	// For reading, leave it nil, or give it the capacity that control messages may use;
	// 512 bytes are always enough. ReadBatch sets its length. With less capacity the last
	// message is cut, and Flags has ControlTruncated. The control messages of GRO and of
	// SO_RXQ_OVFL are left out.
	//
	// For writing, its control messages, at most 384 bytes, are sent in addition to those
	// of the other fields. The message is not made part of a run.
	//
	// A Unix socket receives only the control message of Config.Time. With room for
	// others, the kernel would install descriptors that any peer may pass (SCM_RIGHTS).
	// Others are dropped, and Flags has ControlTruncated. To receive descriptors or
	// credentials, use [net.UnixConn.ReadMsgUnix].
	Control []byte
}

// Datagrams returns an iterator over the datagrams of a received message, m.Buf[:m.N].
// They share Buf's memory.
func (m *Message) Datagrams() iter.Seq[[]byte] {
	return segment.All(m.Buf[:m.N], m.Segment)
}

// CopyControl copies the control messages in m.Control to dst, as the kernel would
// have written them, and returns the number of bytes. If dst is too short, the last
// message that begins in dst is cut, and whole is false.
func (m *Message) CopyControl(dst []byte) (n int, whole bool) {
	return sys.CopyControl(dst, m.Control)
}

// MakeMessages returns n messages with buffers of [MaxSize] bytes for ReadBatch. The
// buffers are one allocation, of which the system provides the pages that are used.
func MakeMessages(n int) []Message {
	ms := make([]Message, n)
	mem := make([]byte, n*MaxSize)
	for i := range ms {
		ms[i].Buf = mem[i*MaxSize : (i+1)*MaxSize : (i+1)*MaxSize]
	}
	return ms
}

// ECN is a mark of explicit congestion notification; see RFC 3168, section 5.
type ECN uint8

// The marks.
const (
	NotECT ECN = 0 // in a message to send: the socket's own mark
	ECT1   ECN = 1
	ECT0   ECN = 2
	CE     ECN = 3
)

// Flags is a set of bits for a received message.
type Flags uint8

// The bits.
const (
	Truncated        Flags = 1 << iota // the datagram was longer than Buf; the rest is dropped
	ControlTruncated                   // there were more control messages than fit into Control; the last one may be cut
)
