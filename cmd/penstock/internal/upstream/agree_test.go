package upstream

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// whereAll returns the members that the first n clients get.
func whereAll(t testing.TB, g *Group, n int) []string {
	t.Helper()
	list := make([]string, n)
	for i := range list {
		var l Lease
		m, why := g.Pick(&l, Client{Addr: clients(i), Local: nobody})
		if m == nil {
			t.Fatal(why)
		}
		list[i] = m.name
		l.Release()
	}
	return list
}

// Relays that know the same members send each client to the same one, however they got to know them: at
// once or one after the other, in any order, with members that come, go and come back, from an earlier
// process or from disk.
func TestRelaysAgree(t *testing.T) {
	for _, n := range []int{3, 100} {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 3))
		final := newFleet(n, 1).list
		for i := range final {
			final[i].Weight = 1 + i%5
			final[i].Zone, final[i].Priority = fmt.Sprint("z", i%3), i%2
			final[i].Draining = i%7 == 6
		}
		shuffled := func() []Target {
			ts := slices.Clone(final)
			r.Shuffle(len(ts), func(i, j int) { ts[i], ts[j] = ts[j], ts[i] })
			return ts
		}
		registry := spec.Discover{Registry: spec.Registry{Kind: "etcd", Servers: "http://a:1"}, Key: "/web"}
		cfg := func() *spec.Group {
			return &spec.Group{Balance: "maglev", Zone: spec.ZonePrefer, Discover: []spec.Discover{registry}}
		}
		relays := map[string]*Group{}
		first, g, tell := startSource(t, cfg(), Options{Zone: "z1"})
		tell(final, nil)
		relays["at once"] = g
		_, g, tell = startSource(t, cfg(), Options{Zone: "z1"})
		tell(shuffled(), nil)
		relays["in another order"] = g

		s, g, tell := startSource(t, cfg(), Options{Zone: "z1"})
		for range 3 {
			ts := shuffled()[:1+r.IntN(n)]
			for i := range ts {
				ts[i].Weight, ts[i].Priority, ts[i].Draining = 1+r.IntN(5), r.IntN(3), false
			}
			tell(append(ts, foundAt(100000+r.IntN(10))), nil)
		}
		tell(shuffled(), nil)
		s.mu.Lock()
		g.buildTable(time.Now()) // a large group would do so soon
		s.mu.Unlock()
		relays["after changes"] = g
		saved := s.Save()
		_, g, _ = startSource(t, cfg(), Options{Zone: "z1", Saved: &saved})
		relays["from an earlier process"] = g
		_, g, _ = startSource(t, cfg(), Options{Zone: "z1", LastGood: first.GoodAnswers()})
		relays["from disk"] = g

		want := whereAll(t, relays["at once"], 5000)
		for what, g := range relays {
			if !slices.Equal(whereAll(t, g, 5000), want) {
				t.Errorf("seed %d, %d members, %s: another table", seed, n, what)
			}
		}
	}
}

// While two versions of the members are out, relays with one and with the other agree on almost all
// clients: those of members that are in one version only cannot be the same, and few others differ.
func TestRelaysOfTwoVersionsAgree(t *testing.T) {
	const n = 65537 // clients
	for _, c := range []struct {
		members int
		what    string
	}{
		{10, "one more"}, {10, "one less"}, {10, "another weight"}, {10, "one replaced"},
		{100, "one more"}, {100, "one less"}, {100, "another weight"}, {100, "one replaced"},
		{1000, "one more"}, {1000, "one less"}, {1000, "another weight"}, {1000, "one replaced"},
		{10000, "one more"}, {10000, "one less"}, {10000, "another weight"}, {10000, "one replaced"},
	} {
		before := newFleet(c.members, 1).list
		after := slices.Clone(before)
		switch c.what {
		case "one more":
			after = append(after, foundAt(c.members))
		case "one less":
			after = after[1:]
		case "another weight":
			for i := range before { // so that one can have less
				before[i].Weight, after[i].Weight = 4, 4
			}
			after[0].Weight = 3
		case "one replaced":
			after[0] = foundAt(c.members)
		}
		table := func(ts []Target) []string {
			ms := make([]weightedMember, len(ts))
			for i, target := range ts {
				ms[i] = weightedMember{&Member{name: target.Name, addr: target.Addr}, target.Weight}
			}
			var names []string
			for _, i := range tableOf(ms) {
				names = append(names, ms[i].m.name)
			}
			return names
		}
		x, y := table(before), table(after)
		must, differ := 0, 0
		for i := range x {
			switch {
			case x[i] == y[i]:
			case c.what != "one more" && x[i] == "m0", y[i] == fmt.Sprint("m", c.members):
				must++
			default:
				differ++
			}
		}
		percent := 100 * float64(differ) / n
		t.Logf("%d members, %s: %.3f%% of the clients must differ, %.3f%% others do", c.members, c.what, 100*float64(must)/n, percent)
		if percent > 1 { // fixed by the hash
			t.Error("most 1%")
		}
	}
}
