//go:build penstock_invariants

package relay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/pump"
)

// violation returns what check panics with.
func violation(check func()) (text string) {
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprint(v)
		}
	}()
	check()
	return ""
}

// fault is damage to the state of a loop, which is undone by the function that do returns.
type fault struct {
	name   string
	number int // of the invariant that it violates
	do     func() (undo func())
}

// expectViolations does each fault on the loop of the only flow, and expects that the checks find it, and nothing before or after it.
func expectViolations(t *testing.T, check func(), faults []fault) {
	t.Helper()
	if text := violation(check); text != "" {
		t.Error(text)
	}
	for _, c := range faults {
		undo := c.do()
		text := violation(check)
		undo()
		if !strings.HasPrefix(text, fmt.Sprintf("invariant %d is violated: ", c.number)) {
			t.Errorf("%s: %q, want a violation of invariant %d", c.name, text, c.number)
		}
	}
	if text := violation(check); text != "" {
		t.Error(text)
	}
}

// set sets a variable until undo is called.
func set[T any](at *T, to T) (undo func()) {
	was := *at
	*at = to
	return func() { *at = was }
}

// TestStreamInvariants: the checks at the end of a turn find what they are for.
func TestStreamInvariants(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	a, b := r.flow("tcp4", "tcp4", ListenConfig{Timeouts: Timeouts{Idle: time.Hour}})
	say(t, a, b, "hello")
	r.e.onLoops(func(fl *Flow) {
		f := streamOf(fl)
		s := f.owner.(*streams)
		expectViolations(t, s.checkInvariants, []fault{
			{"no timer", 9, func() func() { s.loop.Disarm(f.slot); return func() { s.rearm(f) } }},
			{"in no queue", 9, func() func() { return set(&f.wait[up], pump.Again) }},
			{"in an empty queue", 9, func() func() { return set(&f.inReady, true) }},
			{"not watched", 9, func() func() { return set(&f.muted[up], true) }},
			{"a lost short flow", 9, func() func() { return set(&f.state, streamShort) }},
			{"a lost restored flow", 9, func() func() { return set(&f.state, streamRestored) }},
			{"in a hook", 12, func() func() { return set(&f.state, streamAdmitting) }},
			{"another slot", 10, func() func() { return set(&f.slot, f.slot+1) }},
			{"no socket", 13, func() func() { return set(&f.fd[sideClient], -1) }},
			{"over", 14, func() func() { return set(&f.wait, [2]pump.State{pump.End, pump.End}) }},
			{"a flow too many", 15, func() func() { return set(&s.slab.Live, 2) }},
			{"a load too small", 15, func() func() { s.load.Add(-1); return func() { s.load.Add(1) } }},
			{"a free slot with a flow", 13, func() func() { return set(&s.slab.At(f.slot^1).state, streamRelaying) }},
		})
	})
}

// TestDatagramInvariants is TestStreamInvariants for datagrams and the budget.
func TestDatagramInvariants(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, gramEcho(t, "udp4"))
	askGram(t, packetSocket(t, "udp4"), l.Addr(), "hello")
	r.e.onLoops(func(fl *Flow) {
		d := fl.owner.(*datagrams)
		f, b := d.of(fl), d.descriptors.budget
		expectViolations(t, d.checkInvariants, []fault{
			{"no timer", 9, func() func() { d.loop.Disarm(f.slot); return func() { d.rearm(f) } }},
			{"another slot", 10, func() func() { return set(&f.slot, f.slot+1) }},
			{"a list too long", 15, func() func() { return set(&d.answered.n, 2) }},
			{"on another list", 15, func() func() { return set(&f.verified, true) }},
			{"bytes held", 15, func() func() { return set(&d.stats.BytesHeld, 1) }},
			{"bytes held of undecided flows", 15, func() func() { return set(&d.undecidedBytes, 1) }},
			{"a socket that rests", 15, func() func() { d.descriptors.resting.Add(1); return func() { d.descriptors.resting.Add(-1) } }},
			{"a message left", 5, func() func() { return set(&f.first, 0) }},
			{"a flow of the batch left", 40, func() func() { return set(&d.touched, []*datagramFlow{f}) }},
			{"sniffed, and not known", 40, func() func() { return set(&f.sniffed, true) }},
			{"a promise too few", 7, func() func() { return set(&d.descriptors.ahead, d.descriptors.promised.Load()+1) }},
			{"given back twice", 7, func() func() { b.free.Add(1 << 20); return func() { b.free.Add(-1 << 20) } }},
			{"a free slot with a flow", 13, func() func() { return set(&d.slab.At(f.slot^1).reserved, 1) }},
		})
	})
}
