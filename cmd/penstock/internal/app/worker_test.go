package app

import (
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/keeper"
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
		if got, _ := f.look(step.errors, now); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
}

// Starts of workers that died before they had restored anything are counted, too.
func TestHistoryCountsAllStarts(t *testing.T) {
	h := history{}
	h.add(&api.WorkerStart{Reason: "crash"}, &keeper.StartCounts{keeper.First: 1, keeper.Crash: 3, keeper.Upgraded: 1, keeper.Restart: 0})
	w := &api.WorkerStart{Reason: "rollback"}
	h.add(w, &keeper.StartCounts{keeper.First: 1, keeper.Crash: 3, keeper.Upgraded: 1, keeper.Rollback: 1})
	if h.Starts["crash"] != 3 || h.Starts["upgrade"] != 1 || h.Starts["rollback"] != 1 || h.Starts["first"] != 0 || w.Number != 5 {
		t.Errorf("%v, number %d", h.Starts, w.Number)
	}
	h.add(w, &keeper.StartCounts{}) // a keeper that does not count
	if h.Starts["rollback"] != 2 {
		t.Errorf("%v", h.Starts)
	}
}
