package offline

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/fleet"
)

// What has become of a version is told only if it is known.
func TestHistoryEntries(t *testing.T) {
	for _, c := range []struct {
		name    string
		parents map[int64]int64 // of the versions that are there
		current int64
		want    string // the latest first
	}{
		{"all", map[int64]int64{4: 3, 3: 1, 2: 1, 1: 0}, 4, "current before taken-back before"},
		{"a canary that is newer", map[int64]int64{3: 2, 2: 1, 1: 0}, 2, "taken-back current before"},
		{"one in between is gone", map[int64]int64{4: 3, 2: 1, 1: 0}, 4, "current unknown unknown"},
		{"what was published could not be read", map[int64]int64{3: 0, 2: 1, 1: 0}, 3, "current unknown unknown"},
		{"nothing is published", map[int64]int64{2: 1, 1: 0}, 0, "unknown unknown"},
	} {
		var list []fleet.Version
		for n := int64(4); n > 0; n-- {
			if parent, ok := c.parents[n]; ok {
				list = append(list, fleet.Version{Version: n, Parent: parent})
			}
		}
		var states []string
		for _, e := range entriesOf(list, &fleet.State{Current: fleet.Current{Version: c.current}}) {
			states = append(states, strings.ReplaceAll(e.State, " ", "-"))
		}
		if got := strings.Join(states, " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
