package upstream

import (
	"time"

	"github.com/penstock/penstock/relay"
)

// A State is a member's state. In Checking, Up and SlowStart a member accepts flows: one whose
// first check has not ended is assumed to be up.
type State uint8

// The states. If several apply, the first is shown. A member begins as Removed, and its first event is from New.
const (
	Removed  State = iota // from the configuration, or no longer discovered
	Disabled              // by an operator; not checked either
	Drained               // by the file, by what was discovered, or by an operator
	Down                  // checks fail, or its registry says that it is unhealthy
	Ejected               // for a time, after failed connects
	Checking
	SlowStart
	Up
	New // of events only
)

var stateNames = [...]string{"removed", "disabled", "drained", "down", "ejected", "checking", "slow start", "up", "new"}

func (s State) String() string { return stateNames[s] }

// A MemberEvent is a change of a member's state.
type MemberEvent struct {
	At       time.Time
	Group    string
	Member   string
	Addr     relay.Addr
	From, To State
	Why      string // the check's or the last connect's error, or the operator's request; one line
}

// settings are the file's or an operator's settings of a member.
type settings struct {
	weight int
	mode   Mode
}

// updateState recomputes m's state and reports a change. The caller holds the Set's lock.
func (g *Group) updateState(m *Member, now time.Time, why string) {
	was := m.acceptsFlows.Load()
	g.count(m, m.currentState())
	g.updatePanic()
	g.settle(m, was, now, why)
}

// settle makes m accept flows, or not, as it was counted, and reports a change of its state. was is whether it accepted
// flows before. The caller holds the Set's lock.
func (g *Group) settle(m *Member, was bool, now time.Time, why string) {
	state := m.currentState()
	takes := m.counted.acceptsFlows()
	if takes && !was && g.hadMembers {
		if g.cfg.SlowStart > 0 {
			m.slowStartSince = now
		}
		g.join(now)
	} else if state >= Checking && m.state < Checking && g.hadMembers { // it accepted flows, because its group panicked
		g.join(now)
	}
	if state == Up && m.slowStartStep(now) < slowStartSteps {
		state = SlowStart
	}
	if m.accept(takes) {
		g.scheduleBuild()
	}
	if from := m.state; state != from {
		if state == Down && m.health.effective() != failing {
			why = "its registry says " + string(m.reported)
			if m.agent.says.down() {
				why = m.agent.says.why()
			}
		}
		m.state, m.since, m.why = state, now, why
		g.set.touch()
		if event := g.set.opt.MemberChanged; event != nil {
			if from == Removed {
				from = New
			}
			e := MemberEvent{now, g.name, m.name, m.addr, from, state, why}
			g.set.jobs.add(func() { event(e) })
		}
	}
	g.updateEnds(m, state, now)
}

// difference returns what a change of something that is counted adds to the count.
func difference(was, is bool) int {
	switch {
	case is && !was:
		return 1
	case was && !is:
		return -1
	}
	return 0
}

// accept sets whether m accepts flows, and reports whether that is a change. Before the last member that flows find
// closes, they can find the others. The caller holds the Set's lock.
func (m *Member) accept(takes bool) bool {
	g := m.group
	if m.acceptsFlows.Load() == takes {
		return false
	}
	if takes {
		m.acceptsFlows.Store(true)
		g.accepting.Add(1)
		if t := m.tier.Load(); t != nil {
			t.room.free(m)
		}
		return true
	}
	if m.listed && g.listed == 1 && g.accepting.Load() > 1 {
		g.buildTable(time.Now())
	}
	m.acceptsFlows.Store(false)
	g.accepting.Add(-1)
	if m.listed {
		m.listed = false
		g.listed--
	}
	if g.listed == 0 && g.accepting.Load() > 0 { // the table leaves out localities without weight
		g.buildTable(time.Now())
	}
	return true
}

// mode returns the effective mode: an operator's, or else what closes most of what the file, or a registry, and the
// member's agent say. An agent that is ready takes back what it has said itself.
func (m *Member) mode() Mode {
	if m.override.mode != AsFile {
		return m.override.mode
	}
	if m.agent.says.zero() && m.override.weight == 0 {
		return max(m.configured.mode, m.agent.says.mode, Drain)
	}
	return max(m.configured.mode, m.agent.says.mode)
}

// currentState returns the member's state, except for slow start.
func (m *Member) currentState() State {
	mode := m.mode()
	switch {
	case m.removed.Load():
		return Removed
	case mode == Disable:
		return Disabled
	case mode == Drain:
		return Drained
	case m.health.effective() == failing, m.agent.says.down(), m.reported == Unhealthy:
		return Down
	case m.ejected:
		return Ejected
	case m.health.effective() == unknown && m.checker != nil:
		return Checking
	}
	return Up
}

// weight returns the effective weight: an operator's, or else the share of the configured one that the member's agent
// says.
func (m *Member) weight() int {
	if m.override.weight != 0 {
		return m.override.weight
	}
	return m.agent.says.of(max(1, m.configured.weight))
}

// slowStartSteps is the number of steps in which the weight of a member grows after it came up.
const slowStartSteps = 20

// slowStartStep returns the step that the member has reached.
func (m *Member) slowStartStep(now time.Time) int {
	d := m.group.cfg.SlowStart
	if m.slowStartSince.IsZero() || d <= 0 || now.Sub(m.slowStartSince) >= d {
		return slowStartSteps
	}
	return min(slowStartSteps, 1+int(slowStartSteps*now.Sub(m.slowStartSince)/d))
}
