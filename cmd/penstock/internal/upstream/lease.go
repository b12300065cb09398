package upstream

import (
	"slices"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Lease is one flow's claim on a member. The zero value is ready. It belongs to
// the flow and stays where it is in memory; its methods and [Group.Pick] are
// called on the flow's loop, never two at a time.
//
//	empty ──Pick──▶ held ──Pick after a failure──▶ held (another member)
//	  │ Wait           ▲                              │ Release
//	  ▼                │ Pick                         ▼
//	queued ──slot──▶ reserved ──────Release───────▶ empty
type Lease struct {
	group      *Group
	seed       uint64        // where on the table the flow's search begins
	failedTime time.Duration // on attempts that failed
	tried      []*Member
	triedArray [1]*Member // room for tried, so that the first retry allocates nothing

	// Under the queue's lock while waited.
	member     *Member // one of its slots is this lease's
	resume     Resumer
	prev, next *Lease
	state      leaseState

	everQueued bool // has been in the queue: state is to be read under its lock
}

type leaseState uint8

const (
	notQueued leaseState = iota
	queued
	reserved // resumed: member is set, and Pick has not given it out yet
)

// Resumer is told that a parked flow may go on. Resume is called once at most
// for each Wait, from any goroutine, and does nothing if the flow is no more.
type Resumer interface{ Resume() }

// Member is the member that Pick gave last and that the lease still holds; nil
// if there is none.
func (l *Lease) Member() *Member {
	if l.everQueued {
		l.group.queue.mu.Lock()
		defer l.group.queue.mu.Unlock()
	}
	return l.member
}

// Connected says how the attempt on the lease's member ended and how long it
// took. Failures in a row eject a member (spec.Eject), a success ends the row.
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

// Release gives back what the lease holds: the member's slot, or the place in
// the queue. It is for the flow's end, and the lease is empty after it.
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

// giveUp ends the attempt on a member that failed: the flow will not try it again.
func (l *Lease) abandonMember() {
	if l.tried == nil {
		l.tried = l.triedArray[:0]
	}
	l.tried = append(l.tried, l.member)
	m := l.member
	l.member = nil
	l.group.releaseSlot(m)
}

// take tries to get a slot of m for the lease. full says that this is all that
// stands in the way.
func (l *Lease) take(m *Member) (ok, full bool) {
	if !l.canUse(m) {
		return false, false
	}
	if !m.reserve() {
		return false, true
	}
	return true, false
}

// may tells whether m is for this lease, a free slot apart.
func (l *Lease) canUse(m *Member) bool { return m.acceptsFlows.Load() && !slices.Contains(l.tried, m) }

// failure is the reason of a lease that is exhausted: only what may be retried has a budget that
// can be used up.
func (l *Lease) failure(cfg *spec.Group) spec.Reason {
	if cfg.Retries == 0 {
		return spec.ReasonConnectFailed
	}
	return spec.ReasonRetries
}

// exhausted tells whether there may be no further attempt.
func (l *Lease) exhausted(cfg *spec.Group) bool {
	budget := cfg.Timeouts.Retries
	return len(l.tried) > cfg.Retries || len(l.tried) > 0 && budget > 0 && l.failedTime >= budget
}
