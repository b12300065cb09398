package dgram

import (
	"iter"
	"net/netip"
	"time"

	"github.com/penstock/penstock/internal/segment"
	"github.com/penstock/penstock/internal/sys"
)

// MaxSize is the size of a buffer that holds every datagram and every
// super-packet.
const MaxSize = 1 << 16

// Message is one datagram, or a run of them.
//
// A received message can be sent back as it is once Buf is cut to its length:
//
//	m.Buf = m.Buf[:m.N]
//
// ReadBatch sets all fields but Buf, even those it learnt nothing about.
type Message struct {
	// Buf is, for reading, the memory to fill: MaxSize bytes where Mode says
	// GRO, otherwise as long as the longest datagram expected. For writing it
	// is the payload. The memory is the caller's again when the call returns;
	// nothing keeps a reference to it.
	Buf []byte

	// N is the number of bytes received, or of those that have left. It is less
	// than len(Buf) after writing only if a call ended in the middle of a long run.
	N int

	// Addr is the source, or the destination. IPv4 addresses never arrive as
	// 4-in-6, whatever the socket; both forms can be sent to. The zone of a
	// link-local address is an interface's name, or its index in digits. On a
	// connected socket the destination is left zero, or is the peer's.
	Addr netip.AddrPort

	// Path is what Addr is on a Unix socket: the peer's path, with a leading @
	// in the abstract namespace, or "" if it has none. On a connected socket it
	// is left empty, or is the peer's.
	Path string

	// Segment above 0 says that Buf is a run of datagrams of that many bytes,
	// of which only the last may be shorter. 0 stands for one datagram. A run
	// to send may be of any length; it leaves in as many pieces as the kernel
	// needs.
	Segment int

	// Local is the address that a datagram was sent to (Config.Local), or that
	// one should leave from. Interface is the index of the interface likewise.
	// Zero values leave the choice to the kernel. What was sent to many, by
	// broadcast or to a group, cannot be answered from their address: Local is
	// the interface's own then, or invalid for a group of IPv6.
	Local     netip.Addr
	Interface int

	// ECN is the congestion mark received (Config.ECN) or to send.
	ECN ECN

	// Flags says what went wrong with a received message.
	Flags Flags

	// Time is when the kernel received the message (Config.Time), or the
	// earliest time at which it leaves (Config.Pace). Zero stands for unknown,
	// or for now.
	Time time.Time

	// Control holds raw control messages, cmsg(3). For reading, its capacity is
	// the memory to copy them to, as the kernel does: 512 bytes hold all there
	// can be, and where there is less the last is cut, and Flags says
	// ControlTruncated. Its length is set; leave it nil if you need none. Those of GRO and of the drop counter are left out. For writing
	// they are added to what the other fields say, at most 384 bytes, and such a
	// message joins no run. Linux only.
	//
	// A Unix socket receives none but that of Config.Time: with more room the
	// kernel would install the descriptors that any peer may pass (SCM_RIGHTS),
	// until there are no more. What else came beside a datagram is dropped, and
	// Flags says ControlTruncated. To receive descriptors or credentials read from
	// the socket itself, with [net.UnixConn.ReadMsgUnix].
	Control []byte
}

// Datagrams yields the datagrams in what was received, m.Buf[:m.N], in order.
// They share the memory of Buf.
func (m *Message) Datagrams() iter.Seq[[]byte] {
	return segment.All(m.Buf[:m.N], m.Segment)
}

// CopyControl copies the control messages in m.Control to dst as the kernel would
// have, and returns how many bytes that took. If there is not enough room, the
// last one that begins in dst is cut, and whole is false.
func (m *Message) CopyControl(dst []byte) (n int, whole bool) {
	return sys.CopyControl(dst, m.Control)
}

// MakeMessages returns n messages with buffers of [MaxSize] bytes, ready for
// ReadBatch. The buffers are one allocation; the system gives it memory only
// where datagrams were received into.
func MakeMessages(n int) []Message {
	ms := make([]Message, n)
	mem := make([]byte, n*MaxSize)
	for i := range ms {
		ms[i].Buf = mem[i*MaxSize : (i+1)*MaxSize : (i+1)*MaxSize]
	}
	return ms
}

// ECN is the mark of explicit congestion notification, RFC 3168 section 5.
type ECN uint8

// The marks.
const (
	NotECT ECN = 0 // for sending: whatever the socket does by itself
	ECT1   ECN = 1
	ECT0   ECN = 2
	CE     ECN = 3
)

// Flags is a set of what went wrong with a received message.
type Flags uint8

const (
	// Truncated: the datagram was longer than Buf, its end is lost.
	Truncated Flags = 1 << iota

	// ControlTruncated: there were more control messages than room, and the last
	// may be cut.
	ControlTruncated
)
