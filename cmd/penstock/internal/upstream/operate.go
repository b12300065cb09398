package upstream

import (
	"fmt"
	"time"
)

// A Mode is an operator's decision about a member.
type Mode uint8

// The modes. With Enable a member accepts flows, with Drain it accepts no new ones, and
// with Disable it is not checked either. AsFile leaves it as configured.
const (
	AsFile Mode = iota
	Enable
	Drain
	Disable
)

var modeNames = [...]string{"as configured", "enabled", "drained", "disabled"}

func (m Mode) String() string { return modeNames[m] }

// SetMode sets the mode of the members of that name or address URL.
func (s *Set) SetMode(group, member string, mode Mode) error {
	if mode > Disable {
		return fmt.Errorf("mode %d; allowed: AsFile, Enable, Drain, Disable", mode)
	}
	return s.changeOverride(group, member, func(m *Member, now time.Time) {
		m.override.mode = mode
		m.updateChecks()
		m.group.updateState(m, now, "operator: "+mode.String())
	})
}

// SetWeight sets the weight of the members of that name or address URL; 0: as configured.
func (s *Set) SetWeight(group, member string, weight int) error {
	if weight < 0 || weight > 256 {
		return fmt.Errorf("weight %d; allowed: 0 to 256", weight)
	}
	return s.changeOverride(group, member, func(m *Member, now time.Time) {
		m.override.weight = weight
		m.group.updateState(m, now, "")
		m.group.scheduleBuild()
	})
}

func (s *Set) changeOverride(group, member string, set func(*Member, time.Time)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.Group(group)
	if g == nil {
		return fmt.Errorf("no group %q", group)
	}
	now, found := time.Now(), false
	for _, m := range g.members {
		if m.Is(member) {
			set(m, now)
			found = true
		}
	}
	if !found {
		return g.noMember(member)
	}
	s.touch()
	return nil
}
