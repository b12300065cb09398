package loop

import "slices"

// Stepper runs loops without goroutines, for simulations: a turn is run when its owner says so, and what is posted from outside of
// a turn is handled before Post returns. So all that happens is what its owner does, one thing after the other.
type Stepper struct {
	loops []*Loop
	ended func()
	busy  bool // in a turn
}

// NewStepper makes the stepper of loops, which must not run. It calls ended when all of them have ended; it may be nil.
func NewStepper(loops []*Loop, ended func()) *Stepper {
	st := &Stepper{loops: loops, ended: ended}
	for _, l := range loops {
		l.stepper = st
	}
	return st
}

// Turn runs one turn of a loop. Its kernel must not wait.
func (st *Stepper) Turn(l *Loop) {
	if l.Closing {
		return
	}
	st.busy = true
	l.turn()
	st.busy = false
	st.finish()
}

// Aside calls do, which is another goroutine's: what it posts is handled in later turns.
func (st *Stepper) Aside(do func()) {
	busy := st.busy
	st.busy = true
	do()
	st.busy = busy
}

// posted handles what was posted.
func (st *Stepper) posted() {
	if st == nil || st.busy {
		return
	}
	st.busy = true
	for more := true; more; {
		more = false
		for _, l := range st.loops {
			l.mu.Lock()
			l.mail = l.mail || len(l.incoming) > 0
			l.mu.Unlock()
			if !l.Closing && (l.mail || l.nextRequest < len(l.requests)) {
				more = true
				l.Now = l.Clock()
				l.turnRequests()
			}
		}
	}
	st.busy = false
	st.finish()
}

// finish ends the loops that are closing.
func (st *Stepper) finish() {
	for _, l := range st.loops {
		if !l.Closing || l.hasEnded() {
			continue
		}
		st.busy = true
		l.end()
		st.busy = false
		if st.ended != nil && !slices.ContainsFunc(st.loops, func(l *Loop) bool { return !l.hasEnded() }) {
			st.ended()
		}
	}
}

func (l *Loop) hasEnded() bool {
	select {
	case <-l.Ended:
		return true
	default:
		return false
	}
}
