package upstream

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// What is changed for the next process is not carried out by this one, and is what that one begins with, with the members' state; what is
// changed later is for both.
func TestNext(t *testing.T) {
	at := func(port uint16) spec.Endpoint { return spec.Endpoint{Kind: spec.TCP, Host: "10.0.9.9", Port: port} }
	groups := []*spec.Group{{Name: "g", Balance: "first", Members: members(3)}}
	s := NewSet(Options{})
	defer s.Close()
	s.Apply(groups)
	before := memberNames(s)
	for _, err := range []error{
		s.SetWeight("g", "m1", 7), s.Next().AddMember("g", spec.Member{Name: "x", To: at(1)}), s.Next().MoveMember("g", "m1", at(2)), s.Next().MoveMember("g", "m2", at(3)), s.RemoveMember("g", "m2"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for what, err := range map[string]error{
		"has a member": s.Next().AddMember("g", spec.Member{Name: "x", To: at(4)}),
		"no member":    s.Next().MoveMember("g", "nobody", at(4)),
		"no group":     s.Next().AddMember("none", spec.Member{To: at(4)}),
	} {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %s", err, what)
		}
	}
	// Who is told of a member that is one of the next process only can ask that one.
	asked := func(next bool) {
		t.Helper()
		for _, member := range []string{"x", at(1).String(), at(2).String(), "nobody"} {
			for what, err := range map[string]error{
				"mode": s.SetMode("g", member, Drain), "weight": s.SetWeight("g", member, 3), "removal": s.RemoveMember("g", member), "move": s.CheckMove("g", member),
			} {
				var none *NoMemberError
				if !errors.As(err, &none) || none.Next != (next && member != "nobody") {
					t.Errorf("%s of %s: %v, in the next process: %t", what, member, err, none != nil && none.Next)
				}
			}
		}
	}
	asked(true)
	if got := memberNames(s); !slices.Equal(got, before[:2]) || !s.Next().Pending() {
		t.Errorf("%q, pending: %t", got, s.Next().Pending())
	}
	if list := s.AtRunTime(groups)["g"]; !slices.Contains(list, at(1)) || !slices.Contains(list, at(2)) {
		t.Errorf("%v at run time", list)
	}
	saved := s.Save()
	next := NewSet(Options{Saved: &saved})
	defer next.Close()
	if list := next.AtRunTime(groups)["g"]; !slices.Contains(list, at(1)) || !slices.Contains(list, at(2)) || slices.Contains(list, at(3)) {
		t.Errorf("%v at run time, of what was saved", list)
	}
	next.Apply(groups)
	if got, want := memberNames(next), []string{before[0], "m1 10.0.9.9:2", "x 10.0.9.9:1"}; !slices.Equal(got, want) || next.Next().Pending() {
		t.Errorf("%q, want %q", got, want)
	}
	for _, m := range next.Snapshot()[0].Members {
		if m.Name == "m1" && m.Weight != 7 {
			t.Errorf("a member that moved has lost its weight: %d", m.Weight)
		}
	}
	s.Next().Discard()
	saved = s.Save()
	if s.Next().Pending() || len(saved.Groups[0].Added)+len(saved.Groups[0].Moved) != 0 {
		t.Errorf("after Discard: %+v", saved.Groups[0])
	}
	asked(false)
}

// A process that may not connect where operators of the one before wanted members leaves them to the next one, and goes on with those that
// it can have.
func TestPermit(t *testing.T) {
	at := func(port uint16) spec.Endpoint { return spec.Endpoint{Kind: spec.TCP, Host: "10.0.9.9", Port: port} }
	groups := []*spec.Group{{Name: "g", Balance: "first", Members: members(2)}}
	first := NewSet(Options{})
	defer first.Close()
	first.Apply(groups)
	for _, err := range []error{
		first.AddMember("g", spec.Member{Name: "x", To: at(1)}), first.AddMember("g", spec.Member{Name: "y", To: at(2)}), first.MoveMember("g", "m1", at(3)), first.RemoveMember("g", "m0"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	saved := first.Save()
	for name, c := range map[string]struct {
		permit func(spec.Endpoint) bool
		want   []string
		left   bool
	}{
		"all":  {func(spec.Endpoint) bool { return true }, []string{"m1 10.0.9.9:3", "x 10.0.9.9:1", "y 10.0.9.9:2"}, false},
		"some": {func(e spec.Endpoint) bool { return e.Port == 2 }, []string{"m1 10.0.0.1:80", "y 10.0.9.9:2"}, true},
	} {
		again := saved
		s := NewSet(Options{Saved: &again, Permit: c.permit})
		s.Apply(groups)
		if got := memberNames(s); !slices.Equal(got, c.want) || s.Next().Pending() != c.left {
			t.Errorf("%s: %q, pending: %t; want %q", name, got, s.Next().Pending(), c.want)
		}
		// Whoever comes next has all of it.
		again = s.Save()
		s.Close()
		last := NewSet(Options{Saved: &again})
		last.Apply(groups)
		if got, want := memberNames(last), []string{"m1 10.0.9.9:3", "x 10.0.9.9:1", "y 10.0.9.9:2"}; !slices.Equal(got, want) {
			t.Errorf("%s, and then the next process: %q, want %q", name, got, want)
		}
		last.Close()
	}
}
