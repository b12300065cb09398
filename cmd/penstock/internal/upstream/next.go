package upstream

import (
	"fmt"
	"maps"
	"slices"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Next changes members as the methods of the Set do, but for the next process only: to which this one may not connect, and that one may.
// This one saves the changes and carries out none. What operators change later is for both.
type Next struct{ s *Set }

// Next returns what changes members for the next process.
func (s *Set) Next() Next { return Next{s} }

// AddMember adds a member, as [Set.AddMember] does.
func (n Next) AddMember(group string, m spec.Member) error {
	return n.change(group, func(g *Group, c *memberChanges) error { return c.add(g, m) })
}

// MoveMember gives a member another address, as [Set.MoveMember] does.
func (n Next) MoveMember(group, member string, to spec.Endpoint) error {
	return n.change(group, func(g *Group, c *memberChanges) error { return c.move(g, member, to) })
}

func (n Next) change(group string, change func(*Group, *memberChanges) error) error {
	n.s.mu.Lock()
	defer n.s.mu.Unlock()
	g := n.s.Group(group)
	if g == nil {
		return fmt.Errorf("no group %q", group)
	}
	next := g.changesOfNext().clone()
	if err := change(g, &next); err != nil {
		return err
	}
	g.next = &next
	n.s.touch()
	return nil
}

// Pending reports whether the next process has other members.
func (n Next) Pending() bool {
	n.s.mu.Lock()
	defer n.s.mu.Unlock()
	for _, g := range *n.s.groups.Load() {
		if g.next != nil {
			return true
		}
	}
	return false
}

// Discard undoes what was changed for the next process only.
func (n Next) Discard() {
	n.s.mu.Lock()
	defer n.s.mu.Unlock()
	for _, g := range *n.s.groups.Load() {
		g.next = nil
	}
	n.s.touch()
}

// AtRunTime returns the addresses of members, and of their checks, by group, that operators have added or moved, for a configuration with these groups; those of
// the next process, too. Before Apply these are those that were saved.
func (s *Set) AtRunTime(groups []*spec.Group) map[string][]spec.Endpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string][]spec.Endpoint{}
	for _, cfg := range groups {
		var lists []memberChanges
		if g := s.Group(cfg.Name); g != nil {
			lists = []memberChanges{g.changes.clone(), g.changesOfNext().clone()}
		} else if s.saved != nil && s.saved.groups[cfg.Name] != nil {
			lists = []memberChanges{s.saved.groups[cfg.Name].changes()}
		}
		for _, c := range lists {
			c.apply(cfg) // what the file has overtaken is forgotten
			for _, m := range c.added {
				all[cfg.Name] = append(all[cfg.Name], cfg.EndpointsOf(&m)...)
			}
			for _, m := range c.moved {
				all[cfg.Name] = append(all[cfg.Name], m.to)
			}
		}
	}
	return all
}

// changesOfNext returns the changes of the next process. The caller holds the Set's lock.
func (g *Group) changesOfNext() *memberChanges {
	if g.next != nil {
		return g.next
	}
	return &g.changes
}

// movesNext returns where a member is in the next process, if that is elsewhere. The caller holds the Set's lock.
func (g *Group) movesNext(m *Member) (to spec.Endpoint, moves bool) {
	if g.next == nil || m.discovered {
		return to, false
	}
	was, is := g.changes.addressOf(m.name), g.next.addressOf(m.name)
	return is, is != was && is != spec.Endpoint{}
}

// addressOf returns the address that changes give to a member; zero: they give it none.
func (c *memberChanges) addressOf(name string) spec.Endpoint {
	for _, m := range c.added {
		if m.Name == name {
			return m.To
		}
	}
	return c.moved[name].to
}

// has reports whether changes give a member this name or address.
func (c *memberChanges) has(member string) bool {
	for _, m := range c.added {
		if nameOf(&m) == member || m.To.String() == member {
			return true
		}
	}
	for _, m := range c.moved {
		if m.to.String() == member {
			return true
		}
	}
	return false
}

func (c *memberChanges) clone() memberChanges {
	return memberChanges{slices.Clone(c.added), maps.Clone(c.removed), maps.Clone(c.moved)}
}

// permitted splits changes into those that this process may carry out, and all of them for the next one; nil: these are all.
func (s *Set) permitted(all memberChanges) (now memberChanges, next *memberChanges) {
	if s.opt.Permit == nil {
		return all, nil
	}
	now = all.clone()
	now.added = slices.DeleteFunc(now.added, func(m spec.Member) bool { return !s.opt.Permit(m.To) })
	maps.DeleteFunc(now.moved, func(_ string, m move) bool { return !s.opt.Permit(m.to) })
	if len(now.added) == len(all.added) && len(now.moved) == len(all.moved) {
		return now, nil
	}
	return now, &all
}
