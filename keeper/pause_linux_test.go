package keeper

import (
	"slices"
	"syscall"
	"testing"
	"time"
)

// What Config.Paused has begun ends once: before the next pause, before the next worker starts, and when the keeper ends.
func TestPaused(t *testing.T) {
	var calls []string
	w := newWorld(t, Config{Paused: func(string, func(func(string, []int) bool)) func() {
		calls = append(calls, "paused")
		return func() { calls = append(calls, "resume") }
	}}, 100)
	next := func(after string, want ...string) {
		t.Helper()
		if !slices.Equal(calls, want) {
			t.Errorf("%s: %q, want %q", after, calls, want)
		}
		calls = nil
	}
	w.ready(1)
	w.die(1, Death{Signal: 9})
	next("the first death")
	w.die(2, Death{Signal: 9})
	next("the second death", "paused")
	w.noStart = true
	w.m.tick(w.now.Add(time.Hour))
	next("a worker that cannot start", "resume", "paused")
	w.noStart = false
	w.m.tick(w.now.Add(2 * time.Hour))
	next("a worker", "resume")
	w.die(3, Death{Signal: 9})
	next("the third death", "paused")
	w.m.signal(syscall.SIGTERM, w.now)
	next("the end", "resume")
	if !w.m.finished {
		t.Error("the keeper goes on")
	}
}

// Paused may have nothing to end.
func TestPausedNil(t *testing.T) {
	w := newWorld(t, Config{Paused: func(string, func(func(string, []int) bool)) func() { return nil }}, 100)
	w.ready(1)
	w.die(1, Death{Signal: 9})
	w.die(2, Death{Signal: 9})
	w.m.tick(w.now.Add(time.Hour))
	if w.m.active == nil {
		t.Error("no worker was started")
	}
}
