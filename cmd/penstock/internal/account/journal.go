// Package account keeps the books of the daemon's flows.
package account

import (
	"context"
	"log/slog"
	"sync"

	"github.com/penstock/penstock/relay"
)

// Which flows get a line in the log.
const (
	LogNone   = "none"   // none
	LogFailed = "failed" // those that found no upstream, or whose socket failed other than by a reset
	LogAll    = "all"    // each
)

// Journal writes flows to a log. The loops that carry the flows never wait for
// the log: what it cannot take is counted, and the count is written.
type Journal struct {
	which string
	log   *slog.Logger
	wake  chan struct{} // holds one token while there is something to write
	done  chan struct{}

	mu     sync.Mutex
	full   []relay.Record // at most maxWaiting
	lost   int            // records that found no room
	closed bool
}

// maxWaiting records wait for the log at most: about 400 KB.
const maxWaiting = 1024

// NewJournal starts a journal of the flows that which names. It must be closed.
func NewJournal(log *slog.Logger, which string) *Journal {
	j := &Journal{which: which, log: log, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go j.run()
	return j
}

// Enter is the hook relay.Hooks.Done. It copies the record and does not block.
func (j *Journal) Enter(r *relay.Record) {
	if j.which == LogNone || j.which == LogFailed && !failed(r.Cause) {
		return
	}
	j.mu.Lock()
	if len(j.full) < maxWaiting && !j.closed {
		j.full = append(j.full, *r)
	} else {
		j.lost++
	}
	j.mu.Unlock()
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// Close writes what waits and ends the journal.
func (j *Journal) Close() {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	select {
	case j.wake <- struct{}{}:
	default:
	}
	<-j.done
}

func (j *Journal) run() {
	defer close(j.done)
	var spare []relay.Record
	for range j.wake {
		j.mu.Lock()
		records, lost, closed := j.full, j.lost, j.closed
		j.full, j.lost = spare[:0], 0
		j.mu.Unlock()
		for i := range records {
			j.write(&records[i])
		}
		if lost > 0 {
			j.log.Warn("the log is too slow: flows have no line", "flows", lost)
		}
		clear(records)
		spare = records
		if closed {
			return
		}
	}
}

func (j *Journal) write(r *relay.Record) {
	level := slog.LevelInfo
	if failed(r.Cause) {
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{
		slog.String("cause", r.Cause.String()),
		slog.String("client", r.A.String()),
		slog.String("upstream", r.B.String()),
		slog.Int64("sent", r.AB.Written),
		slog.Int64("received", r.BA.Written),
		slog.Duration("duration", r.Duration),
	}
	if d := r.AB.Dropped() + r.BA.Dropped(); d > 0 {
		attrs = append(attrs, slog.Int64("dropped", d))
	}
	if n := r.AB.Lost + r.BA.Lost; n > 0 {
		attrs = append(attrs, slog.Int64("lost", n))
	}
	if r.Attempts > 1 {
		attrs = append(attrs, slog.Int("attempts", r.Attempts))
	}
	attrs = append(attrs, path("path_sent", r.AB), path("path_received", r.BA))
	if r.Err != nil {
		attrs = append(attrs, slog.String("error", r.Err.Error()))
	}
	j.log.LogAttrs(context.Background(), level, "flow", attrs...)
}

// path tells how a direction's bytes went, and why not the faster way:
// "splice", "copy: small reads".
func path(key string, t relay.Transfer) slog.Attr {
	s := t.Path.String()
	if why := t.Why.String(); why != "" && t.Path == relay.PathCopy {
		s += ": " + why
	}
	return slog.String(key, s)
}

// failed tells whether an operator should look: the relay could not do its job,
// as opposed to one side having ended it.
func failed(c relay.Cause) bool {
	switch c {
	case relay.CauseNoUpstream, relay.CauseConnectTimeout, relay.CauseNoDescriptors, relay.CauseAFailed, relay.CauseBFailed, relay.CauseBRefused:
		return true
	}
	return false
}
