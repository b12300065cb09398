package dgram

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
)

// batchLevels are those with metadata.
var batchLevels = []level{bestLevel, neither}

func TestECN(t *testing.T) {
	for _, l := range batchLevels {
		for _, kind := range pathKinds {
			t.Run(fmt.Sprintf("level=%s/path=%s", l.name, kind), func(t *testing.T) {
				p := newPath(t, kind)
				send, recv := l.conn(t, p.send), l.with(func(c *Config) { c.ECN = true }).conn(t, p.recv)
				if !recv.Mode().ECN {
					t.Fatal("every Linux tells the TOS byte")
				}
				marks := []ECN{NotECT, ECT0, ECT0, CE, ECT1, NotECT}
				var ms []Message
				for i, e := range marks {
					ms = append(ms, Message{Buf: payload(i, 50), Addr: p.to, ECN: e})
				}
				mustWrite(t, send, ms)
				for i, g := range collect(t, recv, len(marks)) {
					if g.m.ECN != marks[i] {
						t.Errorf("datagram %d is marked %d, want %d", i, g.m.ECN, marks[i])
					}
				}
			})
		}
	}
}

// TestECNKeepsDSCP: the other six bits of the byte are the socket's.
func TestECNKeepsDSCP(t *testing.T) {
	for _, kind := range []string{"v4", "v6"} {
		p := newPath(t, kind)
		raw, err := p.send.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		const dscp = 46 << 2
		raw.Control(func(fd uintptr) {
			level, opt := 0, 1 // IP_TOS, ip(7)
			if kind == "v6" {
				level, opt = 41, 67 // IPV6_TCLASS, ipv6(7)
			}
			if e := sys.SetInt(int(fd), level, opt, dscp); e != 0 {
				t.Error(e)
			}
		})
		send, recv := bestLevel.conn(t, p.send), bestLevel.with(func(c *Config) { c.ECN = true }).conn(t, p.recv)
		mustWrite(t, send, []Message{{Buf: []byte("x"), Addr: p.to, ECN: ECT0}})
		ms := MakeMessages(1)
		ms[0].Control = make([]byte, 0, 64)
		if n, err := recv.ReadBatch(ms); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if c := sys.ParseControl(ms[0].Control); c.TOS != dscp|uint8(ECT0) {
			t.Errorf("%s: the byte is %#x, want %#x", kind, c.TOS, dscp|uint8(ECT0))
		}
	}
}

// TestLocal: a server on a wildcard address learns what its client wrote to, and
// an echo of the message leaves from there.
func TestLocal(t *testing.T) {
	for _, row := range []struct{ network, to string }{
		{"udp4", "127.0.0.2"}, {"udp4", "127.0.0.1"}, {"udp", "127.0.0.3"}, {"udp", "::1"}, {"udp6", "::1"},
	} {
		for _, l := range batchLevels {
			t.Run(fmt.Sprintf("%s-%s-%s", l.name, row.network, row.to), func(t *testing.T) {
				clientNet := "udp4"
				clientAddr := "127.0.0.1:0"
				if netip.MustParseAddr(row.to).Is6() {
					clientNet, clientAddr = "udp6", "[::1]:0"
				}
				server, client := listen(t, row.network, ":0"), listen(t, clientNet, clientAddr)
				s := l.with(func(c *Config) { c.Local = true }).conn(t, server)
				c := l.conn(t, client)
				to := at(server, row.to)
				mustWrite(t, c, []Message{{Buf: []byte("one"), Addr: to}, {Buf: []byte("two"), Addr: to}})
				ms := MakeMessages(8)
				for got := 0; got < 2; {
					n, err := s.ReadBatch(ms)
					if err != nil {
						t.Fatal(err)
					}
					for i := range ms[:n] {
						m := &ms[i]
						if m.Local != to.Addr() || m.Interface != 1 {
							t.Errorf("came to %v by interface %d, want %v by 1 (loopback)", m.Local, m.Interface, to.Addr())
						}
						for range m.Datagrams() {
							got++
						}
						m.Buf = m.Buf[:m.N]
					}
					mustWrite(t, s, ms[:n])
					copy(ms, MakeMessages(8))
				}
				for _, g := range collect(t, c, 2) {
					if g.m.Addr != to {
						t.Errorf("answer from %s, want %s", g.m.Addr, to)
					}
				}
			})
		}
	}
}

// TestTime reads late on purpose. The kernel starts to stamp what arrives a
// moment after it was asked to (net_enable_timestamp defers it), and stamps what
// came before that when it is read; hence the tries.
func TestTime(t *testing.T) {
	for _, l := range batchLevels {
		p := newPath(t, "v4")
		send, recv := l.conn(t, p.send), l.with(func(c *Config) { c.Time = true }).conn(t, p.recv)
		for deadline := time.Now().Add(patience); ; {
			before := time.Now()
			mustWrite(t, send, []Message{{Buf: []byte("x"), Addr: p.to}})
			after := time.Now()
			time.Sleep(10 * time.Millisecond)
			at := collect(t, recv, 1)[0].m.Time
			// The two clocks tick in steps of their own.
			if !at.Before(before.Add(-time.Millisecond)) && !at.After(after.Add(time.Millisecond)) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("level %s: received at %v, sent between %v and %v", l.name, at, before, after)
			}
		}
	}
}

// TestPace: a socket without SO_TXTIME refuses the control message (EINVAL), so
// that arrival proves the option and the message; loopback has no queueing
// discipline that would wait. Messages of different times share no run.
func TestPace(t *testing.T) {
	p := newPath(t, "v4")
	send, recv := bestLevel.with(func(c *Config) { c.Pace = true }).conn(t, p.send), bestLevel.conn(t, p.recv)
	if !send.Mode().Pace {
		t.Fatal("every Linux since 4.19 has SO_TXTIME")
	}
	var ms []Message
	now := time.Now()
	for i := range 8 {
		ms = append(ms, Message{Buf: payload(i, 100), Addr: p.to, Time: now.Add(time.Duration(i/4) * time.Millisecond)})
	}
	mustWrite(t, send, ms)
	if diff := sameDatagrams(collect(t, recv, 8), datagrams(ms)); diff != "" {
		t.Error(diff)
	}
	if s := send.Stats(); s.Runs != 2 {
		t.Errorf("%d runs, want one for each of two times", s.Runs)
	}
	plain := bestLevel.conn(t, p.send)
	k := plain.driver.(*kernel)
	k.c.mode.Pace = true // as if the socket had the option; it has
	mustWrite(t, plain, ms[:1])
	bare := bestLevel.conn(t, listen(t, "udp4", "127.0.0.1:0"))
	bare.mode.Pace = true
	if n, err := bare.WriteBatch(ms[:1]); n != 0 || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a time without SO_TXTIME: %d, %v; the test proves nothing if that works", n, err)
	}
}

func TestMonotonic(t *testing.T) {
	var c clock
	now, before := time.Now(), sys.Monotonic()
	at := time.Duration(c.monotonic(now.Add(time.Second)))
	// It is as far from both clocks, which cannot be read at once: by no more than it takes to read them.
	slack := time.Since(now)
	if d := at - before; d < time.Second-slack || d > time.Second+slack {
		t.Errorf("a second from now is %v away, within %v", d, slack)
	}
}

// TestDrops floods a small buffer: what was sent is what came and what the kernel
// says it dropped.
func TestDrops(t *testing.T) {
	for _, l := range batchLevels {
		t.Run("level="+l.name, func(t *testing.T) {
			p := newPath(t, "v4")
			if err := p.recv.SetReadBuffer(8 << 10); err != nil {
				t.Fatal(err)
			}
			send, recv := neither.conn(t, p.send), l.conn(t, p.recv)
			const sent = 500
			var ms []Message
			for i := range sent {
				ms = append(ms, Message{Buf: payload(i, 1000), Addr: p.to})
			}
			mustWrite(t, send, ms)
			dropped := recv.Stats().Lost // fresh, with nothing read yet
			if dropped == 0 {
				t.Fatal("nothing was dropped")
			}
			collect(t, recv, sent-int(dropped))
			// One more, to carry the counter in a control message too.
			mustWrite(t, send, ms[:1])
			collect(t, recv, 1)
			if got := recv.drops.total.Load(); got != dropped {
				t.Errorf("SO_RXQ_OVFL says %d, SO_MEMINFO said %d", got, dropped)
			}
		})
	}
}

func TestDropsWrap(t *testing.T) {
	var d drops
	for _, reading := range []uint32{5, 1 << 31, 1<<32 - 2, 1<<32 - 5, 3, 3, 1} {
		d.observe(reading)
	}
	if got := d.total.Load(); got != 1<<32+3 {
		t.Errorf("%d, want %d", got, int64(1<<32+3))
	}
}

// TestICMPErrors sends to a port without a socket.
func TestICMPErrors(t *testing.T) {
	for _, kind := range []string{"v4", "v6", "connected-v4", "connected-v6", "dual-to-v4", "dual-to-v6"} {
		t.Run("path="+kind, func(t *testing.T) {
			p := newPath(t, kind)
			target := local(p.recv)
			p.recv.Close()
			c := bestLevel.with(func(c *Config) { c.Errors = true }).conn(t, p.send)
			es := make([]ICMPError, 4)
			if n, err := c.ReadErrors(es); n != 0 || err != nil {
				t.Fatalf("before anything was sent: %d, %v", n, err)
			}
			m := []Message{{Buf: []byte("anyone?"), Addr: p.to}}
			mustWrite(t, c, m)
			// The next call returns the error, once.
			p.send.SetReadDeadline(time.Now().Add(patience))
			if n, err := c.ReadBatch(MakeMessages(1)); n != 0 || !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("ReadBatch = %d, %v; want ECONNREFUSED", n, err)
			}
			n, err := c.ReadErrors(es)
			if n != 1 || err != nil {
				t.Fatalf("ReadErrors = %d, %v", n, err)
			}
			e := es[0]
			if e.Err != syscall.ECONNREFUSED || e.Addr != target || e.From != target.Addr() {
				t.Errorf("%+v; want ECONNREFUSED for %s from its host", e, target)
			}
			if !errors.Is(&e, syscall.ECONNREFUSED) || e.Error() == "" {
				t.Errorf("%v is not ECONNREFUSED", &e)
			}
			// And then the socket goes on.
			mustWrite(t, c, m)
		})
	}
	p := newPath(t, "v4")
	if n, err := bestLevel.conn(t, p.send).ReadErrors(nil); n != 0 || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("ReadErrors without Config.Errors = %d, %v", n, err)
	}
}

// failingOnce is a RawConn whose first reads fail as those of a socket do whose
// error queue has something in it while its send buffer is full.
type failingOnce struct {
	syscall.RawConn
	times int
}

func (s *failingOnce) Read(f func(uintptr) bool) error {
	if s.times--; s.times >= 0 {
		return errors.New("not pollable")
	}
	return s.RawConn.Read(f)
}

// TestLoneError: a socket that the netpoller gave up is read without it, its
// errors are kept for ReadErrors, and nothing is lost.
func TestLoneError(t *testing.T) {
	for _, arrived := range []bool{false, true} {
		p := newPath(t, "v4")
		c := bestLevel.with(func(c *Config) { c.Errors = true }).conn(t, p.recv)
		k := c.driver.(*kernel)
		k.raw = &failingOnce{k.raw, 3}
		to := netip.MustParseAddrPort("127.0.0.1:" + testnet.Port(t))
		mustWrite(t, c, []Message{{Buf: []byte("x"), Addr: to}})
		send := bestLevel.conn(t, p.send)
		if arrived {
			mustWrite(t, send, []Message{{Buf: []byte("here"), Addr: p.to}})
		} else {
			time.AfterFunc(20*time.Millisecond, func() { send.WriteBatch([]Message{{Buf: []byte("here"), Addr: p.to}}) })
		}
		ms := MakeMessages(1)
		n, err := c.ReadBatch(ms)
		if errors.Is(err, syscall.ECONNREFUSED) {
			n, err = c.ReadBatch(ms)
		}
		if n != 1 || err != nil || string(ms[0].Buf[:ms[0].N]) != "here" {
			t.Fatalf("ReadBatch = %d, %v", n, err)
		}
		es := make([]ICMPError, 2)
		if n, err := c.ReadErrors(es); n != 1 || err != nil || es[0].Addr != to {
			t.Errorf("ReadErrors = %d, %v: %v", n, err, es[0])
		}
	}
}

// TestLoneErrorUnix: a Unix socket has no error queue, and what is asked of one
// there is the next datagram.
func TestLoneErrorUnix(t *testing.T) {
	dir, err := os.MkdirTemp("", "dgram")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	server := listenUnix(t, filepath.Join(dir, "s"))
	server.SetReadDeadline(time.Now().Add(patience))
	c := bestLevel.conn(t, server)
	k := c.driver.(*kernel)
	k.raw = &failingOnce{k.raw, 1}
	client, err := net.DialUnix("unixgram", nil, server.LocalAddr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	texts := []string{"one", "two", "three"}
	for _, s := range texts {
		if _, err := client.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	for _, g := range collect(t, c, len(texts)) {
		if string(g.data) != texts[0] {
			t.Errorf("%q, want %q", g.data, texts[0])
		}
		texts = texts[1:]
	}
}

// TestLoneErrorIsTold: the error that a read without the netpoller takes from
// the socket is that read's.
func TestLoneErrorIsTold(t *testing.T) {
	p := newPath(t, "connected-v4")
	c := bestLevel.conn(t, p.send)
	k := c.driver.(*kernel)
	k.raw = &failingOnce{k.raw, 1}
	p.recv.Close()
	mustWrite(t, c, []Message{{Buf: []byte("anyone?")}})
	p.send.SetReadDeadline(time.Now().Add(patience))
	if n, err := c.ReadBatch(MakeMessages(1)); n != 0 || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("ReadBatch = %d, %v; want ECONNREFUSED", n, err)
	}
}

func TestKeptErrorsAreBounded(t *testing.T) {
	p := newPath(t, "v4")
	c := bestLevel.with(func(c *Config) { c.Errors = true }).conn(t, p.send)
	to := local(p.recv)
	p.recv.Close()
	sent := 0
	for range maxKept + 10 {
		// Loopback limits no ICMP errors (ip-sysctl, icmp_ratemask), and a write may report an earlier one.
		if n, _ := c.WriteBatch([]Message{{Buf: []byte("x"), Addr: to}}); n == 1 {
			sent++
		}
	}
	c.drainErrors()
	es := make([]ICMPError, 2*maxKept)
	n, err := c.ReadErrors(es)
	if lost := c.Stats().ErrorsDropped; err != nil || int64(n)+lost != int64(sent) || n > maxKept {
		t.Errorf("%d errors kept and %d lost of %d, %v", n, lost, sent, err)
	}
}

// TestControl: raw control messages come to who asks for them, cut where there
// is less room, and go out with those of the other fields.
func TestControl(t *testing.T) {
	p := newPath(t, "v4")
	send := bestLevel.conn(t, p.send)
	recv := bestLevel.with(func(c *Config) { c.ECN, c.Local = true, true }).conn(t, p.recv)
	mark := sys.AppendTOS(make([]byte, 0, sys.ControlSize), false, uint8(CE))
	mustWrite(t, send, []Message{
		{Buf: []byte("ab"), Addr: p.to, Control: mark},
		{Buf: []byte("cd"), Addr: p.to, Control: mark},
		{Buf: []byte("ef"), Addr: p.to},
	})
	if s := send.Stats(); s.Runs != 0 {
		t.Errorf("%d runs of messages with control bytes", s.Runs)
	}
	ms := MakeMessages(3)
	ms[0].Control = make([]byte, 5, 256)
	ms[1].Control = make([]byte, 0, 8)
	for got := 0; got < 3; {
		n, err := recv.ReadBatch(ms[got:])
		if err != nil {
			t.Fatal(err)
		}
		got += n
	}
	if c := sys.ParseControl(ms[0].Control); c.TOS != uint8(CE) || c.Local != p.to.Addr() || ms[0].ECN != CE || ms[0].Flags != 0 {
		t.Errorf("raw bytes say %+v, the message %+v", c, ms[0].ECN)
	}
	if len(ms[1].Control) != 0 || ms[1].Flags != ControlTruncated {
		t.Errorf("%d bytes in room for none, flags %b", len(ms[1].Control), ms[1].Flags)
	}
	if ms[2].Control != nil {
		t.Error("control bytes where there was no room for any")
	}
	long := Message{Buf: []byte("x"), Addr: p.to, Control: bytes.Repeat([]byte{0}, sys.ControlSize+1)}
	if n, err := send.WriteBatch([]Message{long}); n != 0 || !errors.Is(err, syscall.EMSGSIZE) {
		t.Errorf("too many control bytes: %d, %v", n, err)
	}
}

func TestBuffers(t *testing.T) {
	p := newPath(t, "v4")
	c := bestLevel.conn(t, p.send)
	for name, set := range map[string]func(int) (int, error){"read": c.SetReadBuffer, "write": c.SetWriteBuffer} {
		if got, err := set(100_000); err != nil || got != 100_000 {
			t.Errorf("%s buffer: granted %d of 100,000, %v", name, got, err)
		}
		// More than net.core.rmem_max allows without CAP_NET_ADMIN.
		if got, err := set(1 << 40 >> 12); err != nil || got <= 0 {
			t.Errorf("%s buffer: granted %d, %v", name, got, err)
		}
	}
	p.send.Close()
	if _, err := c.SetReadBuffer(1); err == nil {
		t.Error("a closed socket has a buffer")
	}
}

// TestZones sends over a link-local address of this machine to itself.
func TestZones(t *testing.T) {
	var z zones
	z.refresh()
	lo := z.attach(netip.MustParseAddr("fe80::1"), 1)
	if lo.String() != "fe80::1%lo" {
		t.Errorf("scope 1 is %s", lo)
	}
	for zone, want := range map[string]uint32{"lo": 1, "1": 1, "": 0} {
		if got, ok := z.scope(zone); !ok || got != want {
			t.Errorf("zone %q is scope %d, %v", zone, got, ok)
		}
	}
	if _, ok := z.scope("no-such-interface"); ok {
		t.Error("a zone without an interface has a scope")
	}
	for i := range 100 { // collisions in the small table
		a := netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 15: byte(i)})
		if got := z.attach(a, uint32(900+i%3)); got != a.WithZone(fmt.Sprint(900+i%3)) {
			t.Errorf("%s scope %d is %s", a, 900+i%3, got)
		}
	}
}

// TestNamesAreLookedUpAgain: an interface may be renamed, or its index given to
// another. What was looked up counts for a minute.
func TestNamesAreLookedUpAgain(t *testing.T) {
	link := netip.MustParseAddr("fe80::1")
	stale := func(age time.Duration) zones {
		z := zones{since: time.Now().Add(-age), names: map[uint32]string{1: "old"}, scopes: map[string]uint32{"lo": 99}}
		z.attach(link, 1) // and the small table knows it too
		return z
	}
	z := stale(nameAge / 2)
	z.refresh()
	if got := z.attach(link, 1).Zone(); got != "old" {
		t.Errorf("looked up again after half the time: %q", got)
	}
	z = stale(nameAge + time.Second)
	z.refresh()
	if got := z.attach(link, 1).Zone(); got != "lo" {
		t.Errorf("index 1 is still %q", got)
	}
	if got, ok := z.scope("lo"); got != 1 || !ok {
		t.Errorf("lo is still %d, %t", got, ok)
	}
}

// TestControlIsReset: where nothing came, nothing is left of what was there before.
func TestControlIsReset(t *testing.T) {
	eachLevel(t, func(t *testing.T, l level) {
		p := newPath(t, "v4")
		send, recv := l.conn(t, p.send), l.conn(t, p.recv)
		mustWrite(t, send, []Message{{Buf: []byte("x"), Addr: p.to}})
		ms := MakeMessages(1)
		buf := ms[0].Buf
		ms[0] = Message{Buf: buf, Control: bytes.Repeat([]byte{1}, 64), N: 9, Path: "/old", Segment: 5, Local: netip.IPv6Loopback(), Interface: 7, ECN: CE,
			Flags: Truncated | ControlTruncated, Time: time.Now()}
		if n, err := recv.ReadBatch(ms); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		m := ms[0]
		if len(m.Control) != 0 || cap(m.Control) != 64 {
			t.Errorf("%d control bytes of an earlier message, room for %d", len(m.Control), cap(m.Control))
		}
		m.Buf, m.Control = nil, nil
		if want := (Message{N: 1, Addr: p.from}); !reflect.DeepEqual(m, want) {
			t.Errorf("got %+v\nwant %+v", m, want)
		}
	})
}

// TestWhatWasCut: a cut datagram and cut control messages have different flags.
func TestWhatWasCut(t *testing.T) {
	for _, row := range []struct {
		size, room int
		want       Flags
	}{{10, 64, 0}, {100, 64, Truncated}, {10, 8, ControlTruncated}, {100, 8, Truncated | ControlTruncated}, {100, 0, Truncated}} {
		p := newPath(t, "v4")
		send, recv := neither.conn(t, p.send), neither.with(func(c *Config) { c.Local = true }).conn(t, p.recv)
		mustWrite(t, send, []Message{{Buf: payload(0, row.size), Addr: p.to}})
		ms := []Message{{Buf: make([]byte, 50), Control: make([]byte, 0, row.room)}}
		if n, err := recv.ReadBatch(ms); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if ms[0].Flags != row.want || ms[0].N != min(50, row.size) {
			t.Errorf("%d bytes, room for %d of control: N = %d, flags %b; want %b", row.size, row.room, ms[0].N, ms[0].Flags, row.want)
		}
	}
}

// TestInterface: a datagram leaves by the interface that it names, and a wrong
// one is an error, whatever else the message says.
func TestInterface(t *testing.T) {
	for _, kind := range []string{"v4", "v6", "dual-to-v4", "dual-to-v6"} {
		p := newPath(t, kind)
		send, recv := bestLevel.conn(t, p.send), bestLevel.conn(t, p.recv)
		for _, from := range []netip.Addr{{}, p.from.Addr()} {
			mustWrite(t, send, []Message{{Buf: []byte("x"), Addr: p.to, Local: from, Interface: 1}})
			collect(t, recv, 1)
			if n, err := send.WriteBatch([]Message{{Buf: []byte("x"), Addr: p.to, Local: from, Interface: 1 << 20}}); n != 0 || err == nil {
				t.Errorf("%s: by an interface that does not exist: %d, %v", kind, n, err)
			}
		}
	}
}
