package upstream

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// asksOf returns a Discoverer for each lookup, by the servers of its registry.
type asksOf map[string]scripted

func (a asksOf) of(d spec.Discover) Discoverer { return a[d.Registry.Servers] }

// tell makes the source give an answer with these servers.
func (a asksOf) tell(servers string, targets []Target, err error) {
	done := make(chan struct{})
	a[servers] <- func(update func([]Target, error)) { update(targets, err); close(done) }
	<-done
}

// A registry whose servers or credentials change is the same one: its members stay until it answers.
// Another registry, or key, has other members.
func TestReloadOfRegistry(t *testing.T) {
	sources := asksOf{"http://a:1": make(scripted), "http://a:1 http://b:1": make(scripted), "http://c:1": make(scripted), "http://d:1": make(scripted)}
	registry := spec.Registry{Name: "main", Kind: "etcd", Servers: "http://a:1"}
	cfg := &spec.Group{Balance: "random", Lookups: spec.Lookups{Keep: time.Hour, Vanish: 0.5}, Discover: []spec.Discover{{Registry: registry, Key: "/web", Network: spec.TCP}}}
	s, g := set(t, cfg, Options{Discoverer: sources.of})
	sources.tell("http://a:1", found(1, 2, 3), nil)
	first := g.table.Load().members[0]
	reload := func(change func(*spec.Discover), want int) {
		t.Helper()
		next := *cfg
		next.Discover = slices.Clone(cfg.Discover)
		change(&next.Discover[0])
		s.Apply([]*spec.Group{&next})
		if g.Len() != want {
			t.Errorf("%d members, want %d", g.Len(), want)
		}
		cfg = &next
	}
	reload(func(d *spec.Discover) { d.Registry.Servers, d.Registry.TokenFile = "http://a:1 http://b:1", "/token" }, 3)
	if first.Removed() || g.table.Load().members[0] != first {
		t.Error("it is another member")
	}
	sources.tell("http://a:1 http://b:1", nil, errors.New("away"))
	sources.tell("http://a:1 http://b:1", found(1), nil) // as an answer of the old servers, it is doubted
	if g.Len() != 3 {
		t.Errorf("%d members", g.Len())
	}
	reload(func(d *spec.Discover) { d.Registry.Name, d.Registry.Servers = "other", "http://c:1" }, 0)
	sources.tell("http://c:1", found(4), nil)
	reload(func(d *spec.Discover) { d.Key, d.Registry.Servers = "/another", "http://d:1" }, 0)
}

// What a registry says of a member does not undo what an operator wants, as long as that is to give it
// no flows; and an operator who has enabled a member once does not keep it from being drained later.
func TestOverridesOfDiscoveredMembers(t *testing.T) {
	_, g, tell := startSource(t, &spec.Group{Balance: "random"}, Options{})
	s := g.set
	draining := func(draining bool) {
		t.Helper()
		ts := found(1)
		ts[0].Draining = draining
		tell(ts, nil)
	}
	for _, c := range []struct {
		mode                  Mode
		before, drained, then State
	}{{Disable, Disabled, Disabled, Disabled}, {Drain, Drained, Drained, Drained}, {Enable, Up, Drained, Up}, {AsFile, Up, Drained, Up}} {
		draining(false)
		if err := s.SetMode("g", "m1", c.mode); err != nil {
			t.Fatal(err)
		}
		for i, want := range []State{c.before, c.drained, c.then} {
			draining(i == 1)
			if m := memberNamed(s, "m1"); m.State != want {
				t.Errorf("%v, step %d: %v, want %v", c.mode, i, m.State, want)
			}
		}
	}
}

// A member of the file takes over the operator's settings of the one that it replaces, and not those
// of a member that a registry calls the same.
func TestNamesakes(t *testing.T) {
	s, _, tell := startSource(t, &spec.Group{Balance: "random"}, Options{})
	tell(found(1), nil)
	if err := s.SetMode("g", "m1", Drain); err != nil {
		t.Fatal(err)
	}
	m := members(1)[0]
	m.Name = "m1"
	if err := s.AddMember("g", m); err != nil {
		t.Fatal(err)
	}
	if got := s.Snapshot()[0].Members; len(got) != 2 || got[0].Discovered || got[0].State != Up || got[1].State != Drained {
		t.Errorf("%+v", got)
	}
}
