package upstream

import (
	"fmt"
	"math"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// xdsGroup is the configuration of a group that finds its members in xDS.
func xdsGroup(g spec.Group) *spec.Group {
	g.Discover = []spec.Discover{{Network: spec.TCP, Host: "source", Port: 80, Registry: spec.Registry{Kind: "xds"}}}
	return &g
}

// targetsIn are n targets of a locality, of which so many are healthy.
func targetsIn(from, n, healthy int, name string, weight uint32, other Health) (ts []Target) {
	for i := range n {
		target := foundAt(from + i)
		target.Locality = Locality{name, weight}
		if i >= healthy {
			target.Health = other
		}
		ts = append(ts, target)
	}
	return ts
}

// What localities get, as in Envoy's tests (locality_wrr_test.cc, 1.40), with every balancer that uses weights.
func TestLocalities(t *testing.T) {
	join := func(lists ...[]Target) (all []Target) {
		for _, l := range lists {
			all = append(all, l...)
		}
		return all
	}
	for _, c := range []struct {
		what    string
		targets []Target
		want    map[string]float64 // share of each locality
	}{
		{"UnweightedLocalities", join(targetsIn(0, 1, 1, "a", 1, ""), targetsIn(10, 1, 1, "b", 1, ""), targetsIn(20, 1, 1, "c", 1, "")), map[string]float64{"a": 1. / 3, "b": 1. / 3, "c": 1. / 3}},
		{"WeightedLocalities", join(targetsIn(0, 1, 1, "a", 1, ""), targetsIn(10, 1, 1, "b", 2, "")), map[string]float64{"a": 1. / 3, "b": 2. / 3}},
		{"MissingWeight", join(targetsIn(0, 1, 1, "a", 1, ""), targetsIn(10, 1, 1, "b", 0, ""), targetsIn(20, 1, 1, "c", 1, "")), map[string]float64{"a": 0.5, "c": 0.5}},
		{"AllZeroWeights", join(targetsIn(0, 1, 1, "a", 0, ""), targetsIn(10, 3, 3, "b", 0, "")), map[string]float64{"a": 0.25, "b": 0.75}},
		{"WeightedAllChosen", join(targetsIn(0, 1, 1, "a", 1, ""), targetsIn(10, 1, 1, "b", 6, ""), targetsIn(20, 1, 1, "c", 3, "")), map[string]float64{"a": 0.1, "b": 0.6, "c": 0.3}},
		{"UnhealthyFailover: 5", join(targetsIn(0, 5, 5, "a", 1, Unhealthy), targetsIn(10, 1, 1, "b", 2, "")), map[string]float64{"a": 0.33, "b": 0.67}},
		{"UnhealthyFailover: 4", join(targetsIn(0, 5, 4, "a", 1, Unhealthy), targetsIn(10, 1, 1, "b", 2, "")), map[string]float64{"a": 0.33, "b": 0.67}},
		{"UnhealthyFailover: 3", join(targetsIn(0, 5, 3, "a", 1, Unhealthy), targetsIn(10, 1, 1, "b", 2, "")), map[string]float64{"a": 0.29, "b": 0.71}},
		{"UnhealthyFailover: 2 of 5, and all of 5", join(targetsIn(0, 5, 2, "a", 1, Unhealthy), targetsIn(10, 5, 5, "b", 2, "")), map[string]float64{"a": 0.22, "b": 0.78}},
		{"UnhealthyFailover: 1 of 5, and all of 5", join(targetsIn(0, 5, 1, "a", 1, Unhealthy), targetsIn(10, 5, 5, "b", 2, "")), map[string]float64{"a": 0.12, "b": 0.88}},
		{"UnhealthyFailover: 0 of 5, and all of 5", join(targetsIn(0, 5, 0, "a", 1, Unhealthy), targetsIn(10, 5, 5, "b", 2, "")), map[string]float64{"b": 1}},
		{"NotWarmedHostsLocality: draining ones do not count", join(targetsIn(0, 3, 1, "a", 1, Draining), targetsIn(10, 2, 2, "b", 1, "")), map[string]float64{"a": 0.5, "b": 0.5}},
		{"a panic", join(targetsIn(0, 3, 0, "a", 9, Unhealthy), targetsIn(10, 3, 1, "b", 1, Unhealthy)), map[string]float64{"a": 0.5, "b": 0.5}},
		{"degraded ones have localities, too", join(targetsIn(0, 2, 1, "a", 3, Degraded), targetsIn(10, 2, 1, "b", 1, Degraded)), map[string]float64{"a": 0.75, "b": 0.25}},
		{"many of a small weight, and one", join(targetsIn(0, 3000, 3000, "a", 1, ""), targetsIn(4000, 1, 1, "b", 1, "")), map[string]float64{"a": 0.5, "b": 0.5}},
		{"weights whose sum is above 2^32", join(targetsIn(0, 2, 2, "a", math.MaxUint32, ""), targetsIn(10, 2, 2, "b", math.MaxUint32, "")), map[string]float64{"a": 0.5, "b": 0.5}},
	} {
		for _, balance := range []string{"round-robin", "random", "p2c", "least-connections"} {
			if balance == "least-connections" && len(c.targets) > 1000 {
				continue // idle members come first, whatever they weigh
			}
			_, g, tell := startSource(t, xdsGroup(spec.Group{Balance: balance, Zone: spec.ZoneWeighted, Panic: 0.5}), Options{})
			tell(c.targets, nil)
			const n = 4000
			got := map[string]int{}
			for i := range n {
				l := new(Lease)
				m, _ := g.Pick(l, Client{Addr: clients(i), Local: nobody})
				if m == nil {
					t.Fatalf("%s: %s: no member", balance, c.what)
				}
				got[m.locality.Name]++
				if balance != "least-connections" {
					l.Release()
				}
			}
			for name, n2 := range got {
				// 4000 draws differ from their mean by more than 6.5 standard deviations once in 10^10; what is wanted is rounded to percents.
				share := c.want[name]
				if d := math.Abs(float64(n2) - share*n); share == 0 || d > 6.5*math.Sqrt(n*share*(1-share))+0.01*n {
					t.Errorf("%s: %s: %v of %d, want %v", balance, c.what, got, n, c.want)
					break
				}
			}
		}
	}
}

// What a registry says of a member's health is a state, which operators and panic change as they do others.
func TestReportedHealth(t *testing.T) {
	s, g, tell := startSource(t, xdsGroup(spec.Group{Balance: "round-robin", Panic: 0.5}), Options{})
	healths := func(list ...Health) {
		t.Helper()
		var ts []Target
		for i, h := range list {
			target := foundAt(i)
			target.Health = h
			ts = append(ts, target)
		}
		tell(ts, nil)
	}
	check := func(what string, want ...string) {
		t.Helper()
		var got []string
		for _, m := range s.Snapshot()[0].Members {
			text := m.State.String()
			if m.AcceptsFlows {
				text += ", used"
			}
			got = append(got, text)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	mode := func(i int, m Mode) {
		t.Helper()
		if err := s.SetMode("g", fmt.Sprint("m", i), m); err != nil {
			t.Fatal(err)
		}
	}
	healths("", "", "", Degraded)
	check("one is degraded", "up, used", "up, used", "up, used", "up, used")
	healths("", "", Draining, Unhealthy)
	check("two are not used", "up, used", "up, used", "drained", "down")
	if m := s.Snapshot()[0].Members[3]; m.Why != "its registry says unhealthy" || m.Health != Unhealthy {
		t.Errorf("%+v", m)
	}
	mode(2, Enable)
	mode(3, Enable)
	check("an operator undoes what drains, but no state", "up, used", "up, used", "up, used", "down")
	mode(2, AsFile)
	mode(3, AsFile)
	healths("", Unhealthy, Draining, Unhealthy)
	check("panic: one of three", "up, used", "down, used", "drained, used", "down, used")
	if !s.Snapshot()[0].Panic {
		t.Error("no panic")
	}
	mode(1, Drain)
	mode(3, Disable)
	check("what an operator took away is not used, and does not count", "up, used", "drained", "drained", "disabled")
	mode(0, Drain)
	check("all that are left are draining", "drained", "drained", "drained, used", "disabled")
	healths("", "", "", "")
	check("all are healthy again", "drained", "drained", "up, used", "disabled")
	if s.Snapshot()[0].Panic || g.listed == 0 {
		t.Error("panic goes on")
	}
}

// The next process goes on with what was reported, in a panic too, and refuses nobody until the control plane answers.
func TestReportedHealthOutlives(t *testing.T) {
	s, _, tell := startSource(t, xdsGroup(spec.Group{Balance: "round-robin", Panic: 0.5}), Options{})
	ts := targetsIn(0, 4, 1, "r/a/", 7, Unhealthy)
	ts[3].Health, ts[3].Policy = Draining, Policy{Factor: 200, Weigh: true}
	tell(ts, nil)
	saved := s.Save()
	text, err := EncodeAnswers(s.GoodAnswers())
	if err != nil {
		t.Fatal(err)
	}
	good, err := DecodeAnswers(text)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	for what, opt := range map[string]Options{"from the process before": {Saved: &saved}, "from disk": {LastGood: good}} {
		_, g, _ := startSource(t, xdsGroup(spec.Group{Balance: "round-robin", Panic: 0.5}), opt)
		used := map[string]int{}
		for i := range 40 {
			var l Lease
			m, why := g.Pick(&l, Client{Addr: clients(i), Local: nobody})
			if m == nil {
				t.Fatalf("%s: %v", what, why)
			}
			used[m.Name()]++
			l.Release()
		}
		if len(used) != 4 || used["m0"] != 10 {
			t.Errorf("%s: %v", what, used)
		}
	}
}
