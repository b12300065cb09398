package upstream

import (
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// An End is an occasion on which flows of members end. It never changes, and its pointer identifies the occasion.
type End struct {
	Cause  relay.Cause
	Reason spec.Reason // of CauseDown: ReasonCheckFailed, ReasonUnhealthy or ReasonEjected
	Since  time.Time   // flows that have begun before end
}

// End returns the occasion on which flows of m end, and what its group says of such flows; nil: they continue. A member that is up again, or
// a backup without a primary that is up, has no End.
func (m *Member) End() (*End, spec.LiveFlows) {
	e := m.end.Load()
	if e == nil {
		return nil, spec.LiveFlows{}
	}
	said := m.group.Config().Down
	if e.Cause == relay.CauseFailback {
		said = m.group.Config().Up
	}
	if said.Keeps() {
		return nil, spec.LiveFlows{}
	}
	return e, said
}

// memberEnds is guarded by the Set's lock.
type memberEnds struct {
	failedSince time.Time // checks fail, its agent or its registry says that it is down, or it is ejected; zero: none of these
	downEnd     *End      // of its flows; nil: they go on
	primaryUp   bool      // it is a primary, and known to be up
}

// groupEnds is guarded by the Set's lock.
type groupEnds struct {
	primariesUp int       // see memberEnds
	primaryAway bool      // since no primary accepted flows, none has been up
	failback    *End      // of flows of backups; nil: they go on
	keptTold    time.Time // when FlowsKept was last called
	joined      time.Time // when a member last began to accept flows; zero: flows are in balance since
}

// failure returns why a member does not do its work, whether or not operators have drained it; ReasonNone: it does.
func (m *Member) failure() spec.Reason {
	switch {
	case m.removed.Load(), m.mode() == Disable:
	case m.health.effective() == failing, m.agent.says.down():
		return spec.ReasonCheckFailed
	case m.reported == Unhealthy:
		return spec.ReasonUnhealthy
	case m.ejected:
		return spec.ReasonEjected
	}
	return spec.ReasonNone
}

// updateEnds begins or ends the occasions on which flows end, after m was counted as of a state. What was decided for a member holds until it
// does its work again; of one that is removed, for ever. The caller holds the Set's lock.
func (g *Group) updateEnds(m *Member, state State, now time.Time) {
	switch reason := m.failure(); {
	case state == Removed:
	case reason == spec.ReasonNone:
		m.failedSince, m.downEnd = time.Time{}, nil
	case m.failedSince.IsZero():
		m.failedSince = now
		if g.cfg.Down.Keeps() || m.counted.acceptsFlows() {
			break
		}
		if failed, all := g.failedWith(m, now); 2*failed > all { // it is more likely that the check is wrong
			g.keepFlows(m, failed, all, now)
		} else {
			m.downEnd = &End{relay.CauseDown, reason, now}
		}
	}
	m.publishEnd()
	g.updateFailback(m, state, now)
}

// failedWith returns how many members of the group have failed at about the same time as m, and how many there are. Drained and disabled members
// do not count. The caller holds the Set's lock.
func (g *Group) failedWith(m *Member, now time.Time) (failed, all int) {
	since := now.Add(-g.atOnce())
	var passed time.Time
	if m.health.state == failing {
		passed = m.health.passed // whatever began to fail before that, it is not what makes m's check fail
	}
	for _, other := range g.members {
		if other.counted.class == uncounted {
			continue
		}
		all++
		if other.failedSince.After(since) && other.failureBegan().After(passed) {
			failed++
		}
	}
	return failed, all
}

// keepFlows counts the flows of a member that has failed together with most of the group: they continue. For members that fail together it says so
// once. The caller holds the Set's lock.
func (g *Group) keepFlows(m *Member, failed, all int, now time.Time) {
	flows := m.Active()
	g.row.Words()[downKeptAt].Add(int64(flows))
	if tell := g.set.opt.FlowsKept; tell != nil && flows > 0 && !g.keptTold.After(now.Add(-g.atOnce())) {
		g.keptTold = now
		name, member := g.name, m.name
		g.set.jobs.add(func() { tell(name, member, failed, all) })
	}
}

// failureBegan returns when a member that has failed did so first: the first of the checks that have brought it down, if these were its own.
func (m *Member) failureBegan() time.Time {
	if h := &m.health; h.state == failing && !h.failed.IsZero() && h.failed.Before(m.failedSince) {
		return h.failed
	}
	return m.failedSince
}

// leastAtOnce is the least time within which members fail at once.
const leastAtOnce = 10 * time.Second

// atOnce returns how long it takes at most, from the moment when checks begin to fail, until all members are down.
func (g *Group) atOnce() time.Duration {
	least := leastAtOnce
	if a := g.cfg.Agent; a != nil {
		least = max(least, a.Every+time.Duration(agentJitter/2*float64(a.Every))+a.Timeout)
	}
	c := g.cfg.Check
	if c == nil {
		return least
	}
	every := c.Every + time.Duration(c.Jitter/2*float64(c.Every))
	return max(least, time.Duration(c.Fall)*(every+c.Timeout))
}

// keepInPanic keeps the flows of members that failed before their level panics. The caller holds the Set's lock.
func (g *Group) keepInPanic() {
	for _, m := range g.members {
		if m.downEnd != nil && m.counted.acceptsFlows() {
			m.downEnd = nil
			m.publishEnd()
		}
	}
}

// updateFailback ends flows of backups when a primary is up again after none was, until none is. The caller holds the Set's lock.
func (g *Group) updateFailback(m *Member, state State, now time.Time) {
	was := m.primaryUp
	m.primaryUp = !m.backup && state >= SlowStart
	g.primariesUp += difference(was, m.primaryUp)
	g.decideFailback(now)
}

// decideFailback is called again with each table: a client whose flow ends comes again at once, and must find the primary, or its next flow is
// at a backup, too, and stays there. The caller holds the Set's lock.
func (g *Group) decideFailback(now time.Time) {
	failback := g.failback
	switch {
	case !g.primaryAccepts():
		g.primaryAway, failback = true, nil
	case g.primaryAway && g.primariesUp > 0 && !g.buildScheduled:
		g.primaryAway = false
		if !g.cfg.Up.Keeps() {
			failback = &End{relay.CauseFailback, spec.ReasonNone, now}
		}
	}
	if failback == g.failback {
		return
	}
	g.failback = failback
	for _, b := range g.members {
		b.publishEnd()
	}
}

// primaryAccepts reports whether a member that is no backup accepts flows, not counting members in a panic.
func (g *Group) primaryAccepts() bool {
	for _, l := range g.levels {
		if t := &l.tally.members; !l.backup && t.healthy+t.degraded > 0 {
			return true
		}
	}
	return false
}

// publishEnd makes End return what holds, and says so. The caller holds the Set's lock.
func (m *Member) publishEnd() {
	end := m.downEnd
	if end == nil && m.backup {
		end = m.group.failback
	}
	if end == m.end.Load() {
		return
	}
	m.end.Store(end)
	m.group.set.touch()
	if look := m.group.set.opt.FlowsEnd; look != nil && end != nil {
		m.group.set.jobs.add(func() { look(m) })
	}
}
