package relay

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
)

// plain is a handler whose flows are eventfds that do nothing. A loop needs no more.
type plain struct {
	loop   *loop
	slab   slab[plainFlow]
	events []uint32 // slots
	dues   []uint32
	turns  atomic.Int64
	more   bool          // turn's answer
	wake   time.Duration // until's answer
	asked  []ref
	closed bool
	hook   func(slot uint32) // called with each event; may be nil
}

type plainFlow struct {
	ref ref
	fd  int
}

func (p *plain) event(slot uint32, _ int, _ uint32) {
	p.events = append(p.events, slot)
	sys.EventfdClear(p.slab.at(slot).fd)
	if p.hook != nil {
		p.hook(slot)
	}
}
func (p *plain) turn() bool           { p.turns.Add(1); return p.more }
func (p *plain) until() time.Duration { return p.wake }
func (p *plain) due(slot uint32)      { p.dues = append(p.dues, slot) }
func (p *plain) request(r *request)   { p.asked = append(p.asked, r.ref) }
func (p *plain) spare() bool          { return false }
func (p *plain) freed()               {}
func (p *plain) handOver()            {}
func (p *plain) close() {
	p.closed = true
	p.slab.each(p.end)
}

// begin starts a flow.
func (p *plain) begin(t *testing.T) *plainFlow {
	fd, err := sys.Eventfd()
	if err != nil {
		t.Error(err)
	}
	f, r := p.slab.take()
	f.ref, f.fd = r, fd
	if e := p.loop.watch(fd, sys.In|sys.Edge, r.token(sideUpstream)); e != 0 {
		t.Error(e)
	}
	return f
}

func (p *plain) end(f *plainFlow) {
	p.loop.disarm(f.ref.slot)
	sys.Linux{}.Close(f.fd)
	p.slab.put(f.ref.slot)
}

// newPlain runs a loop with two handlers.
func newPlain(t *testing.T) (l *loop, one, two *plain) {
	testnet.CheckLeaks(t)
	l, err := newLoop(0, time.Now(), false, func() {})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []**plain{&one, &two} {
		*p = &plain{loop: l, wake: never}
		(*p).slab.slots, (*p).slab.owner = &l.slots, *p
		l.handlers = append(l.handlers, *p)
	}
	go l.run()
	t.Cleanup(func() {
		l.post(request{do: func() { l.closing = true }})
		<-l.ended
		if !one.closed || !two.closed || l.slots.live != 0 {
			t.Errorf("closed %v and %v, %d flows left", one.closed, two.closed, l.slots.live)
		}
		if l.post(request{do: func() {}}) {
			t.Error("a loop that has ended takes requests")
		}
	})
	return l, one, two
}

// An event reaches the handler of its flow, and no other one.
func TestLoopEvents(t *testing.T) {
	l, one, two := newPlain(t)
	var a, b *plainFlow
	l.ask(func() { a, b = one.begin(t), two.begin(t) })
	sys.EventfdSignal(b.fd)
	eventually(t, "an event", func() (came bool) {
		l.ask(func() { came = len(two.events) > 0 })
		return came
	})
	l.ask(func() {
		if len(one.events) != 0 || !slices.Equal(two.events, []uint32{b.ref.slot}) || a.ref.slot == b.ref.slot {
			t.Errorf("events %v and %v of flows %v and %v", one.events, two.events, a.ref, b.ref)
		}
	})
}

// Of two flows that have events in one batch the first ends the second, and a new
// flow has its slot: the stale event reaches nobody.
func TestLoopStaleEvent(t *testing.T) {
	l, p, _ := newPlain(t)
	var flows [2]*plainFlow
	l.ask(func() {
		flows = [2]*plainFlow{p.begin(t), p.begin(t)}
		p.hook = func(slot uint32) {
			p.hook = nil
			for _, f := range flows {
				if f.ref.slot != slot {
					old := f.ref
					p.end(f)
					if again := p.begin(t); again.ref.slot != old.slot || again.ref == old {
						t.Errorf("%v is followed by %v", old, again.ref)
					}
				}
			}
		}
		sys.EventfdSignal(flows[0].fd)
		sys.EventfdSignal(flows[1].fd)
	})
	eventually(t, "an event", func() (came bool) {
		l.ask(func() { came = len(p.events) > 0 })
		return came
	})
	l.ask(func() {
		if len(p.events) != 1 {
			t.Errorf("%d events", len(p.events))
		}
	})
}

// A slot's timer reaches its owner, not before its time and only if it is not disarmed.
func TestLoopTimers(t *testing.T) {
	l, one, two := newPlain(t)
	var f *plainFlow
	var at time.Duration
	l.ask(func() {
		one.begin(t)
		f = two.begin(t)
		at = l.now + tick
		l.arm(f.ref.slot, at)
		off := two.begin(t)
		l.arm(off.ref.slot, at)
		l.disarm(off.ref.slot)
		l.arm(two.begin(t).ref.slot, never)
	})
	eventually(t, "the timer", func() (came bool) {
		l.ask(func() { came = len(two.dues) > 0 })
		return came
	})
	l.ask(func() {
		if l.now < at || len(one.dues) != 0 || !slices.Equal(two.dues, []uint32{f.ref.slot}) {
			t.Errorf("due %v and %v at %v, want %d at %v", one.dues, two.dues, l.now, f.ref.slot, at)
		}
	})
}

// A handler that wants a turn has one, without an event.
func TestLoopUntil(t *testing.T) {
	l, p, _ := newPlain(t)
	for name, want := range map[string]func() time.Duration{
		"at once":    func() time.Duration { return 0 },
		"in a while": func() time.Duration { return l.now + 5*time.Millisecond },
	} {
		var before int64
		l.ask(func() { before, p.wake = p.turns.Load(), want() })
		// The turn of the request is one, and nothing else is asked of the loop.
		eventually(t, "turns "+name, func() bool { return p.turns.Load() >= before+3 })
		l.ask(func() { p.wake = never })
	}
}

// Timers do not go by a time whose events a handler has left for its next turn.
func TestLoopSeen(t *testing.T) {
	l, p, _ := newPlain(t)
	var seen time.Duration
	l.ask(func() { p.more = true })
	l.ask(func() { seen = l.seen })
	for range unseenMost / 4 {
		l.ask(func() {
			if l.seen != seen {
				t.Errorf("seen up to %v, and events of %v are left", l.seen, seen)
			}
		})
	}
	l.ask(func() { p.more = false })
	l.ask(func() {
		if l.seen <= seen {
			t.Errorf("still seen up to %v", l.seen)
		}
	})
}

// Requests are handled in their order, by the handler that they are for.
func TestLoopRequests(t *testing.T) {
	l, one, two := newPlain(t)
	var order []int
	var wg sync.WaitGroup
	const n = 3 * requestBurst
	for i := range n {
		wg.Add(1)
		l.post(request{do: func() { order = append(order, i) }, wg: &wg})
	}
	want := ref{7, 9}
	l.post(request{to: two, ref: want})
	wg.Wait()
	l.ask(func() {
		if len(order) != n || !slices.IsSorted(order) {
			t.Errorf("%d requests, in the order %v", len(order), order)
		}
		if len(one.asked) != 0 || !slices.Equal(two.asked, []ref{want}) {
			t.Errorf("asked %v and %v", one.asked, two.asked)
		}
	})
}

// A walk visits each flow of every handler that was there, some per turn.
func TestLoopWalk(t *testing.T) {
	l, one, two := newPlain(t)
	const n = 3 * walkBurst
	visits := make(map[ref]handler)
	turns := make(map[int64]int)
	after := false
	var wg sync.WaitGroup
	wg.Add(1)
	l.ask(func() {
		for i := range n {
			if i%3 == 0 {
				one.slab.take()
			} else {
				two.slab.take()
			}
		}
		l.walk(func(owner handler, slot uint32) {
			visits[ref{slot, *l.slots.gen(slot)}] = owner
			turns[one.turns.Load()]++
		}, func() { after = true }, &wg)
	})
	wg.Wait()
	l.ask(func() {
		if len(visits) != n || !after {
			t.Errorf("%d visits, after %v", len(visits), after)
		}
		for r, owner := range visits {
			if l.slots.find(r) != owner {
				t.Errorf("%v is not of %v", r, owner)
			}
		}
		for _, k := range turns {
			if k > walkBurst {
				t.Errorf("%d visits in one turn", k)
			}
		}
		for _, p := range l.handlers { // which have no descriptors
			p := p.(*plain)
			p.slab.each(func(f *plainFlow) { f.fd = -1 })
		}
	})
	l.ask(func() {
		for i := range l.slots.len() {
			switch owner := l.slots.owner(i); owner {
			case one:
				one.slab.put(i)
			case two:
				two.slab.put(i)
			}
		}
	})
}

// Whoever waits for a walk does so no longer than for the loop's end.
func TestLoopEndsWithWalk(t *testing.T) {
	l, p, _ := newPlain(t)
	var wg sync.WaitGroup
	wg.Add(1)
	left := false
	l.ask(func() {
		for l.slots.len() <= 3*walkBurst {
			l.slots.add(p)
		}
		l.walk(func(handler, uint32) {}, func() { left = true }, &wg)
		l.closing = true
	})
	wg.Wait()
	<-l.ended
	if left {
		t.Error("the walk was finished")
	}
}

// A source has events while it has a number, which another one may have afterwards.
func TestLoopSources(t *testing.T) {
	l, _, _ := newPlain(t)
	fd, err := sys.Eventfd()
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Linux{}.Close(fd)
	var a, b plainSource
	l.ask(func() {
		n := l.addSource(&a)
		l.removeSource(n)
		if m := l.addSource(&b); m != n {
			t.Errorf("number %d, want %d", m, n)
		} else if e := l.watch(fd, sys.In|sys.Edge, sourceToken(m)); e != 0 {
			t.Error(e)
		}
	})
	sys.EventfdSignal(fd)
	eventually(t, "an event", func() (came bool) {
		l.ask(func() { came = b > 0 })
		return came
	})
	l.ask(func() {
		if a != 0 || b != 1 {
			t.Errorf("%d and %d events", a, b)
		}
		l.unwatch(fd)
	})
}

type plainSource int

func (s *plainSource) event(uint32) { *s++ }
