package xnet

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/penstock/penstock/dgram"
	"github.com/penstock/penstock/internal/testnet"
)

// batcher is the part of ipv4.PacketConn that a Conn stands in for.
type batcher interface {
	net.PacketConn
	ReadBatch(ms []ipv4.Message, flags int) (int, error)
	WriteBatch(ms []ipv4.Message, flags int) (int, error)
}

var (
	_ batcher  = (*Conn)(nil)
	_ net.Conn = (*Conn)(nil)
	_          = []ipv4.Message(([]ipv6.Message)(nil)) // one type, so one Conn for both families
)

const patience = testnet.Patience

func listen(tb testing.TB, network, addr string, cfg dgram.Config) *Conn {
	tb.Helper()
	a, err := net.ResolveUDPAddr(network, addr)
	if err != nil {
		tb.Fatal(err)
	}
	u, err := net.ListenUDP(network, a)
	if err != nil {
		tb.Fatal(err)
	}
	u.SetReadBuffer(4 << 20)
	u.SetDeadline(time.Now().Add(patience))
	c, err := New(u, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	return c
}

var configs = map[string]dgram.Config{
	"best":    {},
	"neither": {NoGSO: true, NoGRO: true},
}

// TestRoundTrip writes messages with several buffers and reads them into others,
// with lengths that fit in no simple read.
func TestRoundTrip(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for name, cfg := range configs {
		for _, network := range []string{"udp4", "udp6"} {
			t.Run(name+"/"+network, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 0))
				addr := map[string]string{"udp4": "127.0.0.1:0", "udp6": "[::1]:0"}[network]
				a, b := listen(t, network, addr, cfg), listen(t, network, addr, cfg)
				for range 40 {
					var want [][]byte
					ms := make([]ipv4.Message, 1+rnd.IntN(60))
					size := rnd.IntN(1400)
					for i := range ms {
						if rnd.IntN(5) == 0 {
							size = rnd.IntN(1400)
						}
						all := bytes.Repeat([]byte{byte(i), byte(size)}, size/2+1)[:size]
						want = append(want, all)
						ms[i].Addr = b.LocalAddr()
						for cut := rnd.IntN(4); cut > 0 && len(all) > 0; cut-- {
							k := rnd.IntN(len(all) + 1)
							ms[i].Buffers, all = append(ms[i].Buffers, all[:k]), all[k:]
						}
						ms[i].Buffers = append(ms[i].Buffers, all)
					}
					for sent := 0; sent < len(ms); {
						n, err := a.WriteBatch(ms[sent:], 0)
						if err != nil || n < 1 {
							t.Fatal(n, err)
						}
						sent += n
					}
					in := make([]ipv4.Message, 1+rnd.IntN(20))
					for i := range in {
						in[i].Buffers = [][]byte{make([]byte, rnd.IntN(500)), make([]byte, 1400)}
						if i%2 == 0 {
							in[i].Buffers = in[i].Buffers[1:]
						}
					}
					for got := 0; got < len(want); {
						n, err := b.ReadBatch(in[:min(len(in), len(want)-got)], 0)
						if err != nil || n < 1 {
							t.Fatal(n, err)
						}
						for i := range in[:n] {
							data := bytes.Join(in[i].Buffers, nil)[:in[i].N]
							if !bytes.Equal(data, want[got]) {
								t.Fatalf("datagram %d of %d: %d bytes, want %d", got, len(want), len(data), len(want[got]))
							}
							if in[i].Addr.String() != a.LocalAddr().String() || in[i].Flags != 0 {
								t.Fatalf("from %s with flags %#x", in[i].Addr, in[i].Flags)
							}
							got++
						}
					}
				}
				if cfg.NoGSO == false && a.Mode().GSO && a.Stats().Runs == 0 {
					t.Error("no run was sent")
				}
			})
		}
	}
}

// TestSameAsXNet makes the same calls on both and expects the same outcome.
func TestSameAsXNet(t *testing.T) {
	for name, cfg := range configs {
		t.Run(name, func(t *testing.T) {
			ours := listen(t, "udp4", "127.0.0.1:0", cfg)
			plain, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				t.Fatal(err)
			}
			defer plain.Close()
			plain.SetDeadline(time.Now().Add(patience))
			theirs := ipv4.NewPacketConn(plain)
			for _, row := range []struct {
				name  string
				sizes []int // written
				room  []int // read into, one message each
			}{
				{"fits", []int{5}, []int{5}},
				{"cut", []int{10}, []int{4}},
				{"empty", []int{0}, []int{4}},
				{"more room than datagrams", []int{1, 2, 3}, []int{9, 9, 9, 9, 9}},
				{"fewer messages than datagrams", []int{7, 7, 7}, []int{9, 9}},
				{"cut in the middle of equal ones", []int{7, 7, 7}, []int{9, 3, 9}},
			} {
				outcome := func(c interface {
					ReadBatch([]ipv4.Message, int) (int, error)
					WriteBatch([]ipv4.Message, int) (int, error)
				}, to net.Addr) (said []string) {
					var out, in []ipv4.Message
					for i, n := range row.sizes {
						out = append(out, ipv4.Message{Buffers: [][]byte{bytes.Repeat([]byte{byte('a' + i)}, n)}, Addr: to})
					}
					for _, n := range row.room {
						in = append(in, ipv4.Message{Buffers: [][]byte{make([]byte, n)}})
					}
					for sent := 0; sent < len(out); {
						n, err := c.WriteBatch(out[sent:], 0)
						if err != nil {
							return []string{err.Error()}
						}
						sent += n
					}
					for got := 0; got < len(out); {
						n, err := c.ReadBatch(in, 0)
						if err != nil {
							return []string{err.Error()}
						}
						for _, m := range in[:n] {
							said = append(said, fmt.Sprintf("%q %d %#x", m.Buffers[0][:m.N], m.NN, m.Flags))
						}
						got += n
					}
					for _, m := range out {
						said = append(said, fmt.Sprint(m.N))
					}
					return said
				}
				a, b := outcome(ours, ours.LocalAddr()), outcome(theirs, plain.LocalAddr())
				if fmt.Sprint(a) != fmt.Sprint(b) {
					t.Errorf("%s:\nours   %v\ntheirs %v", row.name, a, b)
				}
			}
		})
	}
}

// TestSingleReads mixes every read to read on one socket: a super-packet that one
// call began is gone on with by the next.
func TestSingleReads(t *testing.T) {
	for name, cfg := range configs {
		t.Run(name, func(t *testing.T) {
			a, b := listen(t, "udp4", "127.0.0.1:0", cfg), listen(t, "udp4", "127.0.0.1:0", cfg)
			ms := make([]ipv4.Message, 12)
			for i := range ms {
				ms[i] = ipv4.Message{Buffers: [][]byte{{byte(i), 0}}, Addr: b.LocalAddr()}
			}
			if n, err := a.WriteBatch(ms, 0); n != 12 || err != nil {
				t.Fatal(n, err)
			}
			buf := make([]byte, 10)
			reads := []func() (int, net.Addr, error){
				func() (int, net.Addr, error) { n, err := b.Read(buf); return n, a.LocalAddr(), err },
				func() (int, net.Addr, error) { return b.ReadFrom(buf) },
				func() (int, net.Addr, error) { n, from, err := b.ReadFromUDP(buf); return n, from, err },
				func() (int, net.Addr, error) {
					n, from, err := b.ReadFromUDPAddrPort(buf)
					return n, net.UDPAddrFromAddrPort(from), err
				},
				func() (int, net.Addr, error) { n, _, _, from, err := b.ReadMsgUDP(buf, nil); return n, from, err },
				func() (int, net.Addr, error) {
					n, _, _, from, err := b.ReadMsgUDPAddrPort(buf, nil)
					return n, net.UDPAddrFromAddrPort(from), err
				},
			}
			for i := range ms {
				n, from, err := reads[i%len(reads)]()
				if n != 2 || err != nil || buf[0] != byte(i) || from.String() != a.LocalAddr().String() {
					t.Fatalf("datagram %d: %d bytes %x from %v, %v", i, n, buf[:n], from, err)
				}
			}
			b.SetReadDeadline(time.Now().Add(-time.Second))
			for i, read := range reads {
				if n, _, err := read(); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("read %d past the deadline: %d, %v", i, n, err)
				}
			}
		})
	}
}

func TestErrors(t *testing.T) {
	c := listen(t, "udp4", "127.0.0.1:0", dgram.Config{})
	one := []ipv4.Message{{Buffers: [][]byte{make([]byte, 10)}, Addr: c.LocalAddr()}}
	const peek = 2
	if n, err := c.ReadBatch(one, peek); c.Mode().GRO && (n != 0 || !errors.Is(err, errors.ErrUnsupported)) {
		t.Errorf("MSG_PEEK: %d, %v", n, err)
	}
	if n, err := c.ReadBatch(nil, 0); n != 0 || err != nil {
		t.Errorf("read into nothing: %d, %v", n, err)
	}
	if n, err := c.WriteBatch(nil, 0); n != 0 || err != nil {
		t.Errorf("write of nothing: %d, %v", n, err)
	}
	// The messages before the bad one are sent; the next call returns its error.
	bad := append(one[:1:1], ipv4.Message{Buffers: one[0].Buffers, Addr: &net.IPAddr{}})
	if n, err := c.WriteBatch(bad, 0); n != 1 || err != nil {
		t.Errorf("one good, one bad: %d, %v", n, err)
	}
	if n, err := c.WriteBatch(bad[1:], 0); n != 0 || err == nil {
		t.Errorf("the bad one alone: %d, %v", n, err)
	}
	c.Close()
	if n, err := c.ReadBatch(one, 0); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("read of a closed socket: %d, %v", n, err)
	}
	if n, err := c.WriteBatch(one, 0); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("write to a closed socket: %d, %v", n, err)
	}
	if _, err := New(c.UDPConn, dgram.Config{}); c.Mode().Batch && !errors.Is(err, net.ErrClosed) {
		t.Errorf("a Conn of a closed socket: %v", err)
	}
}

func TestConnected(t *testing.T) {
	b := listen(t, "udp4", "127.0.0.1:0", dgram.Config{})
	u, err := net.DialUDP("udp4", nil, b.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(u, dgram.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	var nobody *net.UDPAddr
	for _, to := range []net.Addr{nil, nobody, b.LocalAddr()} {
		if n, err := a.WriteBatch([]ipv4.Message{{Buffers: [][]byte{[]byte("hello")}, Addr: to}}, 0); n != 1 || err != nil {
			t.Fatalf("to %v: %d, %v", to, n, err)
		}
		buf := make([]byte, 10)
		if n, err := b.Read(buf); string(buf[:n]) != "hello" {
			t.Errorf("%q, %v", buf[:n], err)
		}
	}
	// An empty IP is this host.
	port := b.LocalAddr().(*net.UDPAddr).Port
	c := listen(t, "udp4", "127.0.0.1:0", dgram.Config{})
	if n, err := c.WriteBatch([]ipv4.Message{{Buffers: [][]byte{[]byte("x")}, Addr: &net.UDPAddr{Port: port}}}, 0); n != 1 || err != nil {
		t.Fatal(n, err)
	}
}
