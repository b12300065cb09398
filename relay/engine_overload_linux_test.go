package relay

import (
	"cmp"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/overload"
	"github.com/penstock/penstock/relay/stats"
)

// stall makes a flow through l whose upstream does not read, and fills it. The socket towards the
// upstream takes little, so that the flow holds something in user space or in a pipe.
func (r *rig) stall(t *testing.T, l *Listener, s *server) (a, b net.Conn) {
	t.Helper()
	a = dial(t, l)
	b = s.accept(t)
	say(t, a, b, "hello")
	r.fill(t, a)
	return a, b
}

// overloadListen makes a listener whose sockets are small, and the server behind it.
func (r *rig) overloadListen(t *testing.T) (*Listener, *server) {
	t.Helper()
	s := newServer(t, "tcp4")
	return r.listen("tcp4", ListenConfig{Socket: SocketOptions{RecvBuffer: 128 << 10, SendBuffer: 16 << 10}}, s.addr), s
}

// blocked counts the flows that hold bytes.
func (r *rig) blocked() (n int) {
	var mu sync.Mutex
	r.e.onLoops(func(f *Flow) {
		mu.Lock()
		defer mu.Unlock()
		s := f.owner.(*streams)
		if blocked, _ := s.blocked(s.of(f)); blocked {
			n++
		}
	})
	return n
}

// Of stalled flows, those end that hold most. Flows that hold nothing, and one that is busy, go on.
func TestShedStalled(t *testing.T) {
	r := newRig(t, Config{MaxPipes: -1})
	l, s := r.overloadListen(t)
	ping, pong := dial(t, l), net.Conn(nil)
	pong = s.accept(t)
	idle := dial(t, l)
	idleUp := s.accept(t)
	say(t, idle, idleUp, "hello")
	const stalled = 6
	for range stalled {
		r.stall(t, l, s)
	}
	testwait.Until(t, "all of them hold bytes", func() bool { return r.blocked() == stalled })
	big := newServer(t, "tcp4")
	a, _ := r.stall(t, r.listen("tcp4", ListenConfig{Socket: SocketOptions{RecvBuffer: 2 << 20, SendBuffer: 1 << 20}}, big.addr), big)
	testwait.Until(t, "it holds bytes, too", func() bool { return r.blocked() == stalled+1 })
	for n := range stalled + 1 {
		say(t, ping, pong, "busy")
		got := r.e.Overload().Shed(overload.Shedding{Bytes: 1})
		if got.Flows != 1 || got.Bytes < flowCost {
			t.Fatalf("%+v, want 1 flow", got)
		}
		rec := r.expect(CauseOverload)
		if n == 0 && rec.Client != *fromNet(a.LocalAddr()) {
			t.Errorf("the flow of %v has ended, that of %v holds most", rec.Client, a.LocalAddr())
		}
		if rec.Up.BytesDropped() == 0 {
			t.Errorf("the flow held nothing: %+v", rec.Up)
		}
	}
	if got := r.e.Overload().Shed(overload.Shedding{Bytes: 1 << 40}); got.Flows != 0 {
		t.Errorf("%+v has ended of flows that hold nothing", got)
	}
	say(t, ping, pong, "busy")
	say(t, idle, idleUp, "idle")
}

// A flow in which something has moved lately is not ended, however much it holds; nor is one that moves
// something after it was chosen.
func TestShedSparesWhatMoves(t *testing.T) {
	r := newRig(t, Config{Loops: 1, MaxPipes: -1})
	l, s := r.overloadListen(t)
	_, b := r.stall(t, l, s)
	testwait.Until(t, "it holds bytes", func() bool { return r.blocked() == 1 })
	for _, idle := range []bool{false, true} {
		if got := r.e.Overload().Shed(overload.Shedding{Idle: idle, Bytes: 1, Quiet: time.Hour}); got.Flows != 0 {
			t.Errorf("idle %v: %+v", idle, got)
		}
	}
	found := make([]candidates, 1)
	found[0].Shedding = overload.Shedding{Bytes: 1, Flows: 1}
	loop := r.e.loops[0]
	loop.Ask(func() {
		for slot := range loop.Slots.Len() {
			if owner := loop.Slots.Owner(slot); owner != nil {
				found[0].look(loop, owner, slot)
			}
		}
	})
	chosen := choose(found, &found[0].Shedding)
	if len(chosen[0]) != 1 {
		t.Fatalf("%+v is chosen", chosen)
	}
	was := r.e.Stats()
	written := was.Total().BytesWritten
	go testnet.Play(b, testnet.Script{Discard: true})
	testwait.Until(t, "something moves", func() bool {
		now := r.e.Stats()
		return now.Total().BytesWritten > written
	})
	if got := r.e.end(chosen); got.Flows != 0 {
		t.Errorf("%+v has ended, which went on", got)
	}
}

// A flow whose reader takes what lies in the kernel's buffer goes on, though the loop has moved nothing for long.
func TestShedSparesWhatTheKernelSends(t *testing.T) {
	const long = time.Hour
	r := newRig(t, Config{Loops: 1, MaxPipes: -1})
	l, s := r.overloadListen(t)
	r.stall(t, l, s)
	idle := dial(t, l)
	say(t, idle, s.accept(t), "hello")
	testwait.Until(t, "one holds bytes", func() bool { return r.blocked() == 1 })
	loop := r.e.loops[0]
	loop.Ask(func() {
		loop.Start = loop.Start.Add(-3 * long) // of its clock
		loop.Now = loop.Clock()
	})
	// The loop has done nothing since, and the kernel's clock is another one.
	for _, isIdle := range []bool{false, true} {
		if got := r.e.Overload().Shed(overload.Shedding{Idle: isIdle, Bytes: 1 << 40, Quiet: long}); got.Flows != 0 {
			t.Errorf("idle %v: %+v, and bytes have been sent just now", isIdle, got)
		}
	}
	if got := r.e.Overload().Shed(overload.Shedding{Bytes: 1 << 40}); got.Flows != 1 {
		t.Errorf("%+v, want 1 flow", got)
	}
}

// Of idle flows, those end in which nothing has moved for the longest time.
func TestShedIdle(t *testing.T) {
	r := newRig(t, Config{})
	r.k.StopClock()
	l, s := r.overloadListen(t)
	var flows [][2]net.Conn
	for range 8 {
		a := dial(t, l)
		b := s.accept(t)
		flows = append(flows, [2]net.Conn{a, b})
		say(t, a, b, "hello")
		r.pass(tick) // so that no two are equally idle
	}
	for _, f := range flows[:4] {
		say(t, f[0], f[1], "again")
	}
	if got := r.e.Overload().Shed(overload.Shedding{Idle: true, Bytes: 1 << 40, Flows: 4}); got.Flows != 4 {
		t.Errorf("%+v, want 4 flows", got)
	}
	for range 4 {
		r.expect(CauseOverload)
	}
	for _, f := range flows[:4] {
		say(t, f[0], f[1], "busy")
	}
	for _, f := range flows[4:] {
		wantReset(t, f[0])
		wantReset(t, f[1])
	}
}

// Bytes bounds how much is ended.
func TestShedBytes(t *testing.T) {
	r := newRig(t, Config{})
	l, s := r.overloadListen(t)
	for range 10 {
		a := dial(t, l)
		say(t, a, s.accept(t), "hello")
	}
	if got := r.e.Overload().Shed(overload.Shedding{Idle: true, Bytes: 3*flowCost - 1}); got.Flows < 1 || got.Flows > 3 {
		t.Errorf("%+v, want 1 to 3 flows", got)
	}
	if got := r.e.Overload().Shed(overload.Shedding{Idle: true}); got.Flows != 0 {
		t.Errorf("%+v, want nothing for no bytes", got)
	}
}

// While streams are gated, clients wait in the kernel's queue, and open flows go on.
func TestOverloadNoStreams(t *testing.T) {
	for _, network := range []string{"tcp4", "unix"} {
		t.Run(network, func(t *testing.T) {
			r := newRig(t, Config{})
			s := newServer(t, "tcp4")
			l := r.listen(network, ListenConfig{}, s.addr)
			a := dial(t, l)
			b := s.accept(t)
			say(t, a, b, "hello")
			r.e.Overload().Set(overload.State{NoStreams: true})
			var queued []net.Conn
			for range 10 {
				queued = append(queued, dial(t, l))
			}
			testwait.Until(t, "a loop rests", func() bool { return r.e.Stats().LoopsPaused > 0 })
			say(t, a, b, "it goes on")
			if s := r.e.Stats(); s.Total().Accepted != 1 || s.Descriptors.LoopsPaused != 0 {
				t.Errorf("%d clients were accepted, want 1; %d loops wait for descriptors", s.Total().Accepted, s.Descriptors.LoopsPaused)
			}
			r.e.Overload().Set(overload.State{})
			for _, a := range queued {
				a.Write([]byte("me"))
			}
			for range queued {
				hear(t, s.accept(t), "me")
			}
			testwait.Until(t, "no loop rests", func() bool { return r.e.Stats().LoopsPaused == 0 })
		})
	}
}

// While datagram flows are gated, known clients go on, and datagrams of others are dropped and counted.
func TestOverloadNoDatagramFlows(t *testing.T) {
	r := newDatagramRig(t, Config{})
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, gramEcho(t, "udp4"))
	old, young := packetSocket(t, "udp4"), packetSocket(t, "udp4")
	askGram(t, old, l.Addr(), "first")
	r.e.Overload().Set(overload.State{NoDatagramFlows: true})
	tellGram(t, young, l.Addr(), "me")
	testwait.Until(t, "it is dropped", func() bool { d := r.dgramStats(); return d.Dropped.Get(stats.DropOverload) == 1 })
	askGram(t, old, l.Addr(), "it goes on")
	r.e.Overload().Set(overload.State{})
	askGram(t, young, l.Addr(), "me again")
	if got := r.e.Overload().Shed(overload.Shedding{Idle: true, Bytes: 1, Flows: 1}); got.Flows != 1 {
		t.Errorf("%+v, want 1 flow", got)
	}
	r.expect(CauseOverload)
}

// Flows that stall while HoldLess is set hold little, and so does one that finds much held by others.
func TestOverloadHoldLess(t *testing.T) {
	for name, o := range map[string]overload.State{"always": {HoldLess: true}, "beyond": {HoldMost: 1}} {
		t.Run(name, func(t *testing.T) { testHoldLess(t, o) })
	}
}

func testHoldLess(t *testing.T, o overload.State) {
	r := newRig(t, Config{Loops: 1, MaxPipes: -1})
	l, s := r.overloadListen(t)
	r.e.Overload().Set(o)
	if o.HoldMost > 0 {
		r.stall(t, l, s)
		testwait.Until(t, "one holds much", func() bool { return r.blocked() == 1 })
	}
	least := r.blocked() + 1
	a, _ := r.stall(t, l, s)
	testwait.Until(t, "it holds bytes", func() bool { return r.blocked() == least })
	var user, pipes int64
	r.e.onLoops(func(f *Flow) {
		if f.Peer() == *fromNet(a.LocalAddr()) {
			user, pipes, _ = f.owner.(*streams).memory(streamOf(f))
		}
	})
	if user == 0 || user > pump.LeastRead || pipes != 0 {
		t.Errorf("%d bytes in user space and %d in a pipe, want up to %d", user, pipes, pump.LeastRead)
	}
	c := dial(t, l)
	play(t, c, s.accept(t), testnet.Script{Send: 3 << 20, SendSeed: 1, Recv: 100, RecvSeed: 2}, testnet.Script{Send: 100, SendSeed: 2, Recv: 3 << 20, RecvSeed: 1})
	r.expect(CauseEnd)
	for range r.e.Overload().Shed(overload.Shedding{Bytes: 1 << 40}).Flows {
		r.expect(CauseOverload)
	}
	r.e.loops[0].Ask(func() {
		if n := r.e.streams.all[0].env.Held; n != 0 || r.e.loops[0].Slots.Live != 0 {
			t.Errorf("%d bytes are held, %d flows are left", n, r.e.loops[0].Slots.Live)
		}
	})
}

// What flows have given back is given back to the system.
func TestTrim(t *testing.T) {
	r := newRig(t, Config{})
	l, s := r.overloadListen(t)
	for range 3 {
		r.stall(t, l, s)
	}
	testwait.Until(t, "all of them hold bytes", func() bool { return r.blocked() == 3 })
	if got := r.e.Overload().Shed(overload.Shedding{Bytes: 1 << 40}); got.Flows != 3 {
		t.Errorf("%+v, want 3 flows", got)
	}
	r.e.Overload().Trim()
	if s := r.e.Stats(); s.PipesOpen != 0 || s.Buffers.Bytes != 0 {
		t.Errorf("left: %d pipes, %d bytes of buffers", s.PipesOpen, s.Buffers.Bytes)
	}
	play(t, dial(t, l), s.accept(t), testnet.Script{Send: 3 << 20, SendSeed: 1}, testnet.Script{Recv: 3 << 20, RecvSeed: 1})
}

func TestTrimDatagrams(t *testing.T) {
	r := newDatagramRig(t, Config{})
	r.k.StopClock()
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Datagram: DatagramConfig{Replies: 1}}, gramEcho(t, "udp4"))
	c := packetSocket(t, "udp4")
	askGram(t, c, l.Addr(), "question")
	r.expect(CauseAnswered)
	if d := r.dgramStats(); d.Resting != 1 {
		t.Errorf("%d sockets rest, want 1", d.Resting)
	}
	r.e.Overload().Trim()
	if d := r.dgramStats(); d.Resting != 0 || d.RestingClosedEarly != 1 {
		t.Errorf("%d sockets rest, %d were closed", d.Resting, d.RestingClosedEarly)
	}
	askGram(t, c, l.Addr(), "another")
}

func TestMemoryUse(t *testing.T) {
	r := newRig(t, Config{})
	if got := r.e.Overload().MemoryUse(); got != (overload.MemoryUse{}) {
		t.Errorf("%+v without flows", got)
	}
	l, s := r.overloadListen(t)
	for range 3 {
		r.stall(t, l, s)
	}
	testwait.Until(t, "all of them hold bytes", func() bool { return r.blocked() == 3 })
	// The loopback device copies nothing, so that at least the client's bytes are in the relay's socket.
	testwait.Until(t, "sockets hold something", func() bool { return r.e.Overload().MemoryUse().Sockets > 16<<10 })
}

// A closed engine has nothing to shed, and answers.
func TestOverloadAfterClose(t *testing.T) {
	r := newRig(t, Config{})
	l, s := r.overloadListen(t)
	a := dial(t, l)
	say(t, a, s.accept(t), "hello")
	r.e.Close()
	r.expect(CauseClosed)
	r.e.Overload().Set(overload.State{NoStreams: true, NoDatagramFlows: true, HoldLess: true})
	r.e.Overload().Set(overload.State{})
	r.e.Overload().Trim()
	if got := r.e.Overload().Shed(overload.Shedding{Idle: true, Bytes: 1 << 40}); got != (overload.Shed{}) {
		t.Errorf("%+v", got)
	}
	if got := r.e.Overload().MemoryUse(); got != (overload.MemoryUse{}) {
		t.Errorf("%+v", got)
	}
}

// The heap keeps the candidates that rank highest.
func TestCandidates(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		c := candidates{Shedding: overload.Shedding{Flows: 1 + rnd.IntN(20)}}
		var all []candidate
		for i := range rnd.IntN(100) {
			x := candidate{ref: ref{Slot: uint32(i)}, rank: int64(rnd.IntN(30)), bytes: 10}
			all = append(all, x)
			c.add(x)
		}
		slices.SortFunc(all, func(a, b candidate) int { return cmp.Compare(b.rank, a.rank) })
		all = all[:min(len(all), c.Flows)]
		slices.SortFunc(c.heap, func(a, b candidate) int { return cmp.Compare(b.rank, a.rank) })
		if !slices.EqualFunc(all, c.heap, func(a, b candidate) bool { return a.rank == b.rank }) {
			t.Fatalf("seed %d: %v, want %v", seed, c.heap, all)
		}
		sheds := overload.Shedding{Flows: c.Flows, Bytes: 45}
		n := 0
		for _, list := range choose([]candidates{c}, &sheds) {
			n += len(list)
		}
		if want := min(len(all), 5); n != want {
			t.Fatalf("seed %d: %d are chosen, want %d", seed, n, want)
		}
	}
}
