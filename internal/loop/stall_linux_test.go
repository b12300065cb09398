package loop

import (
	"slices"
	"testing"
	"time"
)

// The longest turn is remembered for a window and the one after it.
func TestStall(t *testing.T) {
	const w = stallWindow
	var s stall
	var got []time.Duration
	for _, turn := range []struct{ now, took time.Duration }{
		{0, 1}, {w / 2, 7}, {w - 1, 2}, // the first window
		{w + 1, 3}, {2 * w, 2}, // 7 is of the one before
		{2*w + 2, 1}, // forgotten, and 3 is of the one before
		{9 * w, 1},   // an idle loop forgets all
	} {
		s.add(turn.now, turn.took)
		got = append(got, s.longest(turn.now))
	}
	if want := []time.Duration{1, 7, 7, 7, 7, 3, 1}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := s.longest(20 * w); got != 0 {
		t.Errorf("after a long rest: %v", got)
	}
}
