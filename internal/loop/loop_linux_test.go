package loop

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// plain is a handler whose flows are eventfds that do nothing. A loop needs no more.
type plain struct {
	loop      *Loop
	slab      Slab[plainFlow]
	events    []uint32 // slots
	dues      []uint32
	inspected []uint32
	turns     atomic.Int64
	more      bool          // turn's answer
	wake      time.Duration // until's answer
	asked     []Ref
	closed    bool
	hook      func(slot uint32) // called with each event; may be nil
}

type plainFlow struct {
	ref Ref
	fd  int
}

func (p *plain) Event(slot uint32, _ int, _ uint32) {
	p.events = append(p.events, slot)
	sys.Linux{}.EventfdClear(p.slab.At(slot).fd)
	if p.hook != nil {
		p.hook(slot)
	}
}
func (p *plain) Turn() bool           { p.turns.Add(1); return p.more }
func (p *plain) Until() time.Duration { return p.wake }
func (p *plain) Inspect(slot uint32)  { p.inspected = append(p.inspected, slot) }
func (p *plain) Due(slot uint32)      { p.dues = append(p.dues, slot) }
func (p *plain) Request(r *Request)   { p.asked = append(p.asked, r.Ref) }
func (p *plain) Spare() bool          { return false }
func (p *plain) Freed()               {}
func (p *plain) HandOver()            {}
func (p *plain) Close() {
	p.closed = true
	p.slab.Each(p.end)
}

// begin starts a flow.
func (p *plain) begin(t *testing.T) *plainFlow {
	fd, err := sys.Linux{}.Eventfd()
	if err != nil {
		t.Error(err)
	}
	f, r := p.slab.Take()
	f.ref, f.fd = r, fd
	if e := p.loop.Watch(fd, sys.In|sys.Edge, r.Token(1)); e != 0 {
		t.Error(e)
	}
	return f
}

func (p *plain) end(f *plainFlow) {
	p.loop.Disarm(f.ref.Slot)
	sys.Linux{}.Close(f.fd)
	p.slab.Put(f.ref.Slot)
}

// newPlain runs a loop with two handlers.
func newPlain(t *testing.T) (l *Loop, one, two *plain) {
	testnet.CheckLeaks(t)
	l, err := New(sys.Linux{}, 0, time.Now(), false, func() {})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []**plain{&one, &two} {
		*p = &plain{loop: l, wake: Never}
		(*p).slab.Init(&l.Slots, *p)
		l.Add(*p)
	}
	go l.Run()
	t.Cleanup(func() {
		l.Post(Request{Do: func() { l.Closing = true }})
		<-l.Ended
		if !one.closed || !two.closed || l.Slots.Live != 0 {
			t.Errorf("closed %v and %v, %d flows left", one.closed, two.closed, l.Slots.Live)
		}
		if l.Post(Request{Do: func() {}}) {
			t.Error("a loop that has ended takes requests")
		}
	})
	return l, one, two
}

// An event reaches the handler of its flow, and no other one.
func TestLoopEvents(t *testing.T) {
	l, one, two := newPlain(t)
	var a, b *plainFlow
	l.Ask(func() { a, b = one.begin(t), two.begin(t) })
	sys.Linux{}.EventfdSignal(b.fd)
	testwait.Until(t, "an event", func() (came bool) {
		l.Ask(func() { came = len(two.events) > 0 })
		return came
	})
	l.Ask(func() {
		if len(one.events) != 0 || !slices.Equal(two.events, []uint32{b.ref.Slot}) || a.ref.Slot == b.ref.Slot {
			t.Errorf("events %v and %v of flows %v and %v", one.events, two.events, a.ref, b.ref)
		}
	})
}

// Of two flows that have events in one batch the first ends the second, and a new
// flow has its slot: the stale event reaches nobody.
func TestLoopStaleEvent(t *testing.T) {
	l, p, _ := newPlain(t)
	var flows [2]*plainFlow
	l.Ask(func() {
		flows = [2]*plainFlow{p.begin(t), p.begin(t)}
		p.hook = func(slot uint32) {
			p.hook = nil
			for _, f := range flows {
				if f.ref.Slot != slot {
					old := f.ref
					p.end(f)
					if again := p.begin(t); again.ref.Slot != old.Slot || again.ref == old {
						t.Errorf("%v is followed by %v", old, again.ref)
					}
				}
			}
		}
		sys.Linux{}.EventfdSignal(flows[0].fd)
		sys.Linux{}.EventfdSignal(flows[1].fd)
	})
	testwait.Until(t, "an event", func() (came bool) {
		l.Ask(func() { came = len(p.events) > 0 })
		return came
	})
	l.Ask(func() {
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
	l.Ask(func() {
		one.begin(t)
		f = two.begin(t)
		at = l.Now + Tick
		l.Arm(f.ref.Slot, at)
		off := two.begin(t)
		l.Arm(off.ref.Slot, at)
		l.Disarm(off.ref.Slot)
		l.Arm(two.begin(t).ref.Slot, Never)
	})
	testwait.Until(t, "the timer", func() (came bool) {
		l.Ask(func() { came = len(two.dues) > 0 })
		return came
	})
	l.Ask(func() {
		if l.Now < at || len(one.dues) != 0 || !slices.Equal(two.dues, []uint32{f.ref.Slot}) {
			t.Errorf("due %v and %v at %v, want %d at %v", one.dues, two.dues, l.Now, f.ref.Slot, at)
		}
	})
}

// A handler that wants a turn has one, without an event.
func TestLoopUntil(t *testing.T) {
	l, p, _ := newPlain(t)
	for name, want := range map[string]func() time.Duration{
		"at once":    func() time.Duration { return 0 },
		"in a while": func() time.Duration { return l.Now + 5*time.Millisecond },
	} {
		var before int64
		l.Ask(func() { before, p.wake = p.turns.Load(), want() })
		// The turn of the request is one, and nothing else is asked of the loop.
		testwait.Until(t, "turns "+name, func() bool { return p.turns.Load() >= before+3 })
		l.Ask(func() { p.wake = Never })
	}
}

// Timers do not go by a time whose events a handler has left for its next turn.
func TestLoopSeen(t *testing.T) {
	l, p, _ := newPlain(t)
	var seen time.Duration
	l.Ask(func() { p.more = true })
	l.Ask(func() { seen = l.Seen })
	for range unseenMost / 4 {
		l.Ask(func() {
			if l.Seen != seen {
				t.Errorf("seen up to %v, and events of %v are left", l.Seen, seen)
			}
		})
	}
	l.Ask(func() { p.more = false })
	l.Ask(func() {
		if l.Seen <= seen {
			t.Errorf("still seen up to %v", l.Seen)
		}
	})
}

// Requests are handled in their order, by the handler that they are for.
func TestLoopRequests(t *testing.T) {
	l, one, two := newPlain(t)
	var order []int
	var wg sync.WaitGroup
	const n = 3 * RequestBurst
	for i := range n {
		wg.Add(1)
		l.Post(Request{Do: func() { order = append(order, i) }, WG: &wg})
	}
	want := Ref{7, 9}
	l.Post(Request{To: two, Ref: want})
	wg.Wait()
	l.Ask(func() {
		if len(order) != n || !slices.IsSorted(order) {
			t.Errorf("%d requests, in the order %v", len(order), order)
		}
		if len(one.asked) != 0 || !slices.Equal(two.asked, []Ref{want}) {
			t.Errorf("asked %v and %v", one.asked, two.asked)
		}
	})
}

// A walk visits each flow of every handler that was there, some per turn.
func TestLoopWalk(t *testing.T) {
	l, one, two := newPlain(t)
	const n = 3 * WalkBurst
	visits := make(map[Ref]Handler)
	turns := make(map[int64]int)
	after := false
	var wg sync.WaitGroup
	wg.Add(1)
	l.Ask(func() {
		for i := range n {
			if i%3 == 0 {
				one.slab.Take()
			} else {
				two.slab.Take()
			}
		}
		l.Walk(func(owner Handler, slot uint32) {
			visits[Ref{slot, *l.Slots.gen(slot)}] = owner
			turns[one.turns.Load()]++
		}, func() { after = true }, &wg)
	})
	wg.Wait()
	l.Ask(func() {
		if len(visits) != n || !after {
			t.Errorf("%d visits, after %v", len(visits), after)
		}
		for r, owner := range visits {
			if l.Slots.Find(r) != owner {
				t.Errorf("%v is not of %v", r, owner)
			}
		}
		for _, k := range turns {
			if k > WalkBurst {
				t.Errorf("%d visits in one turn", k)
			}
		}
		for _, p := range l.handlers { // which have no descriptors
			p := p.(*plain)
			p.slab.Each(func(f *plainFlow) { f.fd = -1 })
		}
	})
	l.Ask(func() {
		for i := range l.Slots.Len() {
			switch owner := l.Slots.Owner(i); owner {
			case one:
				one.slab.Put(i)
			case two:
				two.slab.Put(i)
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
	l.Ask(func() {
		for l.Slots.Len() <= 3*WalkBurst {
			l.Slots.add(p)
		}
		l.Walk(func(Handler, uint32) {}, func() { left = true }, &wg)
		l.Closing = true
	})
	wg.Wait()
	<-l.Ended
	if left {
		t.Error("the walk was finished")
	}
}

// A source has events while it has a number, which another one may have afterwards.
func TestLoopSources(t *testing.T) {
	l, _, _ := newPlain(t)
	fd, err := sys.Linux{}.Eventfd()
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Linux{}.Close(fd)
	var a, b plainSource
	l.Ask(func() {
		n := l.AddSource(&a)
		l.RemoveSource(n)
		if m := l.AddSource(&b); m != n {
			t.Errorf("number %d, want %d", m, n)
		} else if e := l.Watch(fd, sys.In|sys.Edge, SourceToken(m)); e != 0 {
			t.Error(e)
		}
	})
	sys.Linux{}.EventfdSignal(fd)
	testwait.Until(t, "an event", func() (came bool) {
		l.Ask(func() { came = b > 0 })
		return came
	})
	l.Ask(func() {
		if a != 0 || b != 1 {
			t.Errorf("%d and %d events", a, b)
		}
		l.Unwatch(fd)
	})
}

type plainSource int

func (s *plainSource) Event(uint32) { *s++ }

// A loop that always has more events than one wait gives has timers all the same.
func TestTimersAreNotStarved(t *testing.T) {
	l := &Loop{waitBegan: time.Second}
	turns := 0
	for ; l.Seen != l.waitBegan; turns++ {
		if turns > 2*unseenMost {
			t.Fatalf("no timer after %d turns", turns)
		}
		l.noteSeen(false)
	}
	if turns < unseenMost {
		t.Errorf("timers after %d turns", turns)
	}
}
