package main

import (
	"testing"
	"time"
)

// A process that uses more than its time is ended, and that is told apart from one that fails.
func TestTimeOfTheProcessor(t *testing.T) {
	for _, c := range []struct {
		script string
		over   bool
	}{{"while :; do :; done", true}, {"exit 1", false}} {
		x := trial{binary: "/bin/sh", dir: t.TempDir()}
		if _, _, over, err := x.run(1, 100*time.Millisecond, []string{"-c", c.script}); over != c.over || err == nil {
			t.Errorf("%q: over %v, %v", c.script, over, err)
		}
	}
}
