package pool

import (
	"runtime"
	"sync/atomic"
)

// A latch guards the magazine of a shard in the victim generation.
//
//	shut --(its CPU, in the next generation)--> held <--> open
//	  |                                                    |
//	  +-------------(the generation's time is up)----------+--> dead
//
// While it is shut, the CPU may still be in a section that began when the shard
// was primary, and work on the magazine without the latch. When the CPU enters
// its shard of the next generation, that section is over. If the CPU never
// comes, the next collection ends the section.
type latch struct{ state atomic.Uint32 }

const (
	latchShut = iota
	latchOpen
	latchHeld
	latchDead
)

// holdFirst takes a shut latch. Only for the shard's own CPU, or when that has
// left the section for sure.
func (l *latch) holdFirst() bool {
	return l.state.Load() == latchShut && l.state.CompareAndSwap(latchShut, latchHeld)
}

// hold takes an open latch; it does not wait for one that is held.
func (l *latch) hold() bool {
	return l.state.Load() == latchOpen && l.state.CompareAndSwap(latchOpen, latchHeld)
}

func (l *latch) release() { l.state.Store(latchOpen) }

// kill ends the latch. It waits for the holder, who is a few instructions from
// release.
func (l *latch) kill() {
	for !l.state.CompareAndSwap(latchShut, latchDead) && !l.state.CompareAndSwap(latchOpen, latchDead) {
		runtime.Gosched()
	}
}
