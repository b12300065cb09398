package upstream

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// MaxAdded is the maximum number of members that operators may add to a group.
const MaxAdded = 1024

// NoMemberError is the error for a name or address that no member of a group has.
type NoMemberError struct {
	Group, Member string
	Next          bool // one has in the next process; see Next
}

func (e *NoMemberError) Error() string {
	return fmt.Sprintf("group %q has no member %q", e.Group, e.Member)
}

// memberChanges are an operator's changes to the list of a group's members. Each stays until the
// file changes the same thing. Changes of weight and mode are not among them: see Member.override.
type memberChanges struct {
	added   []spec.Member
	removed map[string]spec.Member // of the file, by name
	moved   map[string]move        // by name
}

// A move gives a member of the file another address.
type move struct{ file, to spec.Endpoint }

// nameOf returns the name of a configured member.
func nameOf(m *spec.Member) string { return cmp.Or(m.Name, m.To.String()) }

// apply returns the group that results from the changes. It forgets those that the file has
// overtaken: additions of which it has the name, removals and moves of members that it no longer
// has as they were.
func (c *memberChanges) apply(file *spec.Group) *spec.Group {
	names := map[string]*spec.Member{}
	for i := range file.Members {
		names[nameOf(&file.Members[i])] = &file.Members[i]
	}
	c.added = slices.DeleteFunc(c.added, func(m spec.Member) bool { return names[nameOf(&m)] != nil })
	maps.DeleteFunc(c.removed, func(name string, was spec.Member) bool { return names[name] == nil || *names[name] != was })
	maps.DeleteFunc(c.moved, func(name string, m move) bool { return names[name] == nil || names[name].To != m.file })
	if len(c.added)+len(c.removed)+len(c.moved) == 0 {
		return file
	}
	g := *file
	g.Members = nil
	for _, m := range file.Members {
		name := nameOf(&m)
		if _, gone := c.removed[name]; gone {
			continue
		}
		if moved, ok := c.moved[name]; ok {
			m.Name, m.To = name, moved.to
		}
		g.Members = append(g.Members, m)
	}
	g.Members = append(g.Members, c.added...)
	return &g
}

// find returns the index in the group's members of the one with a name or address URL, or an error.
// The caller holds the Set's lock.
func (g *Group) find(member string) (int, error) {
	i := slices.IndexFunc(g.cfg.Members, func(m spec.Member) bool { return nameOf(&m) == member || m.To.String() == member })
	if i >= 0 {
		return i, nil
	}
	for _, m := range g.members {
		switch {
		case !m.Is(member):
		case m.discovered:
			return 0, fmt.Errorf("member %q was found by a lookup; allowed: drain, disable, weight", member)
		default:
			return 0, fmt.Errorf("%q is one address of member %q; allowed: that name", member, m.name)
		}
	}
	return 0, g.noMember(member)
}

// noMember returns the error for a name or address that no member has. The caller holds the Set's lock.
func (g *Group) noMember(member string) error {
	return &NoMemberError{g.name, member, g.next != nil && g.next.has(member)}
}

// AddMember adds a member to a group, until the file has one of that name.
func (s *Set) AddMember(group string, m spec.Member) error {
	return s.changeMembers(group, func(g *Group, c *memberChanges) error { return c.add(g, m) })
}

func (c *memberChanges) add(g *Group, m spec.Member) error {
	name := nameOf(&m)
	named := func(other spec.Member) bool { return nameOf(&other) == name }
	if slices.ContainsFunc(g.cfg.Members, named) || slices.ContainsFunc(c.added, named) {
		return fmt.Errorf("group %q has a member %q; allowed: another name", g.name, name)
	}
	if len(c.added) >= MaxAdded {
		return fmt.Errorf("group %q has %d members that were added; allowed: no more, put them into the file", g.name, MaxAdded)
	}
	if was, ok := c.removed[name]; ok && was == m {
		delete(c.removed, name)
		return nil
	} else if ok {
		return fmt.Errorf("the file has a member %q, which was removed; allowed: another name, or restore it", name)
	}
	m.Name = name
	c.added = append(c.added, m)
	return nil
}

// RemoveMember removes a member. One of the file stays removed until the file changes it.
func (s *Set) RemoveMember(group, member string) error {
	return s.changeMembers(group, func(g *Group, c *memberChanges) error {
		i, err := g.find(member)
		if err != nil {
			return err
		}
		name := nameOf(&g.cfg.Members[i])
		if len(g.cfg.Members) == 1 && len(g.cfg.Discover) == 0 {
			return fmt.Errorf("%q is the only member of group %q; allowed: add another one first, or disable it", name, group)
		}
		if i := slices.IndexFunc(c.added, func(m spec.Member) bool { return m.Name == name }); i >= 0 {
			c.added = slices.Delete(c.added, i, i+1)
			return nil
		}
		for _, m := range g.file.Members {
			if nameOf(&m) == name {
				setIn(&c.removed, name, m)
			}
		}
		delete(c.moved, name)
		return nil
	})
}

// CheckMove returns the error that MoveMember would return.
func (s *Set) CheckMove(group, member string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.Group(group)
	if g == nil {
		return fmt.Errorf("no group %q", group)
	}
	_, err := g.find(member)
	return err
}

// MoveMember gives a member another address. Its state, weight and mode go with it.
func (s *Set) MoveMember(group, member string, to spec.Endpoint) error {
	return s.changeMembers(group, func(g *Group, c *memberChanges) error { return c.move(g, member, to) })
}

func (c *memberChanges) move(g *Group, member string, to spec.Endpoint) error {
	i, err := g.find(member)
	if err != nil {
		return err
	}
	name := nameOf(&g.cfg.Members[i])
	if i := slices.IndexFunc(c.added, func(m spec.Member) bool { return m.Name == name }); i >= 0 {
		c.added[i].To = to
		return nil
	}
	for _, m := range g.file.Members {
		switch {
		case nameOf(&m) != name:
		case m.To == to:
			delete(c.moved, name)
		default:
			setIn(&c.moved, name, move{m.To, to})
		}
	}
	return nil
}

// RestoreMember undoes what operators have changed of a member of the file: it is there again, at
// its address, with its weight and mode.
func (s *Set) RestoreMember(group, member string) error {
	restored := false
	err := s.changeMembers(group, func(g *Group, c *memberChanges) error {
		for name, was := range c.removed {
			if name == member || was.To.String() == member {
				delete(c.removed, name)
				member, restored = name, true
			}
		}
		if i, err := g.find(member); err == nil {
			name := nameOf(&g.cfg.Members[i])
			if _, ok := c.moved[name]; ok {
				delete(c.moved, name)
				member, restored = name, true
			}
		}
		return nil
	})
	if err == nil {
		err = s.changeOverride(group, member, func(m *Member, now time.Time) {
			m.override = settings{}
			m.updateChecks()
			m.group.updateState(m, now, "operator: "+AsFile.String())
			m.group.scheduleBuild()
		})
	}
	if restored {
		return nil // a name may have no address yet
	}
	return err
}

// changeMembers changes the list of a group's members and applies it.
func (s *Set) changeMembers(group string, change func(*Group, *memberChanges) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.Group(group)
	if g == nil || s.closed {
		return fmt.Errorf("no group %q", group)
	}
	if err := change(g, &g.changes); err != nil {
		return err
	}
	if g.next != nil {
		change(g, g.next) // which has it besides
	}
	s.touch()
	g.cfg = g.changes.apply(g.file)
	s.startWatches(g.cfg)
	g.configure()
	g.refresh(time.Now(), "operator", true)
	s.stopUnusedWatches()
	return nil
}

func setIn[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}

// MemberDifference is how a running member differs from the file.
type MemberDifference struct {
	Member string
	What   string // added, removed, changed
	Fields []FieldDifference
}

// FieldDifference is a setting of a member.
type FieldDifference struct{ Name, File, Running string }

// differences lists how the group's members differ from the file, and returns the members that the
// file would have to have. The caller holds the Set's lock.
func (g *Group) differences() (list []MemberDifference, running []spec.Member) {
	overrides := g.overrides()
	if g.cfg == g.file && !slices.ContainsFunc(g.members, func(m *Member) bool { return m.override != (settings{}) }) {
		return nil, nil
	}
	for _, m := range g.cfg.Members {
		name := nameOf(&m)
		was := m
		d := MemberDifference{Member: name, What: "changed"}
		added := slices.ContainsFunc(g.changes.added, func(a spec.Member) bool { return a.Name == name })
		if moved, ok := g.changes.moved[name]; ok {
			was.To = moved.file
		}
		if o, ok := overrides[name]; ok {
			if o.weight != 0 {
				m.Weight = o.weight
			}
			if o.mode != AsFile {
				m.Drained = o.mode != Enable
			}
			d.Fields = fieldDifferences(&was, &m, o.mode)
		}
		running = append(running, m)
		if added {
			d.What = "added"
			d.Fields = append([]FieldDifference{{"to", "", m.To.String()}}, d.Fields...)
		} else if was.To != m.To {
			d.Fields = append([]FieldDifference{{"to", was.To.String(), m.To.String()}}, d.Fields...)
		}
		if len(d.Fields) > 0 {
			list = append(list, d)
		}
	}
	for _, m := range g.members { // those of which the file has no entry of their own
		_, whole := overrides[m.name]
		if (m.discovered || !whole) && m.override != (settings{}) {
			file := spec.Member{Weight: max(1, m.configured.weight), Drained: m.configured.mode == Drain}
			now := file
			now.Weight, now.Drained = cmp.Or(m.override.weight, file.Weight), m.override.mode == Drain || m.override.mode == Disable
			name := m.name
			if !whole {
				name = spec.URL(m.addr, m.ports)
			}
			if fields := fieldDifferences(&file, &now, m.override.mode); len(fields) > 0 {
				list = append(list, MemberDifference{Member: name, What: "changed", Fields: fields})
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(g.changes.removed)) {
		m := g.changes.removed[name]
		list = append(list, MemberDifference{Member: name, What: "removed", Fields: []FieldDifference{{"to", m.To.String(), ""}}})
	}
	return list, running
}

// overrides returns the overrides by the names of members. A name whose members differ in theirs is
// left out.
func (g *Group) overrides() map[string]settings {
	var all map[string]settings
	for _, m := range g.members {
		if m.override != (settings{}) {
			setIn(&all, m.name, m.override)
		}
	}
	if all == nil {
		return nil
	}
	whole := maps.Clone(all)
	for _, m := range g.members {
		if o, ok := all[m.name]; ok && o != m.override {
			delete(whole, m.name)
		}
	}
	return whole
}

func fieldDifferences(file, running *spec.Member, mode Mode) (list []FieldDifference) {
	if a, b := max(1, file.Weight), max(1, running.Weight); a != b {
		list = append(list, FieldDifference{"weight", strconv.Itoa(a), strconv.Itoa(b)})
	}
	if file.Drained != running.Drained || mode == Disable {
		state := func(drained bool) string {
			if drained {
				return Drain.String()
			}
			return Enable.String()
		}
		now := state(running.Drained)
		if mode == Disable {
			now = Disable.String()
		}
		list = append(list, FieldDifference{"state", state(file.Drained), now})
	}
	return list
}
