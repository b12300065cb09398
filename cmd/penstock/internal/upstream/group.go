package upstream

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Group is a set of members. The pointer is the same for as long as the
// configuration has a group of that name. The exported methods are safe for
// concurrent use and do not block.
type Group struct {
	name    string
	set     *Set
	table   atomic.Pointer[table]
	turn    atomic.Uint64 // of round-robin
	heap    heapLock      // of least-connections
	queue   queue
	removed atomic.Bool // set under the Set's lock

	groupState
}

// groupState is what the Set's lock guards.
type groupState struct {
	cfg            *spec.Group
	members        []*Member // in the file's order; those of one name by address
	buildScheduled bool      // the table is to be built again soon
	slowStartTimer *time.Timer
	hadMembers     bool // has had a table with members
	panic          bool // too few members are well: all take flows
}

// Name is the group's name.
func (g *Group) Name() string { return g.name }

// Gone tells whether the configuration no longer has the group. It has no members then,
// and who waited for one was resumed: Pick gives none.
func (g *Group) Removed() bool { return g.removed.Load() }

// Config is what the configuration in force says about the group.
func (g *Group) Config() *spec.Group { return g.table.Load().cfg }

// Len is the number of members, well or not.
func (g *Group) Len() int { return g.table.Load().members }

// Open reports whether a member takes flows, a free slot apart.
func (g *Group) Open() bool {
	t := g.table.Load()
	for _, b := range [2]*balance{&t.primary, &t.backup} {
		if slices.ContainsFunc(b.shares, func(s weightedMember) bool { return s.m.acceptsFlows.Load() }) {
			return true
		}
	}
	return false
}

// Pick gives a flow a member to connect to: the first time, and again after
// each failed attempt, then one that the flow has not tried. The lease holds a
// slot of the member until the next Pick or Release.
//
// With no member the reason says why; and if it is ReasonNone, every member is
// down or at its cap, and the flow may wait: see [Group.Wait]. Flows are not sent to members
// that are known to be down, unless the group panics: see spec.Group.Panic.
func (g *Group) Pick(l *Lease, client, local netip.AddrPort) (*Member, spec.Reason) {
	t := g.table.Load()
	switch {
	case l.group == nil:
		l.group = g
		l.seed = t.begin(g, client, local)
	case l.everQueued:
		m, again := g.queue.resumed(l)
		if m != nil || again {
			return m, spec.ReasonNone
		}
	}
	if l.member != nil {
		l.abandonMember()
	}
	if l.exhausted(t.cfg) {
		return nil, l.failure(t.cfg)
	}
	if waiting := g.queue.len(); waiting > 0 { // nobody overtakes those who wait
		if waiting >= t.cfg.Queue.Size {
			return nil, spec.ReasonQueueFull
		}
		return nil, spec.ReasonNone
	}
	m, full := t.pick(g, l)
	switch {
	case m != nil:
		l.member = m
		return m, spec.ReasonNone
	case full && t.cfg.Queue.Size > 0:
		return nil, spec.ReasonNone
	case full:
		return nil, spec.ReasonQueueFull
	case len(l.tried) > 0:
		return nil, spec.ReasonConnectFailed
	case t.cfg.Queue.Size > 0 && !g.removed.Load():
		return nil, spec.ReasonNone // one may come up before it has waited for too long
	}
	return nil, spec.ReasonNoMember
}

// Wait puts the flow behind those that wait for a slot. With no member and
// ReasonNone it waits: when its turn comes a slot is reserved for it, and r is
// resumed; Pick then gives it that member. A member may have come free in the
// meantime, which Wait gives like Pick. ReasonQueueFull says that there is no
// room. Who waits goes on waiting if all members go down. Resume may be called
// under locks of the Set: it must not call the Set or a Lease.
//
// A flow that does not want to wait any longer says Release.
func (g *Group) Wait(l *Lease, r Resumer) (*Member, spec.Reason) {
	t := g.table.Load()
	m, full := g.queue.enter(l, r, t.cfg.Queue.Size, func() *Member {
		m, _ := g.table.Load().pick(g, l)
		return m
	})
	if full {
		return nil, spec.ReasonQueueFull
	}
	return m, spec.ReasonNone
}

// giveBack returns a slot, which goes to the first in the queue.
func (g *Group) releaseSlot(m *Member) {
	g.heap.release(g, m)
	g.wake()
}

// wake reserves slots for those who wait, first come first, and resumes them.
func (g *Group) wake() {
	for g.queue.len() > 0 {
		r := g.queue.next(func(l *Lease) *Member {
			m, _ := g.table.Load().pick(g, l)
			return m
		})
		if r == nil {
			return
		}
		r.Resume()
	}
}
