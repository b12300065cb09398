package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/registry"
	"github.com/penstock/penstock/bench/internal/world"
)

// shown is what the relay says of the members of a group, by address.
type shown map[string]shownMember

type shownMember struct {
	Address, State string
	Weight         int
}

// has reports whether the relay's list has a member as the registry has it, and not where it was before the change.
func (l shown) has(m *churnMember) bool {
	if left := m.pending.left; left != nil && left.Addr != m.Addr {
		if _, ok := l[left.Addr]; ok {
			return false
		}
	}
	is, ok := l[m.Addr]
	if !m.there || !ok {
		return ok == m.there
	}
	return is.Weight == m.Weight && (is.State == "drained") == m.Draining
}

// groups asks the relay for its members, by group.
func (c *churn) groups() (map[string]shown, error) {
	text, err := c.d.Get("/v1/groups")
	if err != nil {
		return nil, err
	}
	var in struct {
		Groups []struct {
			Name    string
			Members []shownMember
		}
	}
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, fmt.Errorf("/v1/groups: %w: %.200s", err, text)
	}
	all := make(map[string]shown)
	for _, g := range in.Groups {
		all[g.Name] = make(shown)
		for _, m := range g.Members {
			_, addr, _ := strings.Cut(m.Address, "://")
			all[g.Name][addr] = m
		}
	}
	return all, nil
}

// pending returns the members with a change that the relay does not show yet.
func (s *service) pending() (list []*churnMember) {
	for _, m := range s.members {
		if m.pending != nil {
			list = append(list, m)
		}
	}
	return list
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// look finds out which changes the relay knows, and returns how many it does not know yet.
func (c *churn) look() (pending int, err error) {
	groups, err := c.groups()
	if err != nil {
		return 0, err
	}
	for _, s := range c.services {
		open := s.pending()
		slices.SortStableFunc(open, func(a, b *churnMember) int { // those that prove that others are there come first
			return cmp.Compare(boolInt(a.pending.follows), boolInt(b.pending.follows))
		})
		for _, m := range open {
			if slices.ContainsFunc(s.groups, func(g string) bool { return !groups[g].has(m) }) || m.pending.follows && s.shown < m.pending.number {
				pending++
				continue
			}
			s.shown = max(s.shown, m.pending.number)
			if delay := time.Since(m.pending.at); m.pending.back {
				c.later, s.back = append(c.later, delay), false
			} else {
				c.delays = append(c.delays, delay)
			}
			if m.pending.left != nil {
				c.w.Leave(m.pending.left, m.pending.number)
			}
			m.pending = nil
		}
	}
	return pending, nil
}

// settle waits until the relay knows all changes, and then until each member that takes new flows has got one.
func (c *churn) settle() error {
	pending, err := 0, error(nil)
	for end := time.Now().Add(world.Patience); ; time.Sleep(20 * ms) {
		if pending, err = c.look(); err == nil && pending == 0 {
			break
		}
		if time.Now().After(end) {
			for _, s := range c.services {
				for _, m := range s.pending() {
					c.w.Tally.Fault(world.ChangesLost, "change %d, %s of %s %s: the relay does not know it after %v", m.pending.number, m.pending.what, s.name, m.Name, world.Patience)
				}
			}
			return errors.Join(err, c.d.Failed())
		}
		if err := c.prove(); err != nil {
			return err
		}
	}
	now := time.Now()
	for end := now.Add(world.Patience); ; time.Sleep(20 * ms) {
		var without []*churnMember
		for _, s := range c.services {
			for _, m := range s.taking() {
				if m.at.Last.Load() < now.UnixNano() {
					without = append(without, m)
				}
			}
		}
		if len(without) == 0 {
			return nil
		}
		if time.Now().After(end) {
			for _, m := range without {
				c.w.Tally.Fault(world.UnusedMembers, "member %s, %v, has got no flow for %v", m.Name, m.at, world.Patience)
			}
			return nil
		}
	}
}

// prove makes a further change of a service of which only changes are pending that need one as their proof.
func (c *churn) prove() error {
	for _, s := range c.services {
		open := s.pending()
		if len(open) == 0 || slices.ContainsFunc(open, func(m *churnMember) bool { return !m.pending.follows }) {
			continue
		}
		for _, m := range s.members {
			if !m.there || m.Draining || m.pending != nil {
				continue
			}
			var err error
			if c.registry.Can(registry.Weights) {
				m.Weight = 1 + m.Weight%8
				err = c.change(s, m, "weight", nil)
			} else {
				err = c.move(s, m)
			}
			if err != nil {
				return err
			}
			break
		}
	}
	return nil
}
