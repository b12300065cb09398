package account

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

const (
	// maxWaiting entries wait for a writer at most: about 3 MB.
	maxWaiting = 4096
	// gather is how long the writer lets entries come together before it writes them.
	// Each time costs the scheduler a few system calls and a loop its CPU.
	gather = 20 * time.Millisecond
	// closeWait bounds how long Close waits for a writer that is stuck.
	closeWait = time.Second
	// tellEvery is how often at most the daemon's log tells of lost records.
	tellEvery = 10 * time.Second
)

// Log writes flows somewhere: to the access log, or to the daemon's own log. The
// loops that carry the flows never wait for it: records that find the writer too
// far behind are dropped and counted.
//
//	loops ─Enter─▶ ring ─▶ writer, a goroutine ─▶ sink
//
// A nil *Log takes nothing.
type Log struct {
	name   string
	which  string       // LogFailed or LogAll
	tells  *slog.Logger // where lost records are told of
	sink   sink
	ring   *ring
	roused atomic.Bool   // the writer has been woken and has not yet looked
	wake   chan struct{} // holds one token
	reopen chan struct{} // holds one token
	quit   chan struct{} // closed by Close
	done   chan struct{} // closed by the writer
	over   chan struct{} // closed by Close when it waits for the writer no more
	told   chan struct{} // closed by the teller
	once   sync.Once

	dropped, written, failed atomic.Int64
	lastErr                  atomic.Pointer[error]
}

// sink is where a writer writes. All but abort is called by the writer alone.
type sink interface {
	// put takes an entry, which is valid during the call, and may keep its line
	// until flush. Both tell how many lines have been written, how many lost, and why.
	put(e *Entry) (written, failed int, err error)
	flush() (written, failed int, err error)
	// reopen begins a new file after the old one was renamed.
	reopen() error
	// abort lets a write that waits return, where the kernel can do that.
	abort()
	close()
}

// LogStats are a log's counters.
type LogStats struct {
	Written int64 // records
	Dropped int64 // records that came while the writer was too far behind
	Failed  int64 // records that could not be written: a full disk, a peer that is gone
}

// Lost are the records that were not written.
func (s LogStats) Lost() int64 { return s.Dropped + s.Failed }

// Open opens the access log that cfg asks for; nil if it asks for none. Lost
// records are told of in log. It must be closed. A file that cannot be opened is
// an error; a syslog server that does not answer is none, and is tried again.
func Open(cfg spec.AccessLog, log *slog.Logger) (*Log, error) {
	if cfg.To == "" {
		return nil, nil
	}
	format, err := newFormatter(cfg.Format)
	if err != nil {
		return nil, fmt.Errorf("access log's format: %w", err)
	}
	s, err := newSink(cfg, format)
	if err != nil {
		return nil, fmt.Errorf("access log: %w", err)
	}
	return newLog("access log", LogAll, maxWaiting, log, s, tellEvery), nil
}

func newLog(name, which string, waiting int, tells *slog.Logger, s sink, every time.Duration) *Log {
	l := &Log{
		name: name, which: which, tells: tells, sink: s, ring: newRing(waiting),
		wake: make(chan struct{}, 1), reopen: make(chan struct{}, 1),
		quit: make(chan struct{}), done: make(chan struct{}), over: make(chan struct{}), told: make(chan struct{}),
	}
	go l.write()
	go l.tell(every)
	return l
}

// Enter copies e and does not block. It is called on event loops, by several at a time.
func (l *Log) Enter(e *Entry) {
	if l == nil || l.which == LogFailed && !e.Failed() {
		return
	}
	if !l.ring.put(e) {
		l.dropped.Add(1)
		return
	}
	if !l.roused.Load() && !l.roused.Swap(true) {
		poke(l.wake)
	}
}

// Reopen makes the writer open its file anew, by its name: after SIGUSR1, when
// the old one has been renamed. It does not wait. If that fails the old
// file is kept, and the log says so. What is no file has nothing to reopen.
func (l *Log) Reopen() {
	if l != nil {
		poke(l.reopen)
	}
}

// Close writes what waits and ends the log. A writer that is stuck is given a
// second, and what it has not written then is lost. The engine is closed before.
func (l *Log) Close() {
	if l == nil {
		return
	}
	l.once.Do(l.close)
}

func (l *Log) close() {
	close(l.quit)
	late := time.NewTimer(closeWait)
	defer late.Stop()
	select {
	case <-l.done:
	case <-late.C:
		l.sink.abort()
	}
	close(l.over)
	late.Reset(closeWait / 4)
	select {
	case <-l.told:
	case <-late.C: // the daemon's log is stuck too
	}
}

// Stats tells the log's counters.
func (l *Log) Stats() LogStats {
	if l == nil {
		return LogStats{}
	}
	return LogStats{Written: l.written.Load(), Dropped: l.dropped.Load(), Failed: l.failed.Load()}
}

// write is the writer's life.
func (l *Log) write() {
	defer close(l.done)
	defer l.sink.close()
	for {
		select {
		case <-l.wake:
			select {
			case <-time.After(gather):
			case <-l.quit:
			}
		case <-l.reopen:
			if err := l.sink.reopen(); err != nil {
				l.tells.Error("cannot reopen the "+l.name+", so the old file goes on", "error", err)
			}
		case <-l.quit:
			l.drain()
			return
		}
		l.drain()
	}
}

// drain writes all that waits. Who enters a record after roused is lowered
// wakes the writer again.
func (l *Log) drain() {
	l.roused.Store(false)
	for e := l.ring.next(); e != nil; e = l.ring.next() {
		l.note(l.sink.put(e))
		l.ring.drop()
	}
	l.note(l.sink.flush())
}

func (l *Log) note(written, failed int, err error) {
	l.written.Add(int64(written))
	l.failed.Add(int64(failed))
	if err != nil {
		l.lastErr.Store(&err)
	}
}

// tell says in the daemon's log how many records were lost since it last did.
// It is not the writer, which may be stuck.
func (l *Log) tell(every time.Duration) {
	defer close(l.told)
	tick := time.NewTicker(every)
	defer tick.Stop()
	var last LogStats
	for {
		ended := false
		select {
		case <-tick.C:
		case <-l.over:
			ended = true
		}
		now := l.Stats()
		if dropped, failed := now.Dropped-last.Dropped, now.Failed-last.Failed; dropped+failed > 0 {
			attrs := []any{"dropped", dropped, "failed", failed}
			if err := l.lastErr.Swap(nil); err != nil {
				attrs = append(attrs, "error", (*err).Error())
			}
			l.tells.Warn("the "+l.name+" has lost records of flows", attrs...)
		}
		last = now
		if ended {
			return
		}
	}
}

// poke puts a token into a channel that holds one.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
