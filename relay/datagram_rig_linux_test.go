package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/stats"
)

// newDatagramRig is newRig for flows of datagrams, whose balance counts what
// belonged to no flow as well.
func newDatagramRig(t *testing.T, cfg Config) *rig {
	t.Helper()
	for _, p := range feature.Datagram {
		testnet.Need(t, p)
	}
	testnet.CheckLeaks(t)
	if cfg.Loops == 0 {
		cfg.Loops = 2
	}
	r := &rig{t: t, k: testkernel.New(), records: make(chan Record, 10_000)}
	e, err := newEngine(cfg, r.k)
	if err != nil {
		t.Fatal(err)
	}
	r.e = e
	t.Cleanup(r.closeDatagrams)
	return r
}

func (r *rig) closeDatagrams() {
	r.e.Close()
	t, s := r.t, r.e.Stats()
	sum := s.Total()
	d := &sum.Datagrams
	r.checkPools()
	checkDescriptors(t, r.e)
	dropped := d.Dropped.Total()
	if sum.Flows != 0 || d.Flows != 0 || d.BytesHeld != 0 || r.e.datagrams.flows.Load() != 0 {
		t.Errorf("left: %d flows, %d of datagrams, %d counted, %d bytes held", sum.Flows, d.Flows, r.e.datagrams.flows.Load(), d.BytesHeld)
	}
	if d.Received != d.Sent+dropped {
		t.Errorf("%d datagrams received, %d sent, dropped %v", d.Received, d.Sent, d.Dropped)
	}
	if sum.BytesRead != sum.BytesWritten+sum.BytesDropped {
		t.Errorf("%d bytes read, %d written, %d dropped", sum.BytesRead, sum.BytesWritten, sum.BytesDropped)
	}
	for _, c := range r.e.buffers.Stats().Classes {
		if c.Gets != c.Puts {
			t.Errorf("buffers of %d bytes: %d taken, %d given back", c.Size, c.Gets, c.Puts)
		}
	}
	var sent, written int64
	ended := make(map[string]int64)
	ids := make(map[uint64]bool)
	for _, rec := range r.all {
		if ids[rec.ID] {
			t.Errorf("two records have ID %d", rec.ID)
		}
		ids[rec.ID] = true
		ended[rec.Cause.String()]++
		sent += rec.Up.Datagrams + rec.Down.Datagrams
		written += rec.Up.Written + rec.Down.Written
	}
	if !maps.Equal(ended, sum.Ended) || int64(len(r.all)) != sum.Accepted {
		t.Errorf("%d flows ended %v, %d records %v", sum.Accepted, sum.Ended, len(r.all), ended)
	}
	if sent != d.Sent || written != sum.BytesWritten {
		t.Errorf("by the records %d datagrams and %d bytes were sent, by the counters %d and %d", sent, written, d.Sent, sum.BytesWritten)
	}
	for _, d := range r.e.datagrams.all {
		if d.undecided.n != 0 || d.undecidedBytes != 0 {
			t.Errorf("left: %d flows that are sniffed, with %d bytes", d.undecided.n, d.undecidedBytes)
		}
	}
	for _, wrong := range r.k.Wrong() {
		t.Error(wrong)
	}
}

// grams are the networks of datagrams, as net has them.
var grams = []string{"udp4", "udp6", "unixgram"}

var socketCount struct {
	sync.Mutex
	n int
}

// packetSocket is a bound datagram socket with large buffers.
func packetSocket(t testing.TB, network string) net.PacketConn {
	t.Helper()
	at := map[string]string{"udp4": "127.0.0.1:0", "udp6": "[::1]:0"}[network]
	if network == "unixgram" {
		at = unixPlace(t)
	}
	c, err := net.ListenPacket(network, at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.(interface{ SetReadBuffer(int) error }).SetReadBuffer(4 << 20)
	return c
}

// unixPlace is a short path that nobody has.
func unixPlace(t testing.TB) string {
	socketCount.Lock()
	defer socketCount.Unlock()
	socketCount.n++
	path := filepath.Join(os.TempDir(), fmt.Sprintf("penstock-%d-%d", os.Getpid(), socketCount.n))
	t.Cleanup(func() { os.Remove(path) })
	return path
}

func gramAddr(a net.Addr) Addr {
	if u, ok := a.(*net.UDPAddr); ok {
		ap := u.AddrPort()
		return Addr{Network: UDP, AddrPort: netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())}
	}
	return Addr{Network: Unixgram, Path: a.String()}
}

func gramNet(a Addr) net.Addr {
	if a.Network == UDP {
		return net.UDPAddrFromAddrPort(a.AddrPort)
	}
	return &net.UnixAddr{Net: "unixgram", Name: a.Path}
}

func gramPlace(t testing.TB, network string) Addr {
	switch network {
	case "udp4":
		return Addr{Network: UDP, AddrPort: netip.MustParseAddrPort("127.0.0.1:" + testnet.Port(t))}
	case "udp6":
		return Addr{Network: UDP, AddrPort: netip.MustParseAddrPort("[::1]:" + testnet.Port(t))}
	}
	return Addr{Network: Unixgram, Path: unixPlace(t)}
}

// listenAt is listen for any address.
func (r *rig) listenAt(at Addr, cfg ListenConfig, upstreams ...*Addr) *Listener {
	r.t.Helper()
	if cfg.Hooks.Upstream == nil {
		cfg.Hooks.Upstream = func(_ *Flow, attempt int) *Addr {
			if attempt < len(upstreams) {
				return upstreams[attempt]
			}
			return nil
		}
	}
	cfg.Hooks.Done = r.done
	l, err := r.e.Listen(at, cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	return l
}

// gramEcho is an upstream that answers each datagram with itself, and checks it.
func gramEcho(t testing.TB, network string) *Addr {
	c := packetSocket(t, network)
	echoOn(t, c)
	a := gramAddr(c.LocalAddr())
	return &a
}

func echoOn(t testing.TB, c net.PacketConn) {
	var wg sync.WaitGroup
	wg.Go(func() {
		b := make([]byte, 1<<16)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			testwait.For(func() bool { // a Unix client's queue may be full for a while
				_, err := c.WriteTo(b[:n], from)
				return err == nil || from.Network() != "unixgram" || errors.Is(err, net.ErrClosed)
			})
		}
	})
	t.Cleanup(func() { c.Close(); wg.Wait() })
}

// sealHead is what a checked datagram begins with: flow, number, checksum of the rest.
const sealHead = 12

// seal makes datagram number n of a flow.
func seal(b []byte, flow, n uint32, rnd *rand.Rand) []byte {
	for i := sealHead; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], rnd.Uint64())
	}
	binary.LittleEndian.PutUint32(b, flow)
	binary.LittleEndian.PutUint32(b[4:], n)
	binary.LittleEndian.PutUint32(b[8:], crc32.ChecksumIEEE(b[sealHead:])+flow*31+n)
	return b
}

func broken(b []byte, size int, flow, n uint32) error {
	if len(b) != size || size < sealHead {
		return fmt.Errorf("datagram %d of flow %d has %d bytes, want %d", n, flow, len(b), size)
	}
	if f, m := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]); f != flow || m != n {
		return fmt.Errorf("datagram %d of flow %d, want %d of %d", m, f, n, flow)
	}
	if crc32.ChecksumIEEE(b[sealHead:])+flow*31+n != binary.LittleEndian.Uint32(b[8:]) {
		return fmt.Errorf("datagram %d of flow %d is damaged", n, flow)
	}
	return nil
}

// tell sends and hear receives one datagram.
func tellGram(t testing.TB, c net.PacketConn, to Addr, text string) {
	t.Helper()
	if _, err := c.WriteTo([]byte(text), gramNet(to)); err != nil {
		t.Fatal(err)
	}
}

func hearGram(t testing.TB, c net.PacketConn, text string) net.Addr {
	t.Helper()
	b := make([]byte, 1<<16)
	c.SetReadDeadline(time.Now().Add(patience))
	n, from, err := c.ReadFrom(b)
	if err != nil || string(b[:n]) != text {
		t.Fatalf("heard %q, %v; want %q", b[:min(n, 100)], err, text)
	}
	return from
}

// askGram sends and wants the same back.
func askGram(t testing.TB, c net.PacketConn, to Addr, text string) {
	t.Helper()
	tellGram(t, c, to, text)
	hearGram(t, c, text)
}

func (r *rig) dgramStats() stats.Datagrams {
	s := r.e.Stats()
	total := s.Total()
	return total.Datagrams
}
