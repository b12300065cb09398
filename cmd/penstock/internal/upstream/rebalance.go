package upstream

import (
	"slices"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A Surplus is what members of a group have more than their part of its flows.
type Surplus struct {
	Since   time.Time // when a member joined: flows that began before may end
	Said    spec.Rebalance
	Flows   int // of all members that are compared
	Members []MemberSurplus
}

// A MemberSurplus is how many flows of a member are too many.
type MemberSurplus struct {
	Member *Member
	Flows  int
}

// Surplus returns who has too many flows, those with most of them for their weight first. A group that has nobody is in balance, and stays so until
// the next member joins.
func (g *Group) Surplus() (s Surplus) {
	g.set.mu.Lock()
	defer g.set.mu.Unlock()
	if g.joined.IsZero() || g.removed.Load() || !g.rebalances() {
		g.setJoined(time.Time{})
		return s
	}
	s.Since, s.Said = g.joined, *g.cfg.Rebalance
	now := time.Now()
	var compared []*Member
	weights := 0
	weight := func(m *Member) int { return m.weight() * m.slowStartStep(now) }
	for _, m := range g.members {
		if m.counted.class >= degraded && !m.backup { // others accept flows only because their group panics
			compared = append(compared, m)
		}
	}
	first := maxPriority
	for _, m := range compared {
		first = min(first, m.priority)
	}
	compared = slices.DeleteFunc(compared, func(m *Member) bool { return m.priority != first })
	for _, m := range compared {
		s.Flows += m.Active()
		weights += weight(m)
	}
	slowStart := false
	for _, m := range compared {
		part := float64(s.Flows) * float64(weight(m)) / float64(max(1, weights))
		if over := m.Active() - int(part*(1+s.Said.Tolerance)) - 1; over > 0 {
			s.Members = append(s.Members, MemberSurplus{m, over})
		}
		slowStart = slowStart || m.slowStartStep(now) < slowStartSteps
	}
	slices.SortStableFunc(s.Members, func(a, b MemberSurplus) int {
		return b.Member.Active()*weight(a.Member) - a.Member.Active()*weight(b.Member)
	})
	if len(s.Members) == 0 && !slowStart {
		g.setJoined(time.Time{})
	}
	return s
}

// rebalances reports whether the group's flows may move: a client that comes back to the same member would gain nothing, and where zones are
// preferred, members have different numbers of flows on purpose. The caller holds the Set's lock.
func (g *Group) rebalances() bool {
	return g.cfg.Rebalance != nil && spec.Spreads(g.cfg)
}

// join notes that a member has begun to accept flows. The caller holds the Set's lock.
func (g *Group) join(now time.Time) {
	if !g.rebalances() {
		return
	}
	g.setJoined(now)
	if tell := g.set.opt.Joined; tell != nil {
		g.set.jobs.add(func() { tell(g) })
	}
}

// joinAgain goes on with what the process before has begun. The caller holds the Set's lock.
func (g *Group) joinAgain() {
	if !g.joined.IsZero() {
		g.join(g.joined)
	}
}

func (g *Group) setJoined(at time.Time) {
	if !g.joined.Equal(at) {
		g.joined = at
		g.set.touch()
	}
}
