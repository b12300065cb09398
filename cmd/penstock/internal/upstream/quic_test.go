package upstream

import (
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Members are found by their IDs in connection IDs, and a flow goes back to a member that takes no new ones.
func TestServer(t *testing.T) {
	list := members(4)
	list[0].QUICServerID, list[1].QUICServerID, list[2].QUICServerID, list[2].Drained, list[1].MaxFlows = "a", "bc", "d", true, 1
	for _, b := range spec.Balancers {
		t.Run(b.Name, func(t *testing.T) {
			s, g := set(t, &spec.Group{Balance: b.Name, Retries: 2, Members: list, QUIC: &spec.QUIC{Cloud: true}}, Options{})
			named := func(id string) string {
				if m := g.Server([]byte(id)); m != nil {
					return m.Name()
				}
				return ""
			}
			for id, want := range map[string]string{"a": "m0", "bc": "m1", "d": "m2", "b": "", "": ""} {
				if got := named(id); got != want {
					t.Errorf("%q is of %q, want %q", id, got, want)
				}
			}
			if id := []byte("bc"); testing.AllocsPerRun(10, func() { g.Server(id) }) != 0 {
				t.Error("it allocates")
			}
			// A drained one takes a flow back, and no flow that may as well go elsewhere.
			var back, wish, first, second Lease
			drained := g.Server([]byte("d"))
			if m, why := g.Return(&back, Client{}, drained); m != drained || drained.Active() != 1 || back.Member() != m {
				t.Errorf("%v, %v", m, why)
			}
			if m := g.Prefer(&wish, Client{}, drained); m != nil {
				t.Error("a drained one is preferred")
			}
			// One without a slot takes nobody back.
			if m := g.Prefer(&first, Client{}, g.Server([]byte("bc"))); m == nil || m.Name() != "m1" {
				t.Errorf("preferred: %v", m)
			}
			if m, why := g.Return(&second, Client{}, g.Server([]byte("bc"))); m != nil || why != spec.ReasonQueueFull {
				t.Errorf("%v, %v", m, why)
			}
			// A flow that has a member, or has given one up, has no wish any more, and nothing of it is lost.
			if m := g.Prefer(&first, Client{}, g.Server([]byte("a"))); m != nil || g.Server([]byte("a")).Active() != 0 || first.Member().Name() != "m1" {
				t.Errorf("%v is preferred to the member that the flow has", m)
			}
			// After a failure the flow goes elsewhere.
			if m, why := g.Pick(&back, Client{}); m == nil || m == drained || drained.Active() != 0 {
				t.Errorf("%v, %v", m, why)
			}
			if m, why := g.Return(&back, Client{}, drained); m != nil || why != spec.ReasonNoMember || drained.Active() != 0 {
				t.Errorf("a flow goes back to the member that it has given up: %v, %v", m, why)
			}
			back.Release()
			first.Release()
			// A reload takes IDs, and members, away.
			gone := g.Server([]byte("a"))
			s.Apply([]*spec.Group{{Name: "g", Balance: b.Name, Members: list[1:], QUIC: &spec.QUIC{Cloud: true}}})
			if m, why := g.Return(&second, Client{}, gone); m != nil || why != spec.ReasonNoMember || named("a") != "" || named("bc") != "m1" {
				t.Errorf("%v, %v, %q", m, why, named("a"))
			}
			s.Apply([]*spec.Group{{Name: "g", Balance: b.Name, Members: list}})
			if named("bc") != "" {
				t.Error("the group has no layout any more")
			}
		})
	}
}
