package upstream

import (
	"cmp"
	"iter"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// A memberSpec is a member as configured or discovered.
type memberSpec struct {
	nameAndPorts
	settings settings
	limit    int
	literal  bool // has one address, which needs no lookup
	policy   Policy
	memberFacts
}

// nameAndPorts identifies a member of a group. The name of a member that is called as its address is
// empty.
type nameAndPorts struct {
	name  string
	addr  relay.Addr
	ports int // from that of addr on
}

// An entry is an entry of a group's members, or of what it discovers.
type entry struct {
	memberSpec
	watch    *watch // finds the addresses, or members; nil: the entry is a member
	discover bool
}

// configure prepares what refresh reads of a new configuration. Its watches must have begun. The
// caller holds the Set's lock.
func (g *Group) configure() {
	g.entries = nil
	for _, m := range g.cfg.Members {
		e := entry{memberSpec: memberSpec{settings: settings{weight: m.Weight}, limit: m.MaxFlows}}
		e.backup, e.ports, e.host = m.Backup, m.To.Ports(), m.To.Host
		e.checked = checkAt{m.CheckAddress, m.CheckPort}
		e.agentAt = agentAt{m.AgentAddress, m.AgentPort, m.AgentSend}
		e.quicServerID = m.QUICServerID
		if m.Drained {
			e.settings.mode = Drain
		}
		if addr, ok := m.To.Literal(); ok {
			e.addr, e.literal = addr, true
			e.name = nameUnless(m.Name, spec.URL(addr, e.ports))
		} else {
			e.name = cmp.Or(m.Name, m.To.String())
			e.watch = g.set.watches[lookupOf(g.cfg, m.To)]
		}
		g.entries = append(g.entries, e)
	}
	for _, d := range g.cfg.Discover {
		e := entry{memberSpec: memberSpec{settings: settings{weight: d.Weight}, limit: d.MaxFlows}, watch: g.set.watches[lookupKey(g.cfg, d)], discover: true}
		e.ports, e.discovered, e.host = 1, true, d.Host
		g.entries = append(g.entries, e)
	}
}

func nameUnless(name, url string) string {
	if name == url {
		return ""
	}
	return name
}

// wanted returns the members in the file's order, those of one entry as the lookup returned them. What
// it yields is valid until the next one.
func (g *Group) wanted() iter.Seq[*memberSpec] {
	return func(yield func(*memberSpec) bool) {
		for i := range g.entries {
			e := g.entries[i] // a copy
			if e.watch == nil {
				if !yield(&e.memberSpec) {
					return
				}
				continue
			}
			weight, mode := e.settings.weight, e.settings.mode
			for i := range e.watch.targets {
				t := &e.watch.targets[i]
				e.addr = t.Addr
				if e.discover {
					e.reported, e.locality, e.policy = t.Health, t.Locality, t.Policy
					e.checked, e.quicServerID = checkAt{t.CheckAddress, t.CheckPort}, string(t.QUICServerID)
					e.name, e.backup, e.zone, e.priority, e.metadata = t.Name, t.Backup, t.Zone, t.Priority, t.Metadata
					if strings.HasPrefix(e.name, "tcp://") || strings.HasPrefix(e.name, "udp://") {
						e.name = nameUnless(e.name, t.Addr.String())
					}
					e.settings = settings{cmp.Or(weight, t.Weight), mode}
				}
				if t.Draining || t.Health == Draining {
					e.settings.mode = Drain
				}
				if !yield(&e.memberSpec) {
					return
				}
				e.settings.mode = mode
			}
		}
	}
}

// matches reports whether m is the member with a name, address and ports.
func (m *Member) matches(k *nameAndPorts) bool {
	return m.addr == k.addr && m.ports == k.ports && m.given == k.name
}

// refresh updates the members from the configuration and discovery, and builds the table. why says
// what changed. Unless everything may have changed, which a new configuration can, only members that
// are new, gone, or described otherwise are looked at more closely. The caller holds the Set's lock.
func (g *Group) refresh(now time.Time, why string, everything bool) {
	g.refreshes++
	if g.byKey == nil {
		g.byKey = make(map[nameAndPorts]*Member)
	}
	before := g.members
	members := make([]*Member, 0, len(before)+16)
	var changed []*Member
	var byName map[string]*Member
	kept, next := 0, 0            // next is where in the list of before the next member is expected
	moves := map[*Member]string{} // why a member is new, or gone, that has moved
	policy := Policy{}
	for w := range g.wanted() {
		if policy == (Policy{}) {
			policy = w.policy
		}
		var m *Member
		if next < len(before) && before[next].matches(&w.nameAndPorts) {
			m = before[next]
			next++
		} else if m = g.byKey[w.nameAndPorts]; m != nil && m.refreshed != g.refreshes {
			next = int(m.index) + 1
		}
		if m != nil && m.refreshed == g.refreshes {
			continue // another entry has it too
		}
		if m != nil {
			kept++
			m.refreshed, m.index = g.refreshes, int32(len(members))
			members = append(members, m)
			if everything || m.configured != w.settings || m.memberFacts != w.memberFacts || m.limitWanted != w.limit {
				m.set(w)
				changed = append(changed, m)
			}
			continue
		}
		m = &Member{name: w.name, given: w.name, addr: w.addr, ports: w.ports, group: g}
		if m.name == "" {
			m.name = spec.URL(m.addr, m.ports)
		}
		m.counts = newMemberCounts(g.set.tables.members, m.id())
		m.since, m.configured = now, w.settings
		if !m.restore(now) && w.literal && len(before) > 0 {
			// A member that moves keeps its operator's settings.
			if byName == nil {
				byName = make(map[string]*Member, len(before))
				for _, was := range before {
					if byName[was.name] == nil && !was.discovered {
						byName[was.name] = was
					}
				}
			}
			if was := byName[m.name]; was != nil {
				m.configured, m.override = was.configured, was.override
				moves[m] = why + ": moved from " + spec.URL(was.addr, was.ports)
				moves[was] = why + ": moved to " + spec.URL(m.addr, m.ports)
			}
		}
		g.byKey[w.nameAndPorts] = m
		g.added++
		m.refreshed, m.index = g.refreshes, int32(len(members))
		members = append(members, m)
		m.set(w)
		changed = append(changed, m)
	}
	g.members, g.rule = members, ruleOf(g.cfg, policy)
	accepted := make([]bool, len(changed))
	for i, m := range changed {
		accepted[i] = m.acceptsFlows.Load()
		m.updateChecks()
		g.count(m, m.currentState())
	}
	var gone []*Member
	if kept < len(before) {
		for _, m := range before {
			if m.refreshed != g.refreshes {
				gone = append(gone, m)
				g.count(m, Removed)
			}
		}
	}
	affected := changed
	if g.decidePanic() {
		g.keepInPanic()
		affected = g.members
	}
	g.open(affected)
	g.close(affected)
	for i, m := range changed {
		g.settle(m, accepted[i], now, cmp.Or(moves[m], why))
	}
	for _, m := range gone {
		m.remove(now, cmp.Or(moves[m], strings.Replace(why, "found", "no longer found", 1)))
	}
	if everything {
		g.buildTable(now)
	} else {
		g.buildForAnswer(now)
	}
}

// set applies what is said of a member. An operator's settings stay until the same ones change; but a
// registry that drains a member, and takes that back, does not give flows to one that an operator has
// drained or disabled. The caller holds the Set's lock.
func (m *Member) set(w *memberSpec) {
	if m.configured.weight != w.settings.weight {
		m.override.weight = 0
	}
	if m.configured.mode != w.settings.mode && !(w.discovered && m.override.mode >= Drain) {
		m.override.mode = AsFile
	}
	m.configured, m.memberFacts = w.settings, w.memberFacts
	m.limitWanted = w.limit
	m.setHost()
	m.updateLimit()
}

// remove takes a group out of service. The caller holds the Set's lock.
func (g *Group) remove(now time.Time) {
	members := g.members
	g.members, g.entries = nil, nil // first: a table may be built meanwhile
	for _, m := range members {
		m.remove(now, "configured")
	}
	g.removed.Store(true)
	g.row.Remove()
	g.cfg = &spec.Group{Name: g.name, Balance: g.cfg.Balance}
	g.buildTable(now)
	g.resumeQueued()
}

// resumeQueued resumes all queued flows, without a member: there will be none.
func (g *Group) resumeQueued() {
	for _, r := range g.queue.close() {
		r.Resume()
	}
}

// remove takes a member out of service and reports it. The caller holds the Set's lock, and decides about the group's
// panic.
func (m *Member) remove(now time.Time, why string) {
	delete(m.group.byKey, nameAndPorts{m.given, m.addr, m.ports})
	m.removed.Store(true)
	m.counts.row.Remove()
	m.stopTimers()
	m.group.count(m, Removed)
	m.group.settle(m, false, now, why)
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
	m.agent.stop()
	if m.ejectTimer != nil {
		m.ejectTimer.Stop()
	}
}
