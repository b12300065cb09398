package relay

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// refusing is a TCP address that nobody listens on.
func refusing(t *testing.T) *Addr {
	t.Helper()
	return &Addr{Network: TCP, AddrPort: netip.MustParseAddrPort("127.0.0.1:" + testnet.Port(t))}
}

// fullQueue is an address whose accept queue is full, so that a connection is
// neither made nor refused. Emptying accepts what is in it, and from then on
// closes what comes.
func fullQueue(t *testing.T, network string) (addr *Addr, accept func() net.Conn) {
	t.Helper()
	var sa sys.Sockaddr
	a := Addr{Network: TCP, AddrPort: loopback}
	if network == "unix" {
		a = Addr{Network: Unix, Path: socketPath(t)}
		t.Cleanup(func() { os.Remove(a.Path) })
	}
	if err := sockaddr(&sa, a); err != nil {
		t.Fatal(err)
	}
	fd, err := sys.Listen(sys.Linux{}, &sa, false, false, 1, func(int) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	addr = fromNet(l.Addr())
	// A backlog of 1 holds two, as listen(2)'s comparison goes.
	for range 2 {
		testnet.Dial(t, l.Addr())
	}
	return addr, (&server{l, addr}).acceptor(t)
}

func (s *server) acceptor(t *testing.T) func() net.Conn {
	return func() net.Conn { t.Helper(); return s.accept(t) }
}

// attempts is a Connected hook that keeps what it is told.
type attempts struct {
	to   []Addr
	errs []error
}

func (a *attempts) connected(_ *Flow, to *Addr, took time.Duration, err error) {
	a.to, a.errs = append(a.to, *to), append(a.errs, err)
}

// A refused upstream costs the client nothing but time.
func TestNextUpstream(t *testing.T) {
	for _, client := range []string{"tcp4", "unix"} {
		t.Run("client="+client, func(t *testing.T) {
			r := newRig(t, Config{Loops: 1})
			s := newServer(t, "unix")
			bad := []*Addr{refusing(t), {Network: Unix, Path: filepath.Join(t.TempDir(), "nobody")}, {Network: Unix, Path: "@penstock-nobody"}}
			var tried attempts
			cfg := ListenConfig{Hooks: Hooks{Connected: tried.connected}}
			a := dial(t, r.listen(client, cfg, append(bad, s.addr)...))
			a.Write([]byte("sent before there was an upstream")) // and kept meanwhile
			b := s.accept(t)
			hear(t, b, "sent before there was an upstream")
			a.Close()
			b.Close()
			rec := r.expect(CauseEnd)
			if rec.Attempts != 4 || rec.Upstream != *s.addr || rec.Connect <= 0 || rec.Connect > rec.Duration {
				t.Errorf("%+v", rec)
			}
			want := []error{syscall.ECONNREFUSED, syscall.ENOENT, syscall.ECONNREFUSED, nil}
			if len(tried.errs) != 4 {
				t.Fatalf("attempts: %v", tried.errs)
			}
			for i, err := range tried.errs {
				if !errors.Is(err, want[i]) {
					t.Errorf("attempt %d on %v: %v", i, tried.to[i], err)
				}
			}
			s2 := r.e.Stats()
			if sum := s2.Total(); sum.ConnectErrors != 3 || sum.Connects != 1 {
				t.Errorf("%d connects, %d failed", sum.Connects, sum.ConnectErrors)
			}
		})
	}
}

func TestAllRefused(t *testing.T) {
	r := newRig(t, Config{})
	bad := refusing(t)
	wantTurnedAway(t, r.listen("tcp4", ListenConfig{}, bad, bad))
	rec := r.expect(CauseNoUpstream)
	if !errors.Is(rec.Err, syscall.ECONNREFUSED) || rec.Attempts != 2 || rec.Upstream != *bad || rec.Connect != 0 {
		t.Errorf("%+v", rec)
	}
}

func TestNoUpstream(t *testing.T) {
	r := newRig(t, Config{})
	wantTurnedAway(t, r.listen("tcp4", ListenConfig{}))
	if rec := r.expect(CauseNoUpstream); rec.Err != nil || rec.Attempts != 0 || rec.Upstream != (Addr{}) {
		t.Errorf("%+v", rec)
	}
}

// An attempt to connect has a deadline, and the next upstream its own.
func TestConnectTimeout(t *testing.T) {
	for _, network := range []string{"tcp4", "unix"} {
		t.Run("upstream="+network, func(t *testing.T) {
			r := newRig(t, Config{})
			hole, _ := fullQueue(t, network)
			cfg := ListenConfig{Timeouts: Timeouts{Connect: 150 * time.Millisecond}}
			a := dial(t, r.listen("tcp4", cfg, hole, hole))
			wantReset(t, a)
			rec := r.expect(CauseConnectTimeout)
			if rec.Err != os.ErrDeadlineExceeded || rec.Attempts != 2 || rec.Duration < 300*time.Millisecond || rec.Duration > patience {
				t.Errorf("%+v", rec)
			}
			good := echoServer(t, "tcp4")
			b := dial(t, r.listen("tcp4", cfg, hole, good))
			say(t, b, b, "hello")
			b.Close()
			if rec := r.expect(CauseEnd); rec.Attempts != 2 || rec.Upstream != *good {
				t.Errorf("%+v", rec)
			}
		})
	}
}

// A full accept queue is waited for, as long as the deadline allows.
func TestFullQueueDrains(t *testing.T) {
	r := newRig(t, Config{})
	addr, accept := fullQueue(t, "unix")
	a := dial(t, r.listen("tcp4", ListenConfig{Timeouts: Timeouts{Connect: patience}}, addr))
	testwait.Until(t, "a flow", func() bool { s := r.e.Stats(); return s.Flows() == 1 })
	r.e.Stats() // the turn has ended in which it has found the queue full
	const wait = 50 * time.Millisecond
	r.pass(wait)
	accept()
	accept()
	b := accept()
	say(t, a, b, "at last")
	a.Close()
	b.Close()
	if rec := r.expect(CauseEnd); rec.Attempts != 1 || rec.Connect < wait {
		t.Errorf("%+v", rec)
	}
}

// A client that goes away while its upstream is being connected is let go.
func TestClientGoesWhileConnecting(t *testing.T) {
	r := newRig(t, Config{})
	hole, _ := fullQueue(t, "tcp4")
	a := dial(t, r.listen("tcp4", ListenConfig{Timeouts: Timeouts{Connect: patience}}, hole))
	testwait.Until(t, "a flow", func() bool { s := r.e.Stats(); return s.Flows() == 1 })
	reset(t, a)
	if rec := r.expect(CauseClientGone); rec.Attempts != 1 || rec.Connect != 0 {
		t.Errorf("%+v", rec)
	}
	// One that has only ended its half may still want the answer.
	addr, accept := fullQueue(t, "unix")
	b := dial(t, r.listen("tcp4", ListenConfig{Timeouts: Timeouts{Connect: patience}}, addr))
	b.Write([]byte("question"))
	closeWrite(t, b)
	testwait.Until(t, "a flow", func() bool { s := r.e.Stats(); return s.Flows() == 1 })
	r.pass(tick)
	accept()
	accept()
	up := accept()
	hear(t, up, "question")
	wantEnd(t, up)
	say(t, up, b, "answer")
	up.Close()
	wantEnd(t, b)
	r.expect(CauseEnd)
}

// Where no descriptor becomes free for the upstream the flow ends and says so; the
// engine goes on.
func TestNoDescriptorForUpstream(t *testing.T) {
	for _, e := range []sys.Errno{sys.EMFILE, sys.ENFILE} {
		r := newRig(t, Config{})
		up := echoServer(t, "tcp4")
		l := r.listen("tcp4", ListenConfig{}, up)
		r.k.Fail(testkernel.Socket, e, -1)
		wantTurnedAway(t, l)
		if rec := r.expect(CauseNoDescriptors); rec.Err != e || rec.Attempts != 1 {
			t.Errorf("%+v", rec)
		}
		r.k.Heal()
		b := dial(t, l)
		say(t, b, b, "hello")
		b.Close()
		r.expect(CauseEnd)
	}
}

// What Connect refuses by itself goes to the next upstream too.
func TestConnectFaults(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	up := echoServer(t, "tcp4")
	l := r.listen("tcp4", ListenConfig{}, up, up, up)
	r.k.Fail(testkernel.Connect, sys.EADDRNOTAVAIL, 1)
	r.k.Fail(testkernel.Connect, sys.EPERM, 1)
	a := dial(t, l)
	say(t, a, a, "hello")
	a.Close()
	if rec := r.expect(CauseEnd); rec.Attempts != 3 {
		t.Errorf("%+v", rec)
	}
}

// A hook that always answers with the same upstream does not hold its loop, nor
// keep a flow for ever: attempts are few, and later ones apart.
func TestSameUpstreamForEver(t *testing.T) {
	for name, to := range map[string]*Addr{
		"at once":       {Network: Unix, Path: "/nowhere/at/all"},
		"asynchronous":  refusing(t),
		"not reachable": {Network: TCP, AddrPort: netip.MustParseAddrPort("255.255.255.255:1")},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{Loops: 1})
			r.k.StopClock()
			var asked atomic.Int32
			hooks := Hooks{Upstream: func(*Flow, int) *Addr { asked.Add(1); return to }}
			l := r.listen("tcp4", ListenConfig{Hooks: hooks})
			other := dial(t, r.listen("unix", ListenConfig{}, &Addr{Network: Echo}))
			say(t, other, other, "hello")
			c := dial(t, l)
			testwait.Until(t, "attempts pause", func() bool {
				say(t, other, other, "flows go on")
				f := list(r.e)
				return asked.Load() >= attemptsAtOnce && len(f) == 2
			})
			if n := asked.Load(); n != attemptsAtOnce {
				t.Errorf("%d attempts at once", n)
			}
			r.pass(retryMost)
			if n := asked.Load(); n == attemptsAtOnce || n > 2*attemptsAtOnce {
				t.Errorf("%d attempts within %v", n, retryMost)
			}
			c.Close()
			r.expect(CauseClientGone)
			n := asked.Load()
			ticks(r, 3)
			if more := asked.Load() - n; more > 0 {
				t.Errorf("%d attempts for a client that is gone", more)
			}
			other.Close()
			r.expect(CauseEnd)
		})
	}
}

// What can never be connected to is a mistake of the hook, and no upstream that is down: the flow ends at once and says so.
func TestUpstreamMistaken(t *testing.T) {
	for want, to := range map[string]Addr{
		"the zero Addr":           {},
		"tcp://,":                 {Network: TCP},
		"udp://127.0.0.1:0":       {Network: UDP, AddrPort: loopback},
		"unixgram:///nowhere":     {Network: Unixgram, Path: "/nowhere"},
		"unix:,":                  {Network: Unix},
		"unix:@,":                 {Network: Unix, Path: "@"},
		"is not the address of a": {Network: UDP},
		"108 bytes":               {Network: Unix, Path: strings.Repeat("x", 108)},
	} {
		t.Run(want, func(t *testing.T) {
			r := newRig(t, Config{})
			asked := 0
			wantTurnedAway(t, r.listen("tcp4", ListenConfig{Hooks: Hooks{
				Upstream:  func(*Flow, int) *Addr { asked++; return &to },
				Connected: func(*Flow, *Addr, time.Duration, error) { t.Error("an attempt") },
			}}))
			rec := r.expect(CauseNoUpstream)
			if rec.Err == nil || !strings.Contains(rec.Err.Error(), want) || rec.Attempts != 0 || asked != 1 {
				t.Errorf("asked %d times, %d attempts, %v", asked, rec.Attempts, rec.Err)
			}
		})
	}
}

// An attempt that failed leaves nothing behind: the next socket is as good as a
// first one, and a short read of it is not followed by a second look.
func TestFailedAttemptIsForgotten(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	s := newServer(t, "tcp4")
	c := dial(t, r.listen("tcp4", ListenConfig{}, refusing(t), s.addr))
	say(t, c, s.accept(t), "hello")
	exact := false
	r.e.onLoops(func(f *Flow) { exact = streamOf(f).half[down].Exact })
	if !exact {
		t.Error("the upstream is taken for one that has hung up")
	}
}

// A client that had ended its side before the attempts pause is not waited for.
func TestNoPauseForClientThatEnded(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	queued := make(chan FlowRef, 1)
	c := dial(t, r.listen("tcp4", ListenConfig{Hooks: Hooks{Upstream: func(f *Flow, _ int) *Addr {
		if f.Value() == nil {
			f.SetValue(true)
			queued <- f.Ref()
			f.Queue()
			return nil
		}
		return &Addr{Network: Unix, Path: "/nowhere/at/all"}
	}}}))
	ref := <-queued
	closeWrite(t, c)
	testwait.Until(t, "the end is noticed", func() (ended bool) {
		r.e.onLoops(func(f *Flow) { ended = streamOf(f).ended })
		return ended
	})
	ref.Resume()
	if rec := r.expect(CauseClientGone); rec.Attempts != attemptsAtOnce {
		t.Errorf("%+v", rec)
	}
}

// A Unix client that has closed its socket while its upstream was being connected
// has no use for the next one.
func TestNoNextUpstreamForClientThatHungUp(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	hole, _ := fullQueue(t, "unix")
	c := dial(t, r.listen("unix", ListenConfig{Timeouts: Timeouts{Connect: patience}}, hole, &Addr{Network: Echo}))
	testwait.Until(t, "an attempt is under way", func() bool { f := list(r.e); return len(f) == 1 && f[0].Attempts == 1 })
	c.Close()
	testwait.Until(t, "the end is noticed", func() (hungUp bool) {
		r.e.onLoops(func(f *Flow) { hungUp = streamOf(f).hungUp })
		return hungUp
	})
	r.e.onLoops(func(f *Flow) { f.SetTimeouts(Timeouts{Connect: time.Millisecond}) })
	if rec := r.expect(CauseClientGone); rec.Attempts != 1 {
		t.Errorf("%+v", rec)
	}
}

// The pauses grow, and the attempts have an end.
func TestAttemptsEnd(t *testing.T) {
	var f streamFlow
	last := time.Duration(0)
	for f.attempts = attemptsAtOnce; f.attempts < attemptsMost; f.attempts++ {
		at := f.retryAt()
		if at < last || at <= 0 || at > retryMost {
			t.Errorf("a pause of %v after %d attempts", at, f.attempts)
		}
		last = at
	}
	r := newRig(t, Config{Loops: 1})
	c := dial(t, r.listen("tcp4", ListenConfig{Hooks: Hooks{Upstream: func(f *Flow, _ int) *Addr {
		if f.attempts == attemptsAtOnce-1 { // all pauses would take long: this test waits for the last one
			f.attempts = attemptsMost - 2
		}
		return &Addr{Network: Unix, Path: "/nowhere/at/all"}
	}}}))
	rec := r.expect(CauseNoUpstream)
	if rec.Attempts != attemptsMost || rec.Err == nil {
		t.Errorf("%+v", rec)
	}
	wantReset(t, c)
}

// The same of datagram flows, whose attempts wait for nobody.
func TestSameDatagramUpstreamForEver(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	var asked atomic.Int32
	l, err := r.e.Listen(Addr{Network: UDP, AddrPort: loopback}, ListenConfig{Hooks: Hooks{
		Upstream: func(*Flow, int) *Addr { asked.Add(1); return &Addr{Network: TCP, AddrPort: loopback} },
		Done:     r.done,
	}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(l.Addr().AddrPort))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Write(nil)
	if rec := r.expect(CauseNoUpstream); rec.Attempts != attemptsAtOnce || asked.Load() != attemptsAtOnce {
		t.Errorf("%d attempts, %+v", asked.Load(), rec)
	}
}
