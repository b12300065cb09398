package relay

import (
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// At the bound on flows a new client takes the place of a flow that is worth
// less than it. Which one that is depends on how long answers take: an
// unanswered flow is worth nothing once it has waited for longer than its
// listener's upstreams need, and a full place until then. A rule without that
// time fails one way or the other: if the unanswered always go first, no client
// of an upstream that is slower than clients come has ever its answer; if they
// never do, a flood from spoofed addresses takes all places.

const (
	// answerWindow is for how long an answer time is remembered, at least.
	answerWindow = 30 * time.Second
	// The bounds of how long an unanswered flow keeps its place, and what it is
	// while no answer time is known.
	leastPatience, mostPatience, firstPatience = 250 * time.Millisecond, 5 * time.Second, 2 * time.Second
	// evictLook bounds how many flows are looked at to find one that may go.
	evictLook = 64
)

// answerTimes is the slowest first answer of the flows of a port, of the present
// window and of the one before.
type answerTimes struct {
	slowest [2]time.Duration // 0: no answer
	began   time.Duration    // the present window
}

func (a *answerTimes) turn(now time.Duration) {
	switch passed := now - a.began; {
	case passed < answerWindow:
		return
	case passed < 2*answerWindow:
		a.slowest[1] = a.slowest[0]
	default:
		a.slowest[1] = 0
	}
	a.slowest[0], a.began = 0, now
}

func (a *answerTimes) add(now, took time.Duration) {
	a.turn(now)
	a.slowest[0] = max(a.slowest[0], took)
}

// patience is how long a flow without an answer keeps its place.
func (a *answerTimes) patience(now time.Duration) time.Duration {
	a.turn(now)
	slowest := max(a.slowest[0], a.slowest[1])
	if slowest == 0 {
		return firstPatience
	}
	return min(max(2*slowest, leastPatience), mostPatience)
}

// allowed reports whether another flow may begin in this tick.
func (d *datagrams) allowed() bool {
	if now := int64(d.loop.now / tick); now != d.tick {
		d.tick, d.left = now, d.perTick
	}
	return d.left > 0
}

// reserve makes room for one flow under the engine's bound, and takes its descriptor.
func (d *datagrams) reserve() bool {
	if (d.share.flows.Add(1) <= d.share.maxFlows || d.evict(nil)) && d.takeDescriptor(nil) {
		return true
	}
	d.share.flows.Add(-1)
	return false
}

// takeDescriptor takes the descriptor of a flow from the budget. Sockets that rest and idle
// pipes make room, and then the flow that is worth least, but not keep.
func (d *datagrams) takeDescriptor(keep *datagramFlow) bool {
	l := d.loop
	if l.descriptors.takeAhead(1, l.now) {
		return true
	}
	b := l.descriptors.budget
	for evicted := false; !l.descriptors.takeAbove(1, b.forStreams()); {
		if b.measure(l.now, measureSoon) || d.spare() || b.closeIdlePipes() {
			continue
		}
		b.denied.Store(max(1, int64(l.now)))
		if evicted || !d.evict(keep) {
			return false
		}
		evicted = true
	}
	return true
}

// evict ends the flow that is worth least, but not keep: the one silent for
// longest among those that have waited in vain for an answer, or else among
// those that had one, as long as they have half of the places. Of these the ones
// whose clients are not verified go first, and the others stay while new clients
// are refused for want of time: in a flood no forged address takes a place from
// a flow that goes back and forth.
func (d *datagrams) evict(keep *datagramFlow) bool {
	now := d.loop.now
	look := evictLook
	for f := d.silent.oldest; f != nil && look > 0; f = f.newer {
		look--
		if f.evictable(keep) && now-f.active >= f.port.answers.patience(now) && !sys.Readable(int(f.fd)) {
			d.end(f, CauseEvicted, nil)
			return true
		}
	}
	if d.answered.n+d.verified.n < d.silent.n {
		return false
	}
	return d.evictOldest(&d.answered, keep) || !d.admission.pressed(now) && d.evictOldest(&d.verified, keep)
}

// evictOldest ends the flow of a list that was silent for longest.
func (d *datagrams) evictOldest(a *ages, keep *datagramFlow) bool {
	for f := a.oldest; f != nil; f = f.newer {
		if f.active >= d.loop.now {
			return false // it has carried something in this turn, and so have those that follow
		}
		if f.evictable(keep) {
			d.end(f, CauseEvicted, nil)
			return true
		}
	}
	return false
}

// evictable reports whether f has no messages at hand.
func (f *datagramFlow) evictable(keep *datagramFlow) bool {
	return f != keep && f.first < 0 && f.pending == 0
}

// ageList returns the list that f is in.
func (d *datagrams) ageList(f *datagramFlow) *ages {
	switch {
	case f.verified:
		return &d.verified
	case f.answered:
		return &d.answered
	}
	return &d.silent
}
