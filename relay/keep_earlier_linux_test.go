package relay

import (
	"testing"

	"github.com/penstock/penstock/internal/ledger"
)

// Whatever phase the process died in: what was taken and delivered, and what of the scratch buffer is
// left.
func TestHands(t *testing.T) {
	const scratch = ledger.ScratchSize
	note := func(p ledger.Phase, n int) ledger.Note { return ledger.Note{Phase: p, N: n} }
	for _, c := range []struct {
		name     string
		hands    hands
		in, out  int64
		from, to int
		ok       bool
	}{
		{"between two calls", hands{in: 10, out: 7}, 10, 7, 0, 0, true},
		{"more in the pipe than is held", hands{in: 10, out: 7, piped: 4}, 10, 7, 0, 0, false},
		{"in front of the read", hands{Note: note(ledger.PhaseReading, 0), in: 10, out: 10}, 10, 10, 0, 0, true},
		{"behind the read", hands{Note: note(ledger.PhaseReading, 0), in: 10, out: 10, moved: 5}, 15, 10, 0, 5, true},
		{"a read while bytes were held", hands{Note: note(ledger.PhaseReading, 0), in: 10, out: 9, moved: 5}, 15, 9, 0, 5, false},
		{"a read of too much", hands{Note: note(ledger.PhaseReading, 0), moved: scratch + 1}, scratch + 1, 0, 0, scratch + 1, false},
		{"in front of the write", hands{Note: note(ledger.PhaseRead, 5), in: 10, out: 10}, 15, 10, 0, 5, true},
		{"behind the write", hands{Note: note(ledger.PhaseRead, 5), in: 10, out: 10, moved: 3}, 15, 13, 3, 5, true},
		{"behind the whole write", hands{Note: note(ledger.PhaseRead, 5), in: 10, out: 10, moved: 5}, 15, 15, 5, 5, true},
		{"a write of more than was read", hands{Note: note(ledger.PhaseRead, 5), in: 10, out: 10, moved: 6}, 15, 16, 6, 5, false},
		{"a block", hands{Note: note(ledger.PhaseFlushing, 0), in: 20, out: 10, moved: 4}, 20, 14, 0, 0, true},
		{"a block before a pipe", hands{Note: note(ledger.PhaseFlushing, 0), in: 20, out: 10, moved: 4, piped: 6}, 20, 14, 0, 0, true},
		{"own bytes of a block", hands{Note: note(ledger.PhaseFlushing, 0), in: 20, out: -8, moved: 4}, 20, -4, 0, 0, true},
		{"more of a block than was there", hands{Note: note(ledger.PhaseFlushing, 0), in: 20, out: 10, moved: 11}, 20, 21, 0, 0, false},
		{"in front of the filling", hands{Note: note(ledger.PhaseFilling, 0), in: 10, out: 10}, 10, 10, 0, 0, true},
		{"behind the filling", hands{Note: note(ledger.PhaseFilling, 0), in: 10, out: 10, piped: 9}, 19, 10, 0, 0, true},
		{"a pipe that has lost bytes", hands{Note: note(ledger.PhaseFilling, 0), in: 15, out: 10, piped: 3}, 13, 10, 0, 0, false},
		{"behind the emptying", hands{Note: note(ledger.PhaseEmptying, 0), in: 20, out: 10, piped: 3}, 20, 17, 0, 0, true},
		{"a pipe that has got bytes", hands{Note: note(ledger.PhaseEmptying, 0), in: 20, out: 10, piped: 13}, 20, 7, 0, 0, false},
		{"behind the draining", hands{Note: note(ledger.PhaseDraining, 0), in: 20, out: 10, piped: 3}, 20, 10, 0, 7, true},
		{"an unknown phase", hands{Note: note(99, 0)}, 0, 0, 0, 0, false},
	} {
		c.hands.scratch = scratch
		in, out, from, to, ok := c.hands.resolve()
		if in != c.in || out != c.out || from != c.from || to != c.to || ok != c.ok {
			t.Errorf("%s: %d %d %d:%d %v, want %d %d %d:%d %v", c.name, in, out, from, to, ok, c.in, c.out, c.from, c.to, c.ok)
		}
	}
}
