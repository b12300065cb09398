package app

import (
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/keeping"
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
		s.restore([]keeping.Split{{Listener: "web", Route: "default", File: c.file, Weights: c.weights}})
		if got := len(s.changed) == 1; got != c.good {
			t.Errorf("%v, %v: %v", c.file, c.weights, got)
		}
	}
}
