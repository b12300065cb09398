package account

import (
	"log/slog"
	"sync"
)

const (
	// keptFlows is how many ended flows Recent remembers, and how many of those with a problem.
	keptFlows = 512
	// recentQueue bounds the flows that wait to be remembered.
	recentQueue = 1024
)

// Recent remembers the flows that ended last, for those who ask why a flow has ended.
// Flows with a problem are remembered apart, so that many good ones do not displace
// them. A nil *Recent takes nothing.
type Recent struct {
	log *Log

	mu            sync.Mutex
	all, problems window
}

// NewRecent starts to remember. It must be closed.
func NewRecent() *Recent {
	r := &Recent{}
	r.log = newLog("recent flows", LogAll, recentQueue, slog.New(slog.DiscardHandler), recentSink{r}, tellEvery)
	return r
}

// Enter copies e and does not block. It is called on event loops, by several at a time.
func (r *Recent) Enter(e *Entry) {
	if r != nil {
		r.log.Enter(e)
	}
}

// Last returns the flows that ended last, the youngest first; with problems only those
// for which Entry.Problem reports true.
func (r *Recent) Last(problems bool) []Entry {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if problems {
		return r.problems.list()
	}
	return r.all.list()
}

// Close ends the memory.
func (r *Recent) Close() {
	if r != nil {
		r.log.Close()
	}
}

// window is the last few entries.
type window struct {
	entries []Entry
	next    int // where the next one goes once entries is full
}

func (w *window) add(e *Entry) {
	if len(w.entries) < keptFlows {
		w.entries = append(w.entries, *e)
		return
	}
	w.entries[w.next] = *e
	w.next = (w.next + 1) % keptFlows
}

func (w *window) list() []Entry {
	list := make([]Entry, 0, len(w.entries))
	for i := range w.entries {
		at := w.next - 1 - i
		if at < 0 {
			at += len(w.entries)
		}
		list = append(list, w.entries[at])
	}
	return list
}

// recentSink puts entries into a Recent's memory.
type recentSink struct{ *Recent }

func (r recentSink) put(e *Entry) (written, failed int, err error) {
	kept := *e
	kept.Value, kept.Listener = nil, nil // nothing of the flow is kept alive
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all.add(&kept)
	if kept.Problem() {
		r.problems.add(&kept)
	}
	return 1, 0, nil
}

func (recentSink) flush() (written, failed int, err error) { return 0, 0, nil }
func (recentSink) reopen() error                           { return nil }
func (recentSink) abort()                                  {}
func (recentSink) close()                                  {}
