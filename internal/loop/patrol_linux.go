package loop

import (
	"fmt"
	"time"
)

// A Violation says which invariant of docs/invariants.md does not hold, and what was seen. It is an error of Penstock's.
type Violation struct {
	Number int
	What   string
}

func (v *Violation) Error() string {
	return fmt.Sprintf("invariant %d is violated: %s", v.Number, v.What)
}

// patrolEvery is how long a loop leaves between two looks at a chunk of slots: 1,280 slots a second, some 10 microseconds of its time.
const patrolEvery = 50 * time.Millisecond

// patrol has the flows of one chunk of slots looked at, in turn, at the end of a turn and at most every patrolEvery. A flow that nothing
// would ever look at again, because of an error of Penstock's, is so found by the work that the loop does for others.
func (l *Loop) patrol() {
	if l.Now < l.patrolAt {
		return
	}
	l.patrolAt = l.Now + patrolEvery
	n := l.Slots.Len()
	if l.patrolNext >= n {
		l.patrolNext = 0
	}
	for end := min(l.patrolNext+ChunkSize, n); l.patrolNext < end; l.patrolNext++ {
		if h := l.Slots.Owner(l.patrolNext); h != nil {
			h.Inspect(l.patrolNext)
		}
	}
}
