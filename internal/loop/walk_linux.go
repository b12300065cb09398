package loop

import (
	"slices"
	"sync"
)

// walk visits the flows of a loop, which goes on for some turns: ending a flow
// takes microseconds, and those that stay have their turns meanwhile. Slots do not
// move, so that each flow which was there when it began is visited.
type walk struct {
	left  uint32 // slots to visit, from the top
	visit func(owner Handler, slot uint32)
	after func()          // called at the end, but not where the loop ends before; may be nil
	wg    *sync.WaitGroup // told at the end, or when the loop ends
}

// Walk begins to visit the current flows. The caller has added it to wg.
func (l *Loop) Walk(visit func(owner Handler, slot uint32), after func(), wg *sync.WaitGroup) {
	l.walks = append(l.walks, &walk{l.Slots.Len(), visit, after, wg})
}

// turnWalks takes the oldest walk some slots further.
func (l *Loop) turnWalks() {
	if len(l.walks) == 0 {
		return
	}
	w := l.walks[0]
	for range WalkBurst {
		if w.left == 0 {
			l.walks = slices.Delete(l.walks, 0, 1)
			if w.after != nil {
				w.after()
			}
			w.wg.Done()
			return
		}
		w.left--
		if owner := l.Slots.Owner(w.left); owner != nil {
			w.visit(owner, w.left)
		}
	}
}
