package dgram

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
)

// path is a way for datagrams: a sender's and a receiver's socket, and the
// address that the sender has to use.
type path struct {
	name       string
	send, recv *net.UDPConn
	to         netip.AddrPort
	from       netip.AddrPort // what the receiver must see
	max        int            // longest payload
}

// patience is how long a test waits for something that must come.
const patience = testnet.Patience

func listen(tb testing.TB, network, addr string) *net.UDPConn {
	tb.Helper()
	a, err := net.ResolveUDPAddr(network, addr)
	if err != nil {
		tb.Fatal(err)
	}
	c, err := net.ListenUDP(network, a)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	// A slow machine must not lose what a test has in flight.
	if err := c.SetReadBuffer(4 << 20); err != nil {
		tb.Fatal(err)
	}
	enlargeReadBuffer(c, 4<<20) // beyond net.core.rmem_max, which many systems leave at 208 KiB
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		tb.Fatal(err)
	}
	return c
}

func local(c net.Conn) netip.AddrPort { return c.LocalAddr().(*net.UDPAddr).AddrPort() }

// at is c's port on another address.
func at(c net.Conn, ip string) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(ip), local(c).Port())
}

// pathKinds are the combinations of families and connectedness that must work.
var pathKinds = []string{"v4", "v6", "connected-v4", "connected-v6", "connected-named", "dual-to-v4", "dual-to-v6", "v4-to-dual", "mapped-on-v4", "mapped-on-dual"}

func newPath(tb testing.TB, kind string) path {
	tb.Helper()
	const max4, max6 = 65507, 65527
	p := path{name: kind}
	open := func(sendNet, sendAddr, recvNet, recvAddr string) {
		p.send, p.recv = listen(tb, sendNet, sendAddr), listen(tb, recvNet, recvAddr)
	}
	connect := func(network, addr string) {
		p.recv = listen(tb, network, addr)
		c, err := net.DialUDP(network, nil, p.recv.LocalAddr().(*net.UDPAddr))
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { c.Close() })
		p.send = c
	}
	const v4, v6 = "127.0.0.1:0", "[::1]:0"
	port := testnet.Port(tb) // of the receiver: tests close it, and then nobody is there
	own4, own6 := "127.0.0.1:"+port, "[::1]:"+port
	switch kind {
	case "v4":
		open("udp4", v4, "udp4", own4)
		p.to, p.from, p.max = local(p.recv), local(p.send), max4
	case "v6":
		open("udp6", v6, "udp6", own6)
		p.to, p.from, p.max = local(p.recv), local(p.send), max6
	case "connected-v4":
		connect("udp4", own4)
		p.from, p.max = local(p.send), max4
	case "connected-v6":
		connect("udp6", own6)
		p.from, p.max = local(p.send), max6
	case "connected-named":
		connect("udp4", own4)
		p.to, p.from, p.max = local(p.recv), local(p.send), max4
	case "dual-to-v4":
		open("udp", ":0", "udp4", own4)
		p.to, p.from, p.max = local(p.recv), at(p.send, "127.0.0.1"), max4
	case "dual-to-v6":
		open("udp", ":0", "udp6", own6)
		p.to, p.from, p.max = local(p.recv), at(p.send, "::1"), max6
	case "v4-to-dual":
		open("udp4", v4, "udp", ":"+port)
		p.to, p.from, p.max = at(p.recv, "127.0.0.1"), local(p.send), max4
	case "mapped-on-v4":
		open("udp4", v4, "udp4", own4)
		p.to, p.from, p.max = at(p.recv, "::ffff:127.0.0.1"), local(p.send), max4
	case "mapped-on-dual":
		open("udp", ":0", "udp", ":"+port)
		p.to, p.from, p.max = at(p.recv, "::ffff:127.0.0.1"), at(p.send, "127.0.0.1"), max4
	default:
		tb.Fatalf("no path %q", kind)
	}
	return p
}

// payload is n bytes that say which datagram they are and at which offset.
func payload(seq, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(seq*31 + i*7 + i>>8)
	}
	if n >= 8 {
		binary.BigEndian.PutUint64(b, uint64(seq))
	}
	return b
}

// got is a received datagram.
type got struct {
	data []byte
	m    Message // its message, without the memory
}

// collect reads datagrams until there are n.
func collect(tb testing.TB, c *Conn, n int) (all []got) {
	tb.Helper()
	ms := MakeMessages(16)
	for len(all) < n {
		k, err := c.ReadBatch(ms)
		if (err != nil) != (k == 0) || k < 0 {
			tb.Fatalf("ReadBatch = %d, %v: an error if and only if nothing came", k, err)
		}
		if err != nil {
			tb.Fatalf("after %d of %d datagrams: %v", len(all), n, err)
		}
		for i := range ms[:k] {
			for d := range ms[i].Datagrams() {
				m := ms[i]
				m.Buf, m.Control = nil, bytes.Clone(m.Control)
				all = append(all, got{bytes.Clone(d), m})
			}
		}
	}
	if len(all) != n {
		tb.Fatalf("%d datagrams, want %d", len(all), n)
	}
	return all
}

// mustWrite sends all of ms.
func mustWrite(tb testing.TB, c *Conn, ms []Message) {
	tb.Helper()
	if n, err := c.WriteBatch(ms); n != len(ms) || err != nil {
		tb.Fatalf("WriteBatch = %d of %d, %v", n, len(ms), err)
	}
}

// datagrams is what ms stand for, cut the slow way.
func datagrams(ms []Message) (all [][]byte) {
	for _, m := range ms {
		b := m.Buf
		for m.Segment > 0 && len(b) > m.Segment {
			all = append(all, b[:m.Segment])
			b = b[m.Segment:]
		}
		all = append(all, b)
	}
	return all
}

// sameDatagrams describes how the datagrams received differ from those sent; "" means not at all.
func sameDatagrams(came []got, sent [][]byte) string {
	if len(came) != len(sent) {
		return fmt.Sprintf("%d datagrams, want %d", len(came), len(sent))
	}
	for i := range came {
		if !bytes.Equal(came[i].data, sent[i]) {
			return fmt.Sprintf("datagram %d: %d bytes, want %d, or their contents differ", i, len(came[i].data), len(sent[i]))
		}
	}
	return ""
}
