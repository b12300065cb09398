package dgram

import (
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
)

// TestLinkLocal sends to an address with a zone, and reads one.
func TestLinkLocal(t *testing.T) {
	if !testnet.Netns(t, "addr add fe80::1/64 dev lo nodad") {
		return
	}
	eachLevel(t, func(t *testing.T, l level) {
		recv, send := listen(t, "udp6", "[fe80::1%lo]:0"), listen(t, "udp6", "[fe80::1%lo]:0")
		r, s := l.conn(t, recv), l.conn(t, send)
		for _, zone := range []string{"lo", "1"} {
			to := netip.AddrPortFrom(netip.MustParseAddr("fe80::1").WithZone(zone), local(recv).Port())
			mustWrite(t, s, []Message{{Buf: []byte("ab"), Addr: to}, {Buf: []byte("cd"), Addr: to}})
			for _, g := range collect(t, r, 2) {
				if g.m.Addr != local(send) || g.m.Addr.Addr().Zone() != "lo" {
					t.Errorf("from %s, want %s", g.m.Addr, local(send))
				}
			}
		}
		if l.name == "portable" {
			return
		}
		ms, in := []Message{{Buf: []byte("x"), Addr: local(recv)}}, MakeMessages(1)
		if n := testing.AllocsPerRun(50, func() {
			mustWrite(t, s, ms)
			if _, err := r.ReadBatch(in); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%v allocations with a zone", n)
		}
	})
}

// TestSmallMTU: runs whose datagrams do not fit the path are refused by the
// kernel, and their datagrams then leave in fragments, as they do by themselves.
func TestSmallMTU(t *testing.T) {
	if !testnet.Netns(t, "link set lo mtu 1500") {
		return
	}
	p := newPath(t, "v4")
	send, recv := bestLevel.conn(t, p.send), bestLevel.conn(t, p.recv)
	for _, size := range []int{1472, 1473, 4000, 1000} {
		var ms []Message
		for i := range 10 {
			ms = append(ms, Message{Buf: payload(i, size), Addr: p.to})
		}
		before := send.Stats()
		mustWrite(t, send, ms)
		if diff := sameDatagrams(collect(t, recv, 10), datagrams(ms)); diff != "" {
			t.Fatal(diff)
		}
		s := send.Stats()
		runs, fallbacks := s.Runs-before.Runs, s.Fallbacks-before.Fallbacks
		if fits := size <= 1472; fits != (runs == 1) || fits == (fallbacks == 1) && size == 1473 {
			t.Errorf("%d bytes: %d runs, %d fallbacks", size, runs, fallbacks)
		}
	}
}

// TestPacing gives the loopback device a queue that honours SO_TXTIME, and
// expects each datagram no earlier than its time.
func TestPacing(t *testing.T) {
	if !testnet.Netns(t) {
		return
	}
	if out, err := exec.Command("tc", "qdisc", "add", "dev", "lo", "root", "fq").CombinedOutput(); err != nil {
		t.Skipf("no fq queueing discipline here: %v: %s", err, out)
	}
	p := newPath(t, "v4")
	send := bestLevel.with(func(c *Config) { c.Pace = true }).conn(t, p.send)
	recv := bestLevel.with(func(c *Config) { c.Time = true }).conn(t, p.recv)
	// A machine that stops for longer than the datagrams wait says nothing.
	for gap := 20 * time.Millisecond; ; gap *= 2 {
		start := time.Now()
		var ms []Message
		for i := range 5 {
			ms = append(ms, Message{Buf: payload(i, 100), Addr: p.to, Time: start.Add(time.Duration(i) * gap)})
		}
		mustWrite(t, send, ms)
		waits := time.Until(ms[len(ms)-1].Time) > 0
		batch := MakeMessages(len(ms))
		for came := 0; came < len(ms); { // several at once, if this process was late
			n, err := recv.ReadBatch(batch)
			if err != nil {
				t.Fatalf("after %d of %d datagrams: %v", came, len(ms), err)
			}
			for i := range batch[:n] {
				for range batch[i].Datagrams() {
					if early := time.Until(ms[came].Time); early > time.Millisecond {
						t.Errorf("datagram %d came %v early", came, early)
					}
					came++
				}
			}
		}
		if waits {
			return
		}
		if gap > time.Second {
			t.Fatalf("the write waited for %v itself", 4*gap)
		}
	}
}
