package app

import (
	"testing"
	"time"
)

// That flows are not held is told once, and so is the end of it.
func TestKeepFailures(t *testing.T) {
	var f keepFailures
	now := time.Now()
	for i, step := range []struct {
		after  time.Duration
		errors int64
		want   string
	}{
		{0, 5, ""}, // of the workers before
		{time.Second, 5, ""},
		{time.Second, 6, "some flows are not held, and would end with this worker"},
		{time.Second, 8, ""},
		{calmAfter - 1, 8, ""},
		{0, 9, ""},
		{calmAfter, 9, "all flows are held again"},
		{calmAfter, 9, ""},
		{time.Second, 10, "some flows are not held, and would end with this worker"},
	} {
		now = now.Add(step.after)
		if got, _ := f.noteErrors(step.errors, now); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
}
