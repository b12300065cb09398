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
// \tempty ──Pick──▶ held ──Pick after a failure──▶ held (another member)
// \t  │ Wait           ▲                              │ Release
// \t  ▼                │ Pick                         ▼
// \tqueued ──slot──▶ reserved ──────Release───────▶ empty
type Lease struct {
	group      *Group
	seed       uint64        // where in the balancer's order the flow begins
	failedTime time.Duration // time spent on failed attempts
	tried      []*Member
	skipped    int        // number of tried that were not tried, see Skip
	triedArray [1]*Member // backing array of tried, so that the first retry does not allocate

	// Guarded by the queue's lock if everQueued.
	member     *Member // one of its slots is this lease's
	resume     Resumer
	prev, next *Lease
	state      leaseState

	everQueued bool // it has been queued: read state under the queue's lock
}

type leaseState uint8

const (
	notQueued leaseState = iota
	queued
	reserved // resumed: member is set, and Pick has not returned it yet
)

// A Resumer is notified when a queued flow may continue. Resume is called at most once for each
// Wait, from any goroutine. It does nothing if the flow has ended.
type Resumer interface{ Resume() }

// Member returns the member that the lease holds; nil if there is none.
func (l *Lease) Member() *Member {
	if l.everQueued {
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
		l.failedTime += took
		m.failed(err)
	}
}

// Release releases what the lease holds: the member's slot, or the place in the queue. It is
// called at the flow's end. The lease is empty afterwards.
func (l *Lease) Release() {
	g := l.group
	if g == nil {
		return
	}
	if l.everQueued {
		g.queue.leave(l)
	}
	if l.member != nil {
		g.releaseSlot(l.member)
	}
	*l = Lease{}
}

// abandonMember ends the attempt on a member that failed: the flow will not try it again.
func (l *Lease) abandonMember() {
	if l.tried == nil {
		l.tried = l.triedArray[:0]
	}
	l.tried = append(l.tried, l.member)
	m := l.member
	l.member = nil
	l.group.releaseSlot(m)
}

// Skip returns the slot of the lease's member: the flow will not try it, and that does not count as
// an attempt.
func (l *Lease) Skip() {
	if l.Member() != nil {
		l.abandonMember()
		l.skipped++
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
func (l *Lease) canUse(m *Member) bool { return m.acceptsFlows.Load() && !slices.Contains(l.tried, m) }

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
	budget, attempts := cfg.Timeouts.Retries, len(l.tried)-l.skipped
	return attempts > cfg.Retries || attempts > 0 && budget > 0 && l.failedTime >= budget
}
