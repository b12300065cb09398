//go:build linux

package conformance

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/penstock/penstock/dgram"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/xnet"
)

// batch is a socket with x/net's batch calls.
type batch interface {
	ReadBatch(ms []ipv4.Message, flags int) (int, error)
	WriteBatch(ms []ipv4.Message, flags int) (int, error)
}

// batchSide wraps a socket in x/net's batch calls, or in ours. Closing the socket closes both.
type batchSide struct {
	name string
	on   func(t *testing.T, c *net.UDPConn) batch
}

var theirBatch = batchSide{"x/net", func(t *testing.T, c *net.UDPConn) batch {
	if c.LocalAddr().(*net.UDPAddr).IP.To4() == nil {
		return ipv6.NewPacketConn(c)
	}
	return ipv4.NewPacketConn(c)
}}

func ourBatch(name string, cfg dgram.Config) batchSide {
	return batchSide{name, func(t *testing.T, c *net.UDPConn) batch {
		x, err := xnet.New(c, cfg)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}}
}

// stage is what a test runs on: a socket, and its batch calls.
type stage struct {
	*testing.T
	side batchSide
	addr string
	udp  *net.UDPConn
	batch
	said []string
}

func (s *stage) open(c *net.UDPConn, err error) (*net.UDPConn, batch) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c, s.side.on(s.T, c)
}

// say records an outcome. Counts of x/net are -1 on some errors; ours never are.
func (s *stage) say(what string, n int, err error) {
	s.said = append(s.said, fmt.Sprintf("%s: %d, %s", what, max(n, 0), class(err)))
}

func (s *stage) self() net.Addr { return s.udp.LocalAddr() }

func (s *stage) messages(to net.Addr, sizes ...int) (ms []ipv4.Message) {
	for i, n := range sizes {
		ms = append(ms, ipv4.Message{Buffers: [][]byte{bytes.Repeat([]byte{byte('a' + i)}, n)}, Addr: to})
	}
	return ms
}

// write sends all messages, and records how each call ended and the resulting N.
func (s *stage) write(c batch, ms []ipv4.Message) {
	for len(ms) > 0 {
		n, err := c.WriteBatch(ms, 0)
		s.say("write", n, err)
		for _, m := range ms[:max(n, 0)] {
			s.said = append(s.said, fmt.Sprintf("sent %d", m.N))
		}
		if err != nil {
			n = 1 // the message that caused the error
		}
		ms = ms[n:]
	}
}

// read receives want datagrams into messages of the given sizes, and records each. A call may
// return any number of them, except for none.
func (s *stage) read(c batch, want int, rooms ...int) {
	s.Helper()
	for got := 0; got < want; {
		ms := make([]ipv4.Message, 0, len(rooms))
		for _, n := range rooms {
			ms = append(ms, ipv4.Message{Buffers: [][]byte{make([]byte, n/2), make([]byte, n-n/2)}, OOB: make([]byte, 128)})
		}
		n, err := c.ReadBatch(ms[:min(len(ms), want-got)], 0)
		if n < 1 || err != nil {
			s.Fatalf("%s: read %d of %d, then %d, %v", s.side.name, got, want, n, err)
		}
		for _, m := range ms[:n] {
			from := m.Addr.(*net.UDPAddr)
			s.said = append(s.said, fmt.Sprintf("%q flags %#x from %v, itself %t",
				bytes.Join(m.Buffers, nil)[:m.N], m.Flags, from.IP, from.Port == s.self().(*net.UDPAddr).Port))
		}
		got += n
	}
}

func (s *stage) readOnce(what string, c batch) {
	n, err := c.ReadBatch([]ipv4.Message{{Buffers: [][]byte{make([]byte, 64)}}}, 0)
	s.say(what, n, err)
}

var batchStories = []struct {
	name string
	play func(s *stage)
}{
	{"round trip", func(s *stage) {
		s.write(s, s.messages(s.self(), 5, 5, 5, 5))
		s.read(s, 4, 9, 9, 9, 9)
	}},
	{"a batch that is not full", func(s *stage) {
		s.write(s, s.messages(s.self(), 1, 2, 3))
		s.read(s, 3, 9, 9, 9, 9, 9, 9, 9)
	}},
	{"fewer messages than datagrams", func(s *stage) {
		s.write(s, s.messages(s.self(), 7, 7, 7, 7, 2))
		s.read(s, 5, 9, 9)
	}},
	{"datagrams of no bytes", func(s *stage) {
		s.write(s, s.messages(s.self(), 0, 3, 0, 0))
		s.read(s, 4, 9, 9)
		s.write(s, s.messages(s.self(), 0))
		s.read(s, 1, 0)
	}},
	{"cut", func(s *stage) {
		s.write(s, s.messages(s.self(), 10, 10, 10, 4))
		s.read(s, 4, 4, 9, 10, 4)
	}},
	{"gathered", func(s *stage) {
		ms := s.messages(s.self(), 8, 0, 8)
		ms[0].Buffers = [][]byte{[]byte("ab"), nil, []byte("cde")}
		ms[1].Buffers = nil
		s.write(s, ms)
		s.read(s, 3, 20, 20, 20)
	}},
	{"connected", func(s *stage) {
		c, b := s.open(net.DialUDP("udp", nil, s.self().(*net.UDPAddr)))
		s.write(b, s.messages(nil, 3, 3, 9))
		s.read(s, 3, 20, 20)
		s.write(s, s.messages(c.LocalAddr(), 4, 4))
		s.read(b, 2, 20, 20)
	}},
	{"nobody listens", func(s *stage) {
		nobody, err := net.ResolveUDPAddr("udp", net.JoinHostPort(s.addr, testnet.Port(s)))
		if err != nil {
			s.Fatal(err)
		}
		_, b := s.open(net.DialUDP("udp", nil, nobody))
		s.write(b, s.messages(nil, 3))
		s.readOnce("read", b)
		s.write(b, s.messages(nil, 3))
		s.readOnce("read again", b)
	}},
	{"too long", func(s *stage) {
		s.write(s, s.messages(s.self(), 3, 1<<16, 4, 4))
		s.read(s, 3, 9, 9, 9)
	}},
	{"no address", func(s *stage) {
		s.write(s, s.messages(nil, 3))
	}},
	{"an address of another kind", func(s *stage) {
		n, err := s.WriteBatch(s.messages(&net.UnixAddr{Name: "x", Net: "unixgram"}, 3), 0)
		s.said = append(s.said, fmt.Sprint(n > 0, err != nil))
	}},
	{"read deadline passed", func(s *stage) {
		s.write(s, s.messages(s.self(), 3))
		s.udp.SetReadDeadline(time.Unix(1, 0))
		s.readOnce("with a datagram there", s)
		s.udp.SetReadDeadline(time.Now().Add(patience))
		s.read(s, 1, 9)
	}},
	{"read deadline passes", func(s *stage) {
		s.udp.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
		s.readOnce("with nothing there", s)
	}},
	{"write deadline passed", func(s *stage) {
		s.udp.SetWriteDeadline(time.Unix(1, 0))
		s.write(s, s.messages(s.self(), 3))
		s.udp.SetWriteDeadline(time.Time{})
		s.write(s, s.messages(s.self(), 4))
		s.read(s, 1, 9)
	}},
	{"closed", func(s *stage) {
		to := s.self()
		s.udp.Close()
		s.readOnce("read", s)
		s.write(s, s.messages(to, 3))
	}},
	{"closed meanwhile", func(s *stage) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.readOnce("read", s)
		}()
		s.udp.Close()
		<-done
	}},
	{"closed with a datagram there", func(s *stage) {
		s.write(s, s.messages(s.self(), 3))
		s.udp.Close()
		s.readOnce("read", s)
	}},
	{"closed with some read", func(s *stage) {
		s.write(s, s.messages(s.self(), 4, 4, 4, 4))
		s.read(s, 1, 9)
		s.udp.Close()
		s.readOnce("read", s)
	}},
	{"deadline passed with some read", func(s *stage) {
		s.write(s, s.messages(s.self(), 4, 4, 4, 4))
		s.read(s, 1, 9)
		s.udp.SetReadDeadline(time.Unix(1, 0))
		s.readOnce("read", s)
		s.udp.SetReadDeadline(time.Now().Add(patience))
		s.read(s, 3, 9)
	}},
	{"nothing to read into", func(s *stage) {
		say := func(what string) {
			n, err := s.ReadBatch(nil, 0)
			s.say("read "+what, n, err)
			n, err = s.WriteBatch(nil, 0)
			s.say("write "+what, n, err)
		}
		say("an empty socket")
		s.write(s, s.messages(s.self(), 4, 4, 4, 4))
		say("four datagrams")
		s.read(s, 1, 9)
		say("three datagrams")
		s.udp.SetDeadline(time.Unix(1, 0))
		say("too late")
		s.udp.SetDeadline(time.Now().Add(patience))
		s.read(s, 3, 9)
		s.udp.Close()
		say("a closed socket")
	}},
	{"without waiting", func(s *stage) {
		s.udp.SetReadDeadline(time.Time{})
		const dontWait = 0x40 // MSG_DONTWAIT
		try := func(what string) {
			n, err := s.ReadBatch([]ipv4.Message{{Buffers: [][]byte{make([]byte, 64)}}}, dontWait)
			s.say(what, n, err)
		}
		try("an empty socket")
		s.write(s, s.messages(s.self(), 4, 4))
		try("two")
		try("one")
		try("none")
		n, err := s.WriteBatch(s.messages(s.self(), 4), dontWait)
		s.say("write", n, err)
		s.read(s, 1, 9)
		s.udp.SetReadDeadline(time.Unix(1, 0))
		try("too late")
		s.udp.Close()
		try("closed")
	}},
	{"flags of no consequence", func(s *stage) {
		const noSignal, waitForOne = 0x4000, 0x10000
		n, err := s.WriteBatch(s.messages(s.self(), 4), noSignal)
		s.say("write", n, err)
		n, err = s.ReadBatch([]ipv4.Message{{Buffers: [][]byte{make([]byte, 64)}}}, waitForOne)
		s.say("read", n, err)
	}},
	{"to another than the peer", func(s *stage) {
		_, b := s.open(net.DialUDP("udp", nil, s.self().(*net.UDPAddr)))
		other, to := s.open(net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(s.addr)}))
		ms := s.messages(nil, 5, 6, 7, 8)
		ms[1].Addr, ms[2].Addr = other.LocalAddr(), other.LocalAddr()
		s.write(b, ms)
		s.read(to, 2, 9)
		s.read(s, 2, 9)
	}},
	{"control messages of great length", func(s *stage) {
		ms := s.messages(s.self(), 5, 6, 7)
		ms[1].OOB = bytes.Repeat((&ipv4.ControlMessage{Src: net.IPv4(127, 0, 0, 9).To4()}).Marshal(), 40)
		s.write(s, ms)
	}},
	{"flags of what was sent", func(s *stage) {
		ms := s.messages(s.self(), 5)
		ms[0].Flags, ms[0].NN, ms[0].N = 0xff, 9, 9
		s.write(s, ms)
		s.said = append(s.said, fmt.Sprint(ms[0].Flags, ms[0].NN, ms[0].N))
	}},
}

// TestBatch makes the same calls with x/net's batches and with ours.
func TestBatch(t *testing.T) {
	testnet.CheckLeaks(t)
	for _, addr := range []string{"127.0.0.1", "::1"} {
		for _, ours := range []batchSide{ourBatch("best", dgram.Config{}), ourBatch("plain", dgram.Config{NoGSO: true, NoGRO: true})} {
			for _, story := range batchStories {
				t.Run(fmt.Sprintf("%s/%s/%s", strings.ReplaceAll(addr, ":", ""), ours.name, story.name), func(t *testing.T) {
					play := func(side batchSide) []string {
						s := &stage{T: t, side: side, addr: addr}
						c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(addr)})
						if err != nil && addr == "::1" {
							t.Skipf("this machine has no ::1: %v", err)
						}
						s.udp, s.batch = s.open(c, err)
						story.play(s)
						return s.said
					}
					wantSame(t, play(ours), play(theirBatch))
				})
			}
		}
	}
}

// Control messages that a program has asked for arrive with each datagram, and those that it sends
// take effect, as with x/net.
func TestBatchControl(t *testing.T) {
	testnet.CheckLeaks(t)
	for _, ours := range []batchSide{ourBatch("best", dgram.Config{}), ourBatch("plain", dgram.Config{NoGSO: true, NoGRO: true})} {
		t.Run(ours.name, func(t *testing.T) {
			play := func(side batchSide) (said []string) {
				s := &stage{T: t, side: side}
				s.udp, s.batch = s.open(net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))
				if err := ipv4.NewPacketConn(s.udp).SetControlMessage(ipv4.FlagDst|ipv4.FlagTTL, true); err != nil {
					t.Fatal(err)
				}
				out := s.messages(s.self(), 3, 3, 3)
				out[1].OOB = (&ipv4.ControlMessage{Src: net.IPv4(127, 0, 0, 9).To4()}).Marshal()
				s.write(s, out)
				for i := range out {
					m := []ipv4.Message{{Buffers: [][]byte{make([]byte, 9)}, OOB: make([]byte, 128)}}
					if i == 2 {
						m[0].OOB = m[0].OOB[:4] // too small for any control message
					}
					if _, err := s.ReadBatch(m, 0); err != nil {
						t.Fatal(err)
					}
					var cm ipv4.ControlMessage
					if err := cm.Parse(m[0].OOB[:m[0].NN]); err != nil {
						t.Fatal(err)
					}
					said = append(said, fmt.Sprint(cm.Dst, cm.TTL, m[0].NN > 0, m[0].Flags, m[0].Addr.(*net.UDPAddr).IP))
				}
				return append(s.said, said...)
			}
			wantSame(t, play(ours), play(theirBatch))
		})
	}
}
