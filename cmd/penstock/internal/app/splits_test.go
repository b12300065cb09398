package app

import (
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/fleet"
	"github.com/penstock/penstock/cmd/penstock/internal/keeping"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// What no operator could have changed is not taken over from the worker before.
func TestRestoredSplits(t *testing.T) {
	both := map[string]int{"blue": 1, "green": 2}
	for _, c := range []struct {
		file, weights map[string]int
		good          bool
	}{
		{both, map[string]int{"blue": 0, "green": 1}, true},
		{both, map[string]int{"blue": 0, "green": 0}, false},
		{both, map[string]int{"blue": -1, "green": 2}, false},
		{both, map[string]int{"blue": 1, "green": 1_000_001}, false},
		{both, map[string]int{"blue": 1, "red": 1}, false},
		{both, map[string]int{"blue": 1}, false},
		{map[string]int{"blue": 1}, map[string]int{"blue": 2}, false}, // one part has no weight that could be changed
		{nil, nil, false},
	} {
		var s splits
		change := spec.SplitChange{File: c.file, Weights: c.weights}
		s.restore([]keeping.Split{{Listener: "web", Route: "default", SplitChange: change}}, []spec.RouteSplits{{Listener: "web", Route: "default", Changes: []spec.SplitChange{change}}})
		if own, all := s.saved(); len(own) == 1 != c.good || len(all) == 1 != c.good {
			t.Errorf("%v, %v: %v, %v", c.file, c.weights, own, all)
		}
	}
}

// Which weights hold, as changes of this relay and of the fleet come one after the other.
func TestFleetSplits(t *testing.T) {
	parts := func(blue, green int) []spec.Part {
		return []spec.Part{{Group: &spec.Group{Name: "blue"}, Weight: blue}, {Group: &spec.Group{Name: "green"}, Weight: green}}
	}
	r, k := &spec.Route{Name: "default", To: parts(100, 0)}, routeName{"web", "default"}
	to := func(green int) spec.SplitChange {
		return spec.SplitChange{File: spec.WeightsOf(r.To), Weights: map[string]int{"blue": 100 - green, "green": green}}
	}
	at := func(revision int64, changes ...spec.SplitChange) []spec.RouteSplits {
		return []spec.RouteSplits{{Listener: "web", Route: "default", Revision: revision, Changes: changes}}
	}
	var s splits
	s.restore(nil, nil)
	step := func(what string, ch fleet.SplitsChange, news bool, green int, ofFleet bool) {
		t.Helper()
		if got := s.fleetHas(ch); (len(got) == 1) != news {
			t.Errorf("%s: %v are news", what, got)
		}
		own, all := s.saved()
		s.restore(own, all) // by the next worker
		if w, of := s.weights("web", r); w["green"] != green || of != ofFleet {
			t.Errorf("%s: %v, of the fleet: %v", what, w, of)
		}
	}
	step("nothing", fleet.SplitsChange{All: true}, false, 0, false)
	s.setOwn(k, to(10))
	step("the fleet has none, as before", fleet.SplitsChange{All: true}, false, 10, false)
	step("an older one is undone", fleet.SplitsChange{Undone: at(4)}, false, 10, false)
	step("a change", fleet.SplitsChange{Changed: at(5, to(20))}, true, 20, true)
	s.setOwn(k, to(30))
	step("the same, after contact was lost", fleet.SplitsChange{All: true, Changed: at(5, to(20))}, false, 30, false)
	s.setOwn(k, to(0))
	step("undone here only", fleet.SplitsChange{All: true, Changed: at(5, to(20))}, false, 0, false)
	step("a newer one", fleet.SplitsChange{Changed: at(8, to(40))}, true, 40, true)
	step("an older one, late", fleet.SplitsChange{Changed: at(7, to(50))}, false, 40, true)
	broken := []fleet.BrokenSplits{{Listener: "web", Route: "default"}}
	step("a value that cannot be read", fleet.SplitsChange{Broken: broken}, false, 40, true)
	step("a list with a value that cannot be read", fleet.SplitsChange{All: true, Broken: broken}, false, 40, true)
	step("an older end, late", fleet.SplitsChange{Undone: at(7)}, false, 40, true)
	step("from a backup of the cluster", fleet.SplitsChange{All: true, Changed: at(2, to(60))}, true, 60, true)
	other := to(70)
	other.File = spec.WeightsOf(parts(50, 50))
	step("of another configuration, too", fleet.SplitsChange{Changed: at(9, other, to(80))}, true, 80, true)
	r.To = parts(50, 50)
	step("the other configuration", fleet.SplitsChange{}, false, 70, true)
	r.To = parts(1, 1)
	step("a third one", fleet.SplitsChange{}, false, 1, false)
	r.To = parts(100, 0)
	step("undone", fleet.SplitsChange{Undone: at(10)}, true, 0, false)
	step("what was before that, late", fleet.SplitsChange{Changed: at(9, to(80))}, false, 0, false)
	step("anew", fleet.SplitsChange{Changed: at(11, to(90))}, true, 90, true)
	s.setOwn(k, to(95))
	step("gone from the fleet while there was no contact", fleet.SplitsChange{All: true}, true, 0, false)
	if own, all := s.saved(); len(own)+len(all) != 0 {
		t.Errorf("%v, %v are left", own, all)
	}
	s.setOwn(k, to(0))
	if own, _ := s.saved(); len(own) != 0 {
		t.Errorf("as in the file, yet noted: %v", own)
	}

	// What a request changes: what etcd has, unless this relay has weights of its own.
	s.fleetHas(fleet.SplitsChange{Changed: at(30, to(10))})
	newest := &at(31, to(20))[0]
	for known, want := range map[*spec.RouteSplits]int{newest: 20, nil: 10, {}: 0} {
		if w := s.base(k, r, known); w["green"] != want {
			t.Errorf("%+v: %v, want %d", known, w, want)
		}
	}
	s.setOwn(k, to(50))
	if w := s.base(k, r, newest); w["green"] != 50 {
		t.Errorf("%v", w)
	}
}
