package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/hold"
	"github.com/penstock/penstock/relay/stats"
)

// gramNamed is an upstream that answers each datagram with a name and the datagram.
func gramNamed(t testing.TB, name string) *Addr {
	c := packetSocket(t, "udp4")
	var wg sync.WaitGroup
	wg.Go(func() {
		b := make([]byte, 1<<16)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			c.WriteTo([]byte(name+string(b[:n])), from)
		}
	})
	t.Cleanup(func() { c.Close(); wg.Wait() })
	a := gramAddr(c.LocalAddr())
	return &a
}

// twoRigs are the engines of a process that drains and of the next one.
func twoRigs(t *testing.T, loops int) (r, s *rig) {
	r, s = newDatagramRig(t, Config{Loops: loops}), newDatagramRig(t, Config{Loops: loops})
	t.Cleanup(func() { r.e.Close() }) // what it has is no leak of the other one
	return r, s
}

// boundAs are addresses that listeners are bound to, and those that clients write to and from.
var boundAs = []struct{ bound, to, from string }{
	{"127.0.0.1", "127.0.0.1", "127.0.0.1:0"},
	{"0.0.0.0", "127.0.0.2", "127.0.0.1:0"},
	{"::1", "::1", "[::1]:0"},
	{"::", "::1", "[::1]:0"},
	{"::", "127.0.0.2", "127.0.0.1:0"},
}

// drainBegun has an engine drain, and returns when its ports receive nothing more.
func drainBegun(t *testing.T, r *rig) (end func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	drained := make(chan error, 1)
	go func() { drained <- r.e.Drain(ctx) }()
	r.portsAre(portClosed)
	end = sync.OnceValue(func() error { cancel(); return <-drained })
	t.Cleanup(func() { end() })
	return end
}

// portsAre waits until all UDP ports of an engine have a state, or are gone.
func (r *rig) portsAre(state portState) {
	r.t.Helper()
	testwait.Until(r.t, "the ports have closed", func() bool {
		var mu sync.Mutex
		wrong := false
		for _, d := range r.e.datagrams.all {
			d.loop.Ask(func() {
				mu.Lock()
				defer mu.Unlock()
				for _, p := range d.ports {
					wrong = wrong || p.family != sys.Unix && p.state != state
				}
			})
		}
		return !wrong
	})
}

// A UDP listener of an engine that drains keeps its clients, each of them, and takes nobody else: whoever is new
// reaches the next process, if there is one, and is told at once if there is none.
func TestDrainLeavesNewClientsToNextProcess(t *testing.T) {
	for _, row := range boundAs {
		for _, next := range []string{"before", "after", "none"} {
			t.Run(fmt.Sprintf("bound=%s/to=%s/next=%s", row.bound, row.to, next), func(t *testing.T) {
				r, s := twoRigs(t, 4)
				one, two := gramNamed(t, "one "), gramNamed(t, "two ")
				l := r.listenAt(Addr{Network: UDP, AddrPort: netip.AddrPortFrom(netip.MustParseAddr(row.bound), 0)}, ListenConfig{}, one)
				at := l.Addr()
				to := Addr{Network: UDP, AddrPort: netip.AddrPortFrom(netip.MustParseAddr(row.to), at.AddrPort.Port())}
				var old []net.PacketConn
				for range 20 {
					c := packetSocketAt(t, row.from)
					old = append(old, c)
					tellGram(t, c, to, "first")
					hearGram(t, c, "one first")
				}
				if next == "before" {
					s.listenAt(at, ListenConfig{}, two)
				}
				drainBegun(t, r)
				if next == "after" {
					s.listenAt(at, ListenConfig{}, two)
				}
				var fresh []net.PacketConn
				for i := range 40 {
					if next == "none" {
						wantNobody(t, row.from, to)
						continue
					}
					c := packetSocketAt(t, row.from)
					fresh = append(fresh, c)
					tellGram(t, c, to, fmt.Sprint(i))
					if from := hearGram(t, c, fmt.Sprint("two ", i)); gramAddr(from) != to {
						t.Errorf("the answer comes from %v", from)
					}
				}
				for i := range 5 {
					for _, c := range old {
						tellGram(t, c, to, fmt.Sprint(i))
						if from := hearGram(t, c, fmt.Sprint("one ", i)); gramAddr(from) != to {
							t.Errorf("the answer comes from %v", from)
						}
					}
				}
				if d := r.dgramStats(); d.Begun != 20 || d.AnswersOnly != 0 {
					t.Errorf("%+v", d)
				}
				// While the old flows end, the new clients stay with their loops.
				var stays [4]bool
				r.e.onLoops(func(f *Flow) {
					if i := f.owner.base().loop.Index; stays[i] {
						f.owner.kill(f, CauseKilled)
					} else {
						stays[i] = true
					}
				})
				for i, c := range fresh {
					tellGram(t, c, to, "again")
					hearGram(t, c, "two again")
					if n := s.dgramStats().Begun; n != 40 {
						t.Fatalf("%d flows of 40 clients, after %d", n, i)
					}
				}
			})
		}
	}
}

// wantNobody sends a datagram and wants to be told that nobody is there.
func wantNobody(t *testing.T, from string, to Addr) {
	t.Helper()
	at, err := net.ResolveUDPAddr("udp", from)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.DialUDP("udp", at, gramNet(to).(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Write([]byte("is anybody there?"))
	c.SetReadDeadline(time.Now().Add(patience))
	if n, err := c.Read(make([]byte, 100)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("%d bytes, %v; want to be refused", n, err)
	}
}

// While an engine begins to drain under load, each datagram reaches somebody: those of its clients, and those of
// new ones.
func TestDrainLosesNoDatagram(t *testing.T) {
	for _, row := range boundAs {
		t.Run(fmt.Sprintf("bound=%s/to=%s", row.bound, row.to), func(t *testing.T) {
			r, s := twoRigs(t, 4)
			up := gramEcho(t, "udp4")
			l := r.listenAt(Addr{Network: UDP, AddrPort: netip.AddrPortFrom(netip.MustParseAddr(row.bound), 0)}, ListenConfig{}, up)
			at := l.Addr()
			to := Addr{Network: UDP, AddrPort: netip.AddrPortFrom(netip.MustParseAddr(row.to), at.AddrPort.Port())}
			stop := make(chan struct{})
			var wg sync.WaitGroup
			var heard atomic.Int64
			ask := func(c net.PacketConn, text string) bool {
				b := make([]byte, 100)
				c.WriteTo([]byte(text), gramNet(to))
				c.SetReadDeadline(time.Now().Add(patience))
				n, _, err := c.ReadFrom(b)
				if err != nil || string(b[:n]) != text {
					t.Errorf("heard %q, %v, want %q", b[:n], err, text)
					return false
				}
				heard.Add(1)
				return true
			}
			until := func(ask func(i int) bool) {
				wg.Go(func() {
					for i := 0; ; i++ {
						select {
						case <-stop:
							return
						default:
							if !ask(i) {
								return
							}
						}
					}
				})
			}
			for range 8 {
				for range 8 { // and some that are silent
					askGram(t, packetSocketAt(t, row.from), to, "silent")
				}
				c := packetSocketAt(t, row.from)
				askGram(t, c, to, "first")
				until(func(i int) bool { return ask(c, fmt.Sprint(i)) })
			}
			s.listenAt(at, ListenConfig{}, up)
			until(func(i int) bool {
				c, err := net.ListenPacket("udp", row.from)
				if err != nil {
					t.Error(err)
					return false
				}
				defer c.Close()
				return ask(c, fmt.Sprint("new ", i))
			})
			more := func() {
				from := heard.Load()
				testwait.Until(t, "answers", func() bool { return heard.Load() >= from+40 || t.Failed() })
			}
			more()
			drainBegun(t, r)
			more()
			close(stop)
			wg.Wait()
		})
	}
}

// Where there are not sockets for all flows, those of verified clients get them. The others go on with answers,
// and what their clients send reaches the next process.
func TestDrainWithFewSockets(t *testing.T) {
	up := packetSocket(t, "udp4")
	to := gramAddr(up.LocalAddr())
	for _, what := range []string{"bound", "descriptors"} {
		t.Run(what, func(t *testing.T) {
			r, s := twoRigs(t, 1)
			l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, &to)
			one, other := packetSocket(t, "udp4"), packetSocket(t, "udp4")
			from := map[net.PacketConn]Addr{}
			for _, c := range []net.PacketConn{other, one} {
				tellGram(t, c, l.Addr(), "question")
				from[c] = gramAddr(hearGram(t, up, "question"))
				tellGram(t, up, from[c], "answer")
				hearGram(t, c, "answer")
			}
			tellGram(t, one, l.Addr(), "verified")
			hearGram(t, up, "verified")
			switch what {
			case "bound":
				r.e.datagrams.ownMost = 1
			case "descriptors":
				r.e.each(func(s *streams) { s.descriptors.giveAhead() })
				b := &r.e.descriptors
				b.mu.Lock() // nobody measures
				taken := b.free.Load() - 1
				b.free.Add(-taken)
				t.Cleanup(func() {
					b.free.Add(taken)
					b.mu.Unlock()
				})
			}
			s.listenAt(l.Addr(), ListenConfig{}, gramNamed(t, "two "))
			drainBegun(t, r)
			tellGram(t, one, l.Addr(), "goes on")
			if again := gramAddr(hearGram(t, up, "goes on")); again != from[one] {
				t.Errorf("from %v, was %v", again, from[one])
			}
			tellGram(t, up, from[other], "late")
			hearGram(t, other, "late")
			tellGram(t, other, l.Addr(), "next")
			hearGram(t, other, "two next")
			if n := r.dgramStats().AnswersOnly; n != 1 {
				t.Errorf("%d flows go on with answers only, want 1", n)
			}
		})
	}
}

// Where no flow can have a socket of its own, the port goes on as it is, and takes new clients, until Drain returns.
func TestDrainWithoutSockets(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, gramNamed(t, "one "))
	const flows = 3
	var clients []net.PacketConn
	ask := func(c net.PacketConn, text string) {
		t.Helper()
		tellGram(t, c, l.Addr(), text)
		hearGram(t, c, "one "+text)
	}
	for range flows {
		c := packetSocket(t, "udp4")
		ask(c, "first")
		clients = append(clients, c)
	}
	before := r.k.Count(testkernel.Connect)
	r.k.Fail(testkernel.Connect, sys.EACCES, 2*flows) // of either family
	ctx, cancel := context.WithCancel(t.Context())
	drained := make(chan error, 1)
	go func() { drained <- r.e.Drain(ctx) }()
	testwait.Until(t, "the flows are refused sockets", func() bool { return r.k.Count(testkernel.Connect) == before+2*flows })
	r.portsAre(portOpen)
	for _, c := range append(clients, packetSocket(t, "udp4")) {
		ask(c, "second")
	}
	cancel()
	if err := <-drained; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for range flows + 1 {
		r.expect(CauseDrained)
	}
	tellGram(t, clients[0], l.Addr(), "too late")
	testwait.Until(t, "it is dropped", func() bool { return r.dgramStats().Dropped.Get(stats.DropDraining) == 1 })
}

// A listener that is closed where no flow can have a socket of its own ends its flows.
func TestCloseWithoutSockets(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, &Addr{Network: Echo})
	askGram(t, packetSocket(t, "udp4"), l.Addr(), "hello")
	r.k.Fail(testkernel.Connect, sys.EACCES, 2)
	l.Close()
	r.expect(CauseClosed)
	wantNobody(t, "127.0.0.1:0", l.Addr())
}

// A flow whose listener is closed ends like others, and with the last one the port is gone.
func TestFlowsOutliveListener(t *testing.T) {
	r := newDatagramRig(t, Config{})
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Datagram: DatagramConfig{Replies: 2}}, gramEcho(t, "udp4"))
	var clients []net.PacketConn
	for range 8 {
		c := packetSocket(t, "udp4")
		askGram(t, c, l.Addr(), "hello")
		clients = append(clients, c)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range clients {
		askGram(t, c, l.Addr(), "it goes on")
	}
	r.e.endFlows(CauseKilled)
	for range clients {
		r.expect(CauseKilled)
	}
	testwait.Until(t, "the ports are gone", func() bool {
		left := 0
		for _, d := range r.e.datagrams.all {
			d.loop.Ask(func() { left += len(d.ports) + d.leaving })
		}
		return left == 0
	})
	wantNobody(t, "127.0.0.1:0", l.Addr())
	if n := r.e.datagrams.own.Load(); n != 0 {
		t.Errorf("%d flows have sockets of their own", n)
	}
}

// Runs of datagrams pass through the socket of a flow, and single ones of up to the longest there are.
func TestRunsThroughOwnSocket(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	s, c := packetSocket(t, "udp4"), packetSocket(t, "udp4")
	up := gramAddr(s.LocalAddr())
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, &up)
	tellGram(t, c, l.Addr(), "first")
	back := gramAddr(hearGram(t, s, "first"))
	drainBegun(t, r)
	for range 5 {
		texts := numbered(200)
		sendRun(t, c, l.Addr().AddrPort, texts[:60]...)
		sendRun(t, s, back.AddrPort, texts[:60]...)
		for _, text := range texts[:60] {
			hearGram(t, s, text)
			hearGram(t, c, text)
		}
		for _, text := range texts {
			tellGram(t, c, l.Addr(), text)
		}
		for _, text := range texts {
			hearGram(t, s, text)
		}
	}
	long := string(make([]byte, 65507))
	tellGram(t, c, l.Addr(), long)
	hearGram(t, s, long)
}

// A datagram that reaches another loop while a listener closes is relayed by the loop that has its flow. Whoever is
// known to no loop is new.
func TestStrayDatagram(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 3})
	r.e.datagrams.ownMost = 0
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, gramEcho(t, "udp4"))
	var known, fresh []net.PacketConn
	for range 64 {
		c := packetSocket(t, "udp4")
		askGram(t, c, l.Addr(), "first")
		known = append(known, c)
	}
	for range 32 {
		fresh = append(fresh, packetSocket(t, "udp4"))
	}
	// The first two ports receive nothing more, and all goes to the third.
	last := l.ports[2].(*datagramPort)
	last.datagrams.loop.Ask(func() { last.state, last.given = portGiving, 1; last.datagrams.leaving++ })
	for _, p := range l.ports[:2] {
		p := p.(*datagramPort)
		p.datagrams.loop.Ask(func() {
			p.state, p.given, p.stopped = portGiving, 1, new(sync.WaitGroup)
			p.stopped.Add(1)
			p.datagrams.leaving++
			p.datagrams.closePort(p)
		})
	}
	for i := range 3 {
		for _, c := range known {
			askGram(t, c, l.Addr(), fmt.Sprint(i))
		}
		for _, c := range fresh {
			askGram(t, c, l.Addr(), fmt.Sprint(i))
		}
	}
	if n := r.dgramStats().Begun; n != int64(len(known)+len(fresh)) {
		t.Errorf("%d flows of %d clients", n, len(known)+len(fresh))
	}
	if n := r.e.datagrams.strays.Load(); n != 0 {
		t.Errorf("%d strays", n)
	}
}

// A process that dies while it drains leaves its flows to the next one, whose sockets receive.
func TestKilledWhileDraining(t *testing.T) {
	for _, bound := range []string{"127.0.0.1", "0.0.0.0"} {
		t.Run(bound, func(t *testing.T) {
			k := newKeptTable(t)
			up := packetSocket(t, "udp4")
			o := keptOrder{Loops: 2, Listen: []string{"udp://" + bound + ":" + testnet.Port(t)}, Upstream: gramAddr(up.LocalAddr()).String()}
			p := k.start(o)
			o.Listen = p.urls()
			to := Addr{Network: UDP, AddrPort: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), p.addrs[0].AddrPort.Port())}
			from := make(map[net.PacketConn]Addr)
			for range 8 {
				c := packetSocketAt(t, "127.0.0.1:0")
				tellGram(t, c, to, "hello")
				from[c] = gramAddr(hearGram(t, up, "hello"))
			}
			k.settled(len(from))
			ask := func(text string) {
				t.Helper()
				for c, want := range from {
					tellGram(t, c, to, text)
					if got := gramAddr(hearGram(t, up, text)); got != want {
						t.Errorf("from %v, was %v", got, want)
					}
					tellGram(t, up, want, "answer")
					hearGram(t, c, "answer")
				}
			}
			p.ask("drain")
			k.expect(holdListener, 0)
			ask("it goes on")
			wantNobody(t, "127.0.0.1:0", to)
			p.kill()
			p = k.start(o)
			if r := p.Restored; r.Flows != len(from) || r.TotalLost() != 0 {
				t.Errorf("%+v, want %d flows", r, len(from))
			}
			ask("and on")
			c := packetSocketAt(t, "127.0.0.1:0")
			tellGram(t, c, to, "new")
			hearGram(t, up, "new")
		})
	}
}

// A socket that receives nothing more, which a process that died has left behind, is not taken for one that does.
func TestClosedSocketIsNotTakenOver(t *testing.T) {
	k := newKeptTable(t)
	o := keptOrder{Loops: 2, Listen: []string{keptPlace(t, "udp4")}, Upstream: "echo:"}
	p := k.start(o)
	o.Listen = p.urls()
	k.expect(holdListener, 2)
	p.stop() // it has not said yet that they are not to be held
	for _, h := range k.heldOf(holdListener) {
		if e := sys.ReceiveNothing(sys.Linux{}, h.FDs[0]); e != 0 {
			t.Fatal(e)
		}
	}
	p.kill()
	p = k.start(o)
	for range 8 {
		askGram(t, packetSocket(t, "udp4"), p.addrs[0], "hello")
	}
}

// Flows whose sockets are gone, such as those of a listener that was removed and added again, go on by other ones: what
// their clients send to another loop is passed on to theirs.
func TestFlowsOfSocketsThatAreGone(t *testing.T) {
	k := newKeptTable(t)
	up := gramNamed(t, "")
	o := keptOrder{Loops: 2, Listen: []string{keptPlace(t, "udp4")}, Upstream: up.String()}
	p := k.start(o)
	o.Listen = p.urls()
	var clients []net.PacketConn
	for range 32 {
		c := packetSocket(t, "udp4")
		askGram(t, c, p.addrs[0], "first")
		clients = append(clients, c)
	}
	k.expect(holdListener, 2)
	k.expect(holdFlow, len(clients))
	p.kill()
	k.exchange(holdListener)
	p = k.start(o)
	for i := range 3 {
		for _, c := range clients {
			askGram(t, c, p.addrs[0], fmt.Sprint(i))
		}
	}
	s := p.ask("stats").Stats
	if n := s.Total().Datagrams; n.Flows != int64(len(clients)) {
		t.Errorf("%d flows of %d clients", n.Flows, len(clients))
	}
}

// Of two flows of one client, one of a listener that was removed and one of the listener that has its address now, the
// second goes on in the next process, whichever comes first in the ledger, and on whichever loops they are; the first ends, and
// the reason is its listener.
func TestTwoFlowsOfOneClient(t *testing.T) {
	for _, loops := range []int{1, 3} {
		t.Run(fmt.Sprint("loops=", loops), func(t *testing.T) { testTwoFlowsOfOneClient(t, loops) })
	}
}

func testTwoFlowsOfOneClient(t *testing.T, loops int) {
	k := newKeptTable(t)
	up := packetSocket(t, "udp4")
	o := keptOrder{Loops: loops, NoOwn: true, Listen: []string{keptPlace(t, "udp4")}, Upstream: gramAddr(up.LocalAddr()).String(), Replies: 1, Rest: time.Millisecond}
	p := k.start(o)
	o.Listen = p.urls()
	to := p.addrs[0]
	const n = 16
	// Flows that have ended leave their places in the ledger to others, so that second flows come before first ones.
	var ended, backs []Addr
	for range n / 2 {
		c := packetSocket(t, "udp4")
		tellGram(t, c, to, "short")
		ended = append(ended, gramAddr(hearGram(t, up, "short")))
	}
	var clients []net.PacketConn
	for range n {
		c := packetSocket(t, "udp4")
		tellGram(t, c, to, "first")
		hearGram(t, up, "first")
		clients = append(clients, c)
	}
	k.expect(holdFlow, n/2+n)
	for _, back := range ended {
		tellGram(t, up, back, "answer")
	}
	k.expect(holdFlow, n)
	p.ask("listen again")
	for _, c := range clients {
		tellGram(t, c, to, "second")
		backs = append(backs, gramAddr(hearGram(t, up, "second")))
	}
	k.expect(holdFlow, 2*n)
	k.expect(holdListener, loops)
	p.ask("turn of each loop") // their records say that they are held
	p.kill()
	p = k.start(o)
	if r := p.Restored; r.Flows != n || r.TotalLost() != n || r.Lost.Get(hold.LossListener) != n {
		t.Errorf("%+v", r)
	}
	k.expect(holdFlow, n)
	for i, c := range clients {
		tellGram(t, c, to, "third")
		if back := gramAddr(hearGram(t, up, "third")); back != backs[i] {
			t.Errorf("the upstream hears client %d from %v, and heard it from %v", i, back, backs[i])
		}
	}
	for range n {
		select {
		case r := <-p.records:
			if r.Cause != CauseCrashed || r.Up.Datagrams != 1 {
				t.Errorf("%+v", r)
			}
		case <-time.After(patience):
			t.Fatal("a flow that was lost has no record")
		}
	}
}
