//go:build penstock_invariants

package loop

import "fmt"

// With the build tag penstock_invariants, each turn of a loop ends by asking what docs/invariants.md says of the loop's own state, as
// far as it can be asked cheaply. `make check` gives the tag to all tests. A violation panics: the state of the loop is in the text, and
// what led to it is the turn that has just ended.

// InvariantSlots is up to how many slots all are looked at in each turn. Of more, one chunk is looked at, in turn, and sums are left out.
const InvariantSlots = 4 * ChunkSize

// Violated panics with the number of the invariant in docs/invariants.md.
func (l *Loop) Violated(number int, format string, args ...any) {
	panic((&Violation{number, fmt.Sprintf("loop %d, turn %d: %s", l.Index, *l.counters.Waits, fmt.Sprintf(format, args...))}).Error())
}

// Looked returns the slots that this turn looks at, and whether those are all.
func (l *Loop) Looked() (from, to uint32, all bool) {
	n := l.Slots.Len()
	if n <= InvariantSlots {
		return 0, n, true
	}
	chunk := uint32(*l.counters.Waits) % uint32(len(l.Slots.chunks))
	return chunk * ChunkSize, (chunk + 1) * ChunkSize, false
}

// checkInvariants checks the table of flows and the timers.
func (l *Loop) checkInvariants() {
	from, to, all := l.Looked()
	used := 0
	for i := from; i < to; i++ {
		if l.Slots.Owner(i) != nil {
			used++
		} else if l.Armed(i) {
			l.Violated(10, "slot %d has a timer, and is free", i)
		}
	}
	if all && used != l.Slots.Live || l.Slots.Live < 0 {
		l.Violated(15, "%d slots are in use, %d are counted", used, l.Slots.Live)
	}
	if l.Seen > l.Now {
		l.Violated(9, "events are handled up to %v, and it is %v", l.Seen, l.Now)
	}
	if l.nextRequest > len(l.requests) {
		l.Violated(8, "request %d of %d is next", l.nextRequest, len(l.requests))
	}
}

// Has reports whether a slot is one of the slab's, in use or free.
func (s *Slab[T]) Has(slot uint32) bool {
	n := int(slot / ChunkSize)
	return n < len(s.chunks) && s.chunks[n] != nil
}
