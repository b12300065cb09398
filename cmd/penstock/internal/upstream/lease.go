package upstream

import (
	"slices"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A Lease is one flow's claim on a member. The zero value is ready. It belongs to the flow and
// must not be moved in memory. Its methods and [Group.Pick] are called on the flow's loop, never
// concurrently.
//
//	empty ──Pick──▶ held ──Pick after a failure──▶ held (another member)
//	  │ Wait           ▲                              │ Release
//	  ▼                │ Pick                         ▼
//	queued ──slot──▶ reserved ──────Release───────▶ empty
//
// Each open flow has a lease, and few of them have failed or waited: what only those need is
// allocated when they do.
type Lease struct {
	group  *Group
	seed   uint64      // where in the balancer's order the flow begins
	given  *givenUp    // nil: it has given no member up
	member *Member     // one of its slots is this lease's; guarded by the queue's lock if place is not nil
	place  *queuePlace // nil: it was not queued, or has had its answer
}

// givenUp are the members that a flow will not try again.
type givenUp struct {
	members []*Member
	array   [1]*Member    // backing array of members, for most flows
	skipped int           // number of members that were not tried, see Skip
	took    time.Duration // time spent on failed attempts
	away    *Member       // the one that it was connected to when this host lost its route to it, see Back
	tries   int           // at others since then
	partly  bool          // it is back there, and has not tried all others yet
}

// triesAtOnce is how many other members a flow tries at once for want of a route: the engine asks eight times, see [relay.Hooks], and the last
// answer is the member where the flow is.
const triesAtOnce = 7

// A Resumer is notified when a queued flow may continue. Resume is called at most once for each
// Wait, from any goroutine. It does nothing if the flow has ended.
type Resumer interface{ Resume() }

// Member returns the member that the lease holds; nil if there is none.
func (l *Lease) Member() *Member {
	if l.place != nil {
		l.group.queue.mu.Lock()
		defer l.group.queue.mu.Unlock()
	}
	return l.member
}

// Connected records how the attempt to connect to the lease's member ended and how long it took.
// Failures in a row eject a member (spec.Eject).
func (l *Lease) Connected(err error, took time.Duration) {
	m := l.Member()
	switch {
	case m == nil:
	case err == nil:
		m.succeeded(took)
	default:
		g := l.givenUp()
		g.took += took
		switch {
		case NoRoute(err):
			g.away, g.tries = m, 0
		case g.partly: // what it has tried, it tried for another reason
			g.members, g.skipped = g.members[:0], 0
		default:
			g.tries++
		}
		g.partly = false
		m.failed(err)
	}
}

// Back gives the lease the member back to which this host has lost its route, whether or not it has room; nil: there is none. It is for
// flows that go on where they were if there is nothing else for them, because their sockets towards it are still there. When such a flow picks
// again, it may try all others again: they may be back before that one.
func (l *Lease) Back() *Member {
	if l.given == nil || l.given.away == nil || l.member != nil {
		return nil
	}
	m := l.given.away
	l.given = nil
	l.hold(m)
	return m
}

// Left is called when the flow has an upstream other than the one to which this host has lost its route: there is nothing to go back to.
func (l *Lease) Left() {
	if l.given != nil {
		l.given.away = nil
	}
}

// BackForNow is Back for a flow that has tried so many other members that it has to wait before it tries the rest; nil: it has not.
func (l *Lease) BackForNow() *Member {
	g := l.given
	if g == nil || g.away == nil || g.tries < triesAtOnce || l.member == nil {
		return nil
	}
	l.abandonMember()
	m := g.away
	g.members = slices.DeleteFunc(g.members, func(o *Member) bool { return o == m })
	g.away, g.partly = nil, true
	l.hold(m)
	return m
}

// hold gives the lease a slot of m without asking.
func (l *Lease) hold(m *Member) {
	l.member = m
	m.active.Add(1)
	if t := m.tier.Load(); t != nil {
		t.released(m, false) // which reads its flows again
	}
}

// Answered records how long the lease's member took until its first byte, once for each flow. 0: it sent none.
func (l *Lease) Answered(firstByte time.Duration) {
	if m := l.Member(); m != nil && firstByte > 0 {
		m.counts.add(answersAt, 1)
		m.counts.add(answerTimeAt, int64(firstByte))
	}
}

// Release releases what the lease holds: the member's slot, or the place in the queue. It is
// called at the flow's end. The lease is empty afterwards.
func (l *Lease) Release() {
	g := l.group
	if g == nil {
		return
	}
	if l.place != nil {
		g.queue.leave(l)
	}
	if l.member != nil {
		g.releaseSlot(l.member)
	}
	*l = Lease{}
}

// givenUp returns what l knows of the members that it has given up, which it makes if there is nothing.
func (l *Lease) givenUp() *givenUp {
	if l.given == nil {
		l.given = new(givenUp)
		l.given.members = l.given.array[:0]
	}
	return l.given
}

// tried returns the members that the flow will not try again.
func (l *Lease) tried() []*Member {
	if l.given == nil {
		return nil
	}
	return l.given.members
}

// abandonMember ends the attempt on a member that failed: the flow will not try it again.
func (l *Lease) abandonMember() {
	g := l.givenUp()
	g.members = append(g.members, l.member)
	m := l.member
	l.member = nil
	l.group.releaseSlot(m)
}

// Skip returns the slot of the lease's member: the flow will not try it, and that does not count as
// an attempt.
func (l *Lease) Skip() {
	if l.Member() != nil {
		l.abandonMember()
		l.given.skipped++
	}
}

// take tries to reserve a slot of m. full reports that only a free slot was missing.
func (l *Lease) take(m *Member) (ok, full bool) {
	if !l.canUse(m) {
		return false, false
	}
	if !m.reserve() {
		return false, true
	}
	return true, false
}

// canUse reports whether the flow may use m, apart from a free slot.
func (l *Lease) canUse(m *Member) bool {
	return m.acceptsFlows.Load() && !slices.Contains(l.tried(), m)
}

// failure returns the reason of an exhausted lease: only a group with retries has a limit of
// retries that can be reached.
func (l *Lease) failure(cfg *spec.Group) spec.Reason {
	if cfg.Retries == 0 {
		return spec.ReasonConnectFailed
	}
	return spec.ReasonRetries
}

// exhausted reports whether no further attempt is allowed.
func (l *Lease) exhausted(cfg *spec.Group) bool {
	if l.given == nil {
		return false
	}
	budget, attempts := cfg.Timeouts.Retries, len(l.given.members)-l.given.skipped
	return attempts > cfg.Retries || attempts > 0 && budget > 0 && l.given.took >= budget
}
