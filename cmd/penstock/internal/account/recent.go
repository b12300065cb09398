package account

import (
	"log/slog"
	"sync"
)

const (
	// MaxRecent is the number of ended flows that Recent keeps, and also of those with a problem.
	MaxRecent = 512
	// recentQueue bounds the flows that wait to be added.
	recentQueue = 1024
)

// Recent keeps the flows that ended last. Flows with a problem are also kept apart, so
// that many good ones do not displace them. A nil *Recent keeps nothing.
type Recent struct {
	log *Log

	mu            sync.Mutex
	all, problems window
}

// NewRecent returns an empty Recent. The caller must close it.
func NewRecent() *Recent {
	r := &Recent{}
	r.log = newLog("recent flows", LogAll, recentQueue, slog.New(slog.DiscardHandler), recentSink{r}, reportInterval, Progress{})
	return r
}

// Record adds a copy of e. It does not block, and may be called by several event loops at
// once.
func (r *Recent) Record(e *Entry) {
	if r != nil {
		r.log.Record(e)
	}
}

// Last returns the flows that ended last, the youngest first. If problems is true, it
// returns only those for which Entry.Problem returned true.
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

// Close stops adding flows.
func (r *Recent) Close() {
	if r != nil {
		r.log.Close()
	}
}

// window holds the last entries.
type window struct {
	entries []Entry
	next    int // where the next one goes once entries is full
}

func (w *window) add(e *Entry) {
	if len(w.entries) < MaxRecent {
		w.entries = append(w.entries, *e)
		return
	}
	w.entries[w.next] = *e
	w.next = (w.next + 1) % MaxRecent
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

// recentSink is the sink that adds entries to a Recent.
type recentSink struct{ *Recent }

func (r recentSink) put(e *Entry) (written, failed int, err error) {
	kept := *e
	kept.Value, kept.Listener = nil, nil // keep nothing of the flow alive
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
