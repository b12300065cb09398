package upstream

import (
	"slices"
	"time"
)

// buildDelay is how long changes are collected before the table is rebuilt. A member that goes
// down gets no flows meanwhile; one that comes up waits for the table.
const buildDelay = 50 * time.Millisecond

// Limits of rebuilding the tables of large groups, however often their members change.
const (
	largeGroup = 256         // members
	buildShare = 50          // of the time, one part is spent on building
	maxWait    = time.Second // so that a slow moment does not delay the next table for long
)

// scheduleBuild has the table rebuilt soon, or rebuilds it if flows find nobody in it, and there is somebody. The caller
// holds the Set's lock.
func (g *Group) scheduleBuild() {
	switch {
	case !g.hadMembers:
		return
	case g.listed == 0 && g.accepting.Load() > 0:
		g.buildTable(time.Now())
		return
	case g.buildScheduled:
		return
	}
	g.buildScheduled = true
	g.set.after(max(buildDelay, time.Until(g.buildAfter)), func(now time.Time) {
		if g.buildScheduled {
			g.buildTable(now)
		}
	})
}

// buildForAnswer builds the table after a lookup has changed the members: at once, or soon if that was
// done a moment ago and takes its time. The few members that stay must not carry the flows of all
// meanwhile. The caller holds the Set's lock.
func (g *Group) buildForAnswer(now time.Time) {
	if now.Before(g.buildAfter) && g.hadMembers && 2*g.added <= len(g.members) {
		g.scheduleBuild()
	} else {
		g.buildTable(now)
	}
}

// buildTable builds the table from the present members. The caller holds the Set's lock.
func (g *Group) buildTable(now time.Time) {
	start := time.Now()
	g.buildScheduled, g.added = false, 0
	slowStart := false
	for _, m := range g.members {
		m.missingSteps = 0
		if m.slowStartSince.IsZero() || !m.acceptsFlows.Load() {
			continue
		}
		if step := m.slowStartStep(now); step < slowStartSteps {
			m.missingSteps = slowStartSteps - step
			slowStart = true
		} else if m.state == SlowStart {
			g.updateState(m, now, "slow start is over")
		}
	}
	old := g.table.Load()
	if old == nil {
		old = &table{}
	}
	sorted := g.sortMembers()
	t := &table{cfg: g.cfg, members: g.members, tiers: make([]tier, len(sorted.keys)), byServer: g.byServer()}
	for i, k := range sorted.keys {
		c := candidates{cfg: g.cfg, all: sorted.members[i], slowStart: slowStart, turn: &g.turn}
		if at := slices.IndexFunc(old.tiers, func(t tier) bool { return t.tierKey == k }); at >= 0 {
			c.old, c.state = old.tiers[at].balancer, old.tiers[at].state
		}
		if c.state == nil || old.cfg.Balance != g.cfg.Balance {
			c.state = &tierState{}
		}
		t.tiers[i] = tier{tierKey: k, balancer: newBalancer(&c), state: c.state}
	}
	for _, m := range old.members {
		m.listed = false
	}
	g.listed = 0
	for i := range t.tiers {
		for _, w := range sorted.members[i] {
			w.m.moveTo(t.tiers[i].state)
			if w.m.listed = w.m.acceptsFlows.Load(); w.m.listed {
				g.listed++
			}
		}
	}
	t.setShares(sorted.shares)
	g.table.Store(t)
	for i := range t.tiers {
		if b, ok := t.tiers[i].balancer.(interface{ begin() }); ok {
			b.begin()
		}
	}
	g.hadMembers = g.hadMembers || len(g.members) > 0
	if took := time.Since(start); len(g.members) > largeGroup {
		g.buildAfter = time.Now().Add(min(buildShare*took, maxWait))
	} else {
		g.buildAfter = time.Time{}
	}
	if slowStart && g.slowStartTimer == nil {
		wait := max(g.cfg.SlowStart/slowStartSteps, time.Until(g.buildAfter))
		g.slowStartTimer = g.set.after(wait, func(now time.Time) {
			g.slowStartTimer = nil
			g.buildTable(now)
		})
	}
	if g.primaryAway {
		g.decideFailback(time.Now())
	}
	g.wake()
}

// step returns how far a member is in slow start, in the last table.
func (m *Member) step() int { return slowStartSteps - m.missingSteps }
