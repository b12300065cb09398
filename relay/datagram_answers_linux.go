package relay

import "time"

const (
	// answerWindow is for how long an answer time is remembered, at least.
	answerWindow = 30 * time.Second
	// The bounds of how long an unanswered flow keeps its place, and what it is
	// while no answer time is known.
	leastPatience, mostPatience, firstPatience = 250 * time.Millisecond, 5 * time.Second, 2 * time.Second
)

// answerTimes is the slowest first answer of the flows of a port, of the present
// window and of the one before.
type answerTimes struct {
	slowest [2]time.Duration // 0: no answer
	began   time.Duration    // the present window
}

func (a *answerTimes) turn(now time.Duration) {
	switch passed := now - a.began; {
	case passed < answerWindow:
		return
	case passed < 2*answerWindow:
		a.slowest[1] = a.slowest[0]
	default:
		a.slowest[1] = 0
	}
	a.slowest[0], a.began = 0, now
}

func (a *answerTimes) add(now, took time.Duration) {
	a.turn(now)
	a.slowest[0] = max(a.slowest[0], took)
}

// patience is how long a flow without an answer keeps its place.
func (a *answerTimes) patience(now time.Duration) time.Duration {
	a.turn(now)
	slowest := max(a.slowest[0], a.slowest[1])
	if slowest == 0 {
		return firstPatience
	}
	return patienceAfter(slowest)
}

// patienceAfter is the patience where an answer took so long.
func patienceAfter(took time.Duration) time.Duration {
	return min(max(2*took, leastPatience), mostPatience)
}
