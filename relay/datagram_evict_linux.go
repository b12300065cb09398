package relay

import (
	"time"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/sys"
)

// At the bound on flows a new client takes the place of a flow that is worth
// less than it. Which one that is depends on how long answers take: an
// unanswered flow is worth nothing once it has waited for longer than its
// listener's upstreams need, and a full place until then. A rule without that
// time fails one way or the other: if the unanswered always go first, no client
// of an upstream that is slower than clients come has ever its answer; if they
// never do, a flood from spoofed addresses takes all places.
//
// A flow in use keeps its place. Otherwise more clients than there are places for,
// which all send now and then, take each other's places with each datagram, and
// nobody's answer finds its client. So if all flows are in use, new clients are
// dropped. One question and its answer do not make a flow that is in use for
// long, but for twice as long as the answer took: such clients are the many that
// come and go. One that goes on after an answer, or is answered more often than it
// asked, keeps its place for inUseTime.

const (
	// inUseTime is how long a flow that goes on keeps its place after each datagram.
	inUseTime = 5 * time.Second
	// evictLook bounds how many flows of a list are looked at to find one that may go.
	evictLook = 64
)

// allowed reports whether another flow may begin in this tick.
func (d *datagrams) allowed() bool {
	if now := int64(d.loop.Now / tick); now != d.tick {
		d.tick, d.left = now, d.perTick
	}
	return d.left > 0
}

// reserve makes room for one flow under the engine's bound, and takes its descriptor.
func (d *datagrams) reserve() bool {
	if d.share.flows.Add(1) <= d.share.most() || d.evict(nil) {
		if d.takeDescriptor(nil) {
			return true
		}
	} else {
		d.askOthers()
	}
	d.share.flows.Add(-1)
	return false
}

// takeDescriptor takes the descriptor of a flow from the budget. Sockets that rest and idle
// pipes make room, and then the flow that is worth least, but not keep.
func (d *datagrams) takeDescriptor(keep *datagramFlow) bool {
	l := d.loop
	if d.descriptors.takeAhead(1, l.Now) {
		return true
	}
	b := d.descriptors.budget
	evicted := false
	for range giveUpBurst {
		if d.descriptors.takeAbove(1, b.forStreams()) {
			return true
		}
		if b.measure(l.Now, measureSoon) || d.spareRest() || b.closeIdlePipes() {
			continue
		}
		b.denied.Store(max(1, int64(l.Now)))
		if evicted || !d.evict(keep) {
			break
		}
		evicted = true
	}
	d.askOthers()
	return false
}

// askOthers asks the other loops for what they can do without, and for the place of a flow. Whoever could
// not begin a flow here gets it with a later datagram.
func (d *datagrams) askOthers() {
	if len(d.share.all) == 1 {
		return
	}
	if last := d.share.asked.Load(); last > 0 && int64(d.loop.Now)-last < int64(measureSoon) || !d.share.asked.CompareAndSwap(last, max(1, int64(d.loop.Now))) {
		return
	}
	for _, other := range d.share.all {
		if other != d {
			other.loop.Post(loop.Request{Do: other.makePlace})
		}
	}
}

// makePlace gives up what the loop can do without, and if that is not enough for a flow of another loop, the
// flow that is worth least.
func (d *datagrams) makePlace() {
	b := d.descriptors.budget
	full := func() bool {
		return d.share.flows.Load() >= d.share.most() || b.free.Load() <= b.forStreams()
	}
	d.descriptors.giveUp()
	if full() && d.evict(nil) && full() {
		d.spareRest() // which may be the evicted flow's
	}
}

// evict ends the flow that is worth least, but not keep: the one silent for
// longest among those that have no upstream yet or have waited in vain for an answer, or else among
// those that had one, as long as they have half of the places. Of these the ones
// whose clients are not verified go first, and the others stay while new clients
// are refused for want of time: in a flood no forged address takes a place from
// a flow that goes back and forth.
func (d *datagrams) evict(keep *datagramFlow) bool {
	if d.evictOldest(&d.undecided, keep) || d.evictOldest(&d.silent, keep) {
		return true
	}
	if d.answered.n+d.verified.n < d.undecided.n+d.silent.n {
		return false
	}
	return d.evictOldest(&d.answered, keep) || !d.floodControl.Pressed(d.loop.Now) && d.evictOldest(&d.verified, keep)
}

// evictOldest ends the flow of a list that was silent for longest, unless it is in use.
func (d *datagrams) evictOldest(a *ages, keep *datagramFlow) bool {
	look := evictLook
	for f := a.oldest; f != nil && look > 0; f = f.newer {
		look--
		if f.evictable(keep) && !d.inUse(f) {
			d.end(f, CauseEvicted, nil)
			return true
		}
	}
	return false
}

// inUse reports whether a flow keeps its place: it has carried something lately, or the loop may not have
// seen yet that it did, because the process stood still.
func (d *datagrams) inUse(f *datagramFlow) bool {
	l := d.loop
	var place time.Duration
	switch {
	case f.verified || f.answers > f.requests:
		place = d.share.inUse
	case f.answered:
		place = patienceAfter(f.firstByte)
	default:
		place = f.port.answers.patience(l.Now)
	}
	if d.portless {
		place = max(place, d.share.restLeast)
	}
	silence := l.Now - f.active
	return silence < place || silence == 0 || sys.Readable(d.shared.kernel, int(f.fd)) || l.Seen-f.active < place && sys.Readable(d.shared.kernel, f.port.fd)
}

// evictable reports whether f has no messages at hand.
func (f *datagramFlow) evictable(keep *datagramFlow) bool {
	return f != keep && f.first < 0 && f.pending == 0
}
