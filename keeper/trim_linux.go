package keeper

import (
	"runtime/debug"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

const (
	// trimAfter is how long after a worker is ready, or many items have come or gone, the keeper gives
	// memory back.
	trimAfter = time.Second
	// trimItems is how many items are many. Giving back takes a few milliseconds.
	trimItems = 1024
)

// trimmer knows when the keeper gives memory back: when the start of a worker, or a burst of items, is over.
type trimmer struct {
	worker int       // id of the last worker that was ready
	items  int       // how many were held when memory was last given back
	at     time.Time // when to give back; zero: it was done
}

// plan is called whenever something has happened.
func (t *trimmer) plan(m *machine, now time.Time) {
	if p := m.active; p != nil && p.ready && p.id != t.worker {
		t.worker, t.at = p.id, now.Add(trimAfter)
	}
	if n := m.table.len() - t.items; t.at.IsZero() && (n >= trimItems || -n >= trimItems) {
		t.at = now.Add(trimAfter)
	}
}

// due reports whether it is time to give memory back, which the caller then does.
func (t *trimmer) due(m *machine, now time.Time) bool {
	if t.at.IsZero() || now.Before(t.at) {
		return false
	}
	t.items, t.at = m.table.len(), time.Time{}
	return true
}

// trim gives back what is free of the heap, and pages of the program that the keeper does not need again
// soon: most of the program is only used by the worker.
func trim() {
	debug.FreeOSMemory()
	sys.TrimPrograms()
}
