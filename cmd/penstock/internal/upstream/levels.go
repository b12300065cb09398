package upstream

import (
	"cmp"
	"math"
	"slices"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A level is the members of one priority; backups are a level of their own, the last one. What is counted of a level
// follows each change of a member.
type level struct {
	backup   bool
	priority int
	members  int // in any state
	tally    levelTally
	panics   bool
	head     *level     // that this one is a part of: itself, unless there are too many
	share    levelShare // of a head, with all its parts
}

// maxLevels bounds the levels of a group that are told apart. Further priorities are as the last one.
const maxLevels = 16

// A class is as what a member is counted in its level.
type class uint8

const (
	uncounted class = iota // drained or disabled, by the configuration or by operators
	excluded               // its registry says that it is draining: it gets flows in a panic only
	unhealthy
	degraded
	healthy
)

// counted is what a member adds to its level. It decides whether the member accepts flows.
type counted struct {
	level   *level // nil: none
	class   class
	weight  int
	ejected bool
}

func (c *counted) tally() levelTally {
	t := tally{}
	switch c.class {
	case uncounted:
		return levelTally{}
	case excluded:
		t.excluded = 1
	case degraded:
		t.degraded = 1
	case healthy:
		t.healthy = 1
	}
	t.all = 1
	w := tally{}
	w.add(t, c.weight)
	return levelTally{t, w}
}

// acceptsFlows reports whether a member that is counted so accepts flows.
func (c *counted) acceptsFlows() bool {
	return c.class >= degraded || c.class > uncounted && c.level.panics
}

// count counts m in its level as of a state. The caller holds the Set's lock, and decides about panic next.
func (g *Group) count(m *Member, state State) {
	was, c := m.counted, counted{}
	if state != Removed {
		c = counted{g.level(m.backup, m.priority), m.class(state), m.weight(), m.ejected}
	}
	if c == was {
		return
	}
	m.counted = c
	g.ejected += difference(was.ejected, c.ejected)
	if c.level != nil {
		c.level.members++
		c.level.tally.add(c.tally(), 1)
	}
	if l := was.level; l != nil {
		l.tally.add(was.tally(), -1)
		if l.members--; l.members == 0 {
			g.levels = slices.DeleteFunc(g.levels, func(other *level) bool { return other == l })
		}
	}
}

// class returns as what m is counted in a state.
func (m *Member) class(state State) class {
	switch {
	case state >= Checking && m.reported == Degraded:
		return degraded
	case state >= Checking:
		return healthy
	case state == Down || state == Ejected:
		return unhealthy
	case state == Drained && m.reported == Draining && m.override.mode == AsFile:
		return excluded
	}
	return uncounted
}

// level returns the level of a priority, or of backups, which it makes if there is none.
func (g *Group) level(backup bool, priority int) *level {
	if backup {
		priority = 0
	}
	i, ok := slices.BinarySearchFunc(g.levels, level{backup: backup, priority: priority}, func(l *level, key level) int {
		if l.backup != key.backup {
			return difference(key.backup, l.backup)
		}
		return cmp.Compare(l.priority, key.priority)
	})
	if !ok {
		l := &level{backup: backup, priority: priority}
		l.head = l
		g.levels = slices.Insert(g.levels, i, l)
	}
	return g.levels[i]
}

// total returns what is counted of all levels, backups too.
func (g *Group) total() (t tally) {
	for _, l := range g.levels {
		t.add(l.tally.members, 1)
	}
	return t
}

// ruleOf returns how flows are spread over the levels of a group: as Envoy does if it finds members in xDS.
func ruleOf(cfg *spec.Group, p Policy) spreadRule {
	if !cfg.DiscoversIn("xds") {
		return spreadRule{parts: 1 << 32, factor: enough, weigh: true, panic: cfg.Panic, whole: true}
	}
	return spreadRule{parts: 100, factor: cmp.Or(p.Factor, enough), weigh: p.Weigh, panic: math.Round(100*cfg.Panic) / 100}
}

// spread computes the shares of the group's levels, and returns whether backups panic. The caller holds the Set's
// lock.
func (g *Group) spread() (backupsPanic bool) {
	var heads []*level
	var tallies []levelTally
	var backups tally
	for _, l := range g.levels {
		if l.backup {
			backups = l.tally.members
			continue
		}
		if len(heads) < maxLevels {
			heads, tallies = append(heads, l), append(tallies, levelTally{})
		}
		l.head = heads[len(heads)-1]
		tallies[len(tallies)-1].add(l.tally, 1)
	}
	shares, backupsPanic := g.rule.spread(tallies, backups)
	for i, l := range heads {
		l.share = shares[i]
	}
	return backupsPanic
}

// updatePanic begins or ends the panic of levels: when so few members are up, it is more likely that the checks are
// wrong, or that these members would break down under the load of all. The caller holds the Set's lock.
func (g *Group) updatePanic() {
	if g.decidePanic() {
		g.keepInPanic()
		g.open(g.members)
		g.close(g.members)
		g.scheduleBuild()
	}
}

// decidePanic decides which levels panic, and reports whether that is a change. What members accept is not changed
// yet. The caller holds the Set's lock.
func (g *Group) decidePanic() (changed bool) {
	backups, some := g.spread(), false
	for _, l := range g.levels {
		panics := l.head.share.panics
		if l.backup {
			panics = backups
		}
		changed = changed || l.panics != panics
		some = some || panics
		l.panics = panics
	}
	if tell := g.set.opt.PanicChanged; tell != nil && some != g.panic {
		t, name := g.total(), g.name
		g.set.jobs.add(func() { tell(name, some, t.healthy+t.degraded, t.all-t.excluded) })
	}
	g.panic = some
	return changed
}

// open opens those of the members that accept flows; close closes the others. Members open before others
// close, so that there is always one to be found. The caller holds the Set's lock.
func (g *Group) open(members []*Member) {
	for _, m := range members {
		if m.counted.acceptsFlows() {
			m.accept(true)
		}
	}
}

func (g *Group) close(members []*Member) {
	for _, m := range members {
		if !m.counted.acceptsFlows() {
			m.accept(false)
		}
	}
}
