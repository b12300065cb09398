package upstream

import (
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// A State is a member's state. In Checking, Up and SlowStart a member accepts flows: one whose
// first check has not ended is assumed to be up.
type State uint8

// The states. If several apply, the first is shown. A member begins as Removed.
const (
	Removed  State = iota // from the configuration, or no longer discovered
	Disabled              // by an operator; not checked either
	Drained               // by the file, by what was discovered, or by an operator
	Down                  // checks fail
	Ejected               // for a time, after failed connects
	Checking
	SlowStart
	Up
)

var stateNames = [...]string{"removed", "disabled", "drained", "down", "ejected", "checking", "slow start", "up"}

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
	was, state := m.acceptsFlows.Load(), m.currentState()
	takes := g.acceptsFlows(state)
	if takes && !was && g.hadMembers && g.cfg.SlowStart > 0 {
		m.slowStartSince = now
	}
	if state == Up && m.slowStartStep(now) < slowStartSteps {
		state = SlowStart
	}
	if takes != was {
		m.acceptsFlows.Store(takes)
		g.scheduleBuild()
	}
	if from := m.state; state != from {
		m.state, m.since, m.why = state, now, why
		g.set.touch()
		if event := g.set.opt.MemberChanged; event != nil {
			e := MemberEvent{now, g.name, m.name, m.addr, from, state, why}
			g.set.jobs.add(func() { event(e) })
		}
		g.updatePanic()
	}
}

// acceptsFlows reports whether a member in a state accepts flows.
func (g *Group) acceptsFlows(state State) bool {
	return state >= Checking || g.panic && (state == Down || state == Ejected)
}

// updatePanic begins or ends the group's panic: when so few members are up, it is more likely that
// the checks are wrong, or that these members would break down under the load of all. The caller
// holds the Set's lock.
func (g *Group) updatePanic() {
	if g.cfg.Panic == 0 && !g.panic {
		return
	}
	well, all := 0, 0
	for _, m := range g.members {
		switch state := m.currentState(); {
		case state >= Checking:
			well++
			all++
		case state == Down, state == Ejected:
			all++
		}
	}
	panics := float64(well) < g.cfg.Panic*float64(all)
	if panics == g.panic {
		return
	}
	g.panic = panics
	for _, m := range g.members {
		m.acceptsFlows.Store(g.acceptsFlows(m.currentState()))
	}
	g.scheduleBuild()
	if tell := g.set.opt.PanicChanged; tell != nil {
		name := g.name
		g.set.jobs.add(func() { tell(name, panics, well, all) })
	}
}

// currentState returns the member's state, except for slow start.
func (m *Member) currentState() State {
	mode := m.configured.mode
	if m.override.mode != AsFile {
		mode = m.override.mode
	}
	switch {
	case m.removed.Load():
		return Removed
	case mode == Disable:
		return Disabled
	case mode == Drain:
		return Drained
	case m.health.state == failing:
		return Down
	case m.ejected:
		return Ejected
	case m.health.state == unknown && m.checker != nil:
		return Checking
	}
	return Up
}

// weight returns the effective weight.
func (m *Member) weight() int {
	if m.override.weight != 0 {
		return m.override.weight
	}
	return max(1, m.configured.weight)
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

// buildDelay is how long changes are collected before the table is rebuilt. A member that goes
// down gets no flows meanwhile; one that comes up waits for the table.
const buildDelay = 50 * time.Millisecond

// scheduleBuild has the table rebuilt soon. The caller holds the Set's lock.
func (g *Group) scheduleBuild() {
	if g.buildScheduled || !g.hadMembers {
		return
	}
	g.buildScheduled = true
	g.set.after(buildDelay, func(now time.Time) { g.buildTable(now) })
}

// buildTable builds the table from the present members. The caller holds the Set's lock.
func (g *Group) buildTable(now time.Time) {
	g.buildScheduled = false
	var all [2][]weightedMember // primaries, backups
	var steps map[*Member]int
	for _, m := range g.members {
		if m.acceptsFlows.Load() {
			if step := m.slowStartStep(now); step < slowStartSteps {
				if steps == nil {
					steps = make(map[*Member]int)
				}
				steps[m] = step
			} else if m.state == SlowStart {
				g.updateState(m, now, "slow start is over")
			}
		}
		which := 0
		if m.backup {
			which = 1
		}
		all[which] = append(all[which], weightedMember{m, m.weight()})
	}
	if steps != nil && g.slowStartTimer == nil {
		g.slowStartTimer = g.set.after(g.cfg.SlowStart/slowStartSteps, func(now time.Time) {
			g.slowStartTimer = nil
			g.buildTable(now)
		})
	}
	old := g.table.Load()
	if old == nil {
		old = &table{}
	}
	g.table.Store(&table{
		cfg: g.cfg, members: slices.Clone(g.members),
		primary: newBalancer(&candidates{cfg: g.cfg, all: all[0], steps: steps, old: old.primary}),
		backup:  newBalancer(&candidates{cfg: g.cfg, all: all[1], steps: steps, old: old.backup}),
	})
	g.hadMembers = g.hadMembers || len(g.members) > 0
	g.wake()
}

// A memberSpec is a member as configured or discovered.
type memberSpec struct {
	name       string
	addr       relay.Addr
	ports      int // from that of addr on
	settings   settings
	limit      int
	backup     bool
	discovered bool
	literal    bool // has one address, which needs no lookup
}

// refresh updates the members from the configuration and discovery, and builds the table. why says
// what changed. The caller holds the Set's lock.
func (g *Group) refresh(now time.Time, why string) {
	type key struct {
		name  string
		addr  relay.Addr
		ports int
	}
	old := make(map[key]*Member, len(g.members))
	for _, m := range g.members {
		old[key{m.name, m.addr, m.ports}] = m
	}
	wants := g.configuredMembers()
	members := make([]*Member, 0, len(wants))
	seen := make(map[key]bool, len(wants))
	for _, w := range wants {
		k := key{w.name, w.addr, w.ports}
		if seen[k] {
			continue
		}
		seen[k] = true
		m := old[k]
		if m == nil {
			m = &Member{name: w.name, addr: w.addr, ports: w.ports, group: g}
			m.counts = newMemberCounts(g.set.tables.members, m.id())
			m.since, m.configured = now, w.settings
			// A member that moves keeps its operator's settings.
			if m.restore(now) {
			} else if i := slices.IndexFunc(g.members, func(was *Member) bool { return was.name == w.name }); i >= 0 && w.literal {
				m.configured, m.override = g.members[i].configured, g.members[i].override
			}
		}
		delete(old, k)
		if m.configured.weight != w.settings.weight {
			m.override.weight = 0
		}
		if m.configured.mode != w.settings.mode {
			m.override.mode = AsFile
		}
		m.configured, m.backup, m.discovered = w.settings, w.backup, w.discovered
		m.limit.Store(int32(w.limit))
		members = append(members, m)
	}
	g.members = members
	for _, m := range members {
		m.updateChecker()
		g.updateState(m, now, why)
	}
	g.updatePanic()
	for _, m := range old {
		m.remove(now, strings.Replace(why, "found", "no longer found", 1))
	}
	g.buildTable(now)
}

// configuredMembers returns the members in the file's order, those of one entry by address.
func (g *Group) configuredMembers() (ws []memberSpec) {
	for _, m := range g.cfg.Members {
		w := memberSpec{name: m.Name, ports: m.To.Ports(), settings: settings{weight: m.Weight}, limit: m.MaxFlows, backup: m.Backup}
		if m.Drained {
			w.settings.mode = Drain
		}
		if w.name == "" {
			w.name = m.To.String()
		}
		if addr, ok := m.To.Literal(); ok {
			w.addr, w.literal = addr, true
			ws = append(ws, w)
			continue
		}
		for _, t := range g.set.watches[lookupOf(g.cfg, m.To)].targets {
			w.addr = t.Addr
			ws = append(ws, w)
		}
	}
	for _, d := range g.cfg.Discover {
		for _, t := range g.set.watches[lookupKey(g.cfg, d)].targets {
			w := memberSpec{name: t.Name, addr: t.Addr, ports: 1, settings: settings{weight: t.Weight}, limit: d.MaxFlows, backup: t.Backup, discovered: true}
			if w.name == "" {
				w.name = t.Addr.String()
			}
			if d.Weight != 0 {
				w.settings.weight = d.Weight
			}
			if t.Draining {
				w.settings.mode = Drain
			}
			ws = append(ws, w)
		}
	}
	return ws
}

// remove takes a group out of service. The caller holds the Set's lock.
func (g *Group) remove(now time.Time) {
	for _, m := range g.members {
		m.remove(now, "configured")
	}
	g.members = nil
	g.removed.Store(true)
	g.row.Remove()
	g.cfg = &spec.Group{Name: g.name, Balance: g.cfg.Balance}
	g.buildTable(now)
	for _, r := range g.queue.close() {
		r.Resume()
	}
}

// remove takes a member out of service and reports it. The caller holds the Set's lock.
func (m *Member) remove(now time.Time, why string) {
	m.removed.Store(true)
	m.counts.row.Remove()
	m.stopTimers()
	m.group.updateState(m, now, why)
	if gone := m.group.set.opt.MemberRemoved; gone != nil {
		m.group.set.jobs.add(func() { gone(m) })
	}
}

// stopTimers stops the member's checks and timers.
func (m *Member) stopTimers() {
	if m.checker != nil {
		m.checker.stop()
		m.checker = nil
	}
	if m.ejectTimer != nil {
		m.ejectTimer.Stop()
	}
}
