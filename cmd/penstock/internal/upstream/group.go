package upstream

import (
	"regexp"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/counts"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A Group is a set of members. Its pointer stays the same for as long as the configuration has a
// group of that name. The exported methods are safe for concurrent use and do not block.
type Group struct {
	name    string
	set     *Set
	table   atomic.Pointer[table]
	queue   queue
	row     *counts.Row
	removed atomic.Bool // written under the Set's lock

	accepting atomic.Int32  // members that accept flows; written under the Set's lock
	turn      atomic.Uint64 // of round-robin

	groupState
}

// groupState is guarded by the Set's lock.
type groupState struct {
	groupEnds
	file    *spec.Group // as configured
	cfg     *spec.Group // with the changes of operators
	changes memberChanges
	next    *memberChanges // those of the next process; nil: the same. See Set.Next
	// members are in the file's order, those of one name by address. The slice never changes: tables
	// have it too.
	members        []*Member
	byKey          map[nameAndPorts]*Member
	entries        []entry
	refreshes      uint64
	rule           spreadRule
	levels         []*level // of members, in their order
	ejected        int
	listed         int       // members that flows find: those of the last table that accept them
	added          int       // members since the last table
	buildScheduled bool      // the table will be rebuilt soon
	buildAfter     time.Time // of a large group: the table is not rebuilt before, except at a reload
	slowStartTimer *time.Timer
	hadMembers     bool // has had a table with members
	panic          bool // some level panics: too few members are up, so all get flows
	// body is the compiled pattern of checks, of a text.
	body     *regexp.Regexp
	bodyText string
	// expiring has the ends of certificates of members that were told, in Unix seconds, and how near they were.
	expiring map[int64]int
}

// Name returns the group's name.
func (g *Group) Name() string { return g.name }

// Removed reports whether the configuration no longer has the group. It then has no members, Pick
// returns none, and queued flows were resumed.
func (g *Group) Removed() bool { return g.removed.Load() }

// Config returns the group's running configuration.
func (g *Group) Config() *spec.Group { return g.table.Load().cfg }

// Len returns the number of members, in whatever state.
func (g *Group) Len() int { return len(g.table.Load().members) }

// Open reports whether some member accepts flows, whether or not it has room.
func (g *Group) Open() bool {
	return g.accepting.Load() > 0
}

// Pick chooses a member for a flow: when it first connects, and again after each failed attempt,
// then one that the flow has not tried. The lease holds a slot of the member until the next Pick
// or Release.
//
// With no member, the reason says why. If that is ReasonNone, every member is down or at its
// limit, and the flow may be queued: see [Group.Wait]. Members that are known to be down are not
// picked, unless the group is in panic: see spec.Group.Panic.
func (g *Group) Pick(l *Lease, c Client) (*Member, spec.Reason) {
	t := g.table.Load()
	switch {
	case l.group == nil:
		l.group = g
		l.seed = t.seed(c)
	case l.place != nil:
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
	if queued := g.queue.len(); queued > 0 { // new flows do not overtake queued ones
		if queued >= t.cfg.Queue.Size {
			return nil, spec.ReasonQueueFull
		}
		return nil, spec.ReasonNone
	}
	m, full := t.pick(l)
	for m == nil && t != g.table.Load() { // its members may have gone while they were looked at
		t = g.table.Load()
		m, full = t.pick(l)
	}
	switch {
	case m != nil:
		l.member = m
		return m, spec.ReasonNone
	case full && t.cfg.Queue.Size > 0:
		return nil, spec.ReasonNone
	case full:
		return nil, spec.ReasonQueueFull
	case len(l.tried()) > 0:
		return nil, spec.ReasonConnectFailed
	case t.cfg.Queue.Size > 0 && !g.removed.Load():
		return nil, spec.ReasonNone // a member may come up before the queue timeout
	}
	return nil, spec.ReasonNoMember
}

// Wait queues the flow. When a slot becomes free, it is reserved for the first flow in the queue
// and r is resumed; Pick then returns that member. If a member has become free in the meantime,
// Wait returns it like Pick. ReasonQueueFull means that the queue is full. Queued flows stay
// queued if all members go down; a group that gets a destination instead of members resumes them. Resume may be called under locks of the Set: it must not call the
// Set or a Lease.
//
// A flow leaves the queue by Release.
func (g *Group) Wait(l *Lease, r Resumer) (*Member, spec.Reason) {
	t := g.table.Load()
	m, full := g.queue.enter(l, r, t.cfg.Queue.Size, func() *Member {
		m, _ := g.table.Load().pick(l)
		return m
	})
	if full {
		return nil, spec.ReasonQueueFull
	}
	return m, spec.ReasonNone
}

// releaseSlot returns a slot of m, which goes to the first flow in the queue.
func (g *Group) releaseSlot(m *Member) {
	active, most := m.active.Add(-1), m.limit.Load()
	if t := m.tier.Load(); t != nil {
		t.released(m, most > 0 && active+1 >= most)
	}
	g.wake()
}

// wake reserves slots for queued flows, in their order, and resumes them.
func (g *Group) wake() {
	for g.queue.len() > 0 {
		r := g.queue.next(func(l *Lease) *Member {
			m, _ := g.table.Load().pick(l)
			return m
		})
		if r == nil {
			return
		}
		r.Resume()
	}
}
