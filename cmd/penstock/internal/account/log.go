package account

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

const (
	// ringSize is the number of entries that can wait for a writer: about 3 MB.
	ringSize = 4096
	// gatherTime is how long the writer lets entries accumulate before it writes them.
	// Each time that it runs costs the scheduler a few system calls and a loop its CPU.
	gatherTime = 20 * time.Millisecond
	// closeTimeout bounds how long Close waits for a writer that blocks.
	closeTimeout = time.Second
	// collectorCloseTimeout is the same for a collector, which is farther away.
	collectorCloseTimeout = 3 * time.Second
	// reportInterval is the interval at which dropped records are reported.
	reportInterval = 10 * time.Second
)

// Log writes flows to the access log or to the daemon's own log. The loops that carry the
// flows never wait for it: records are dropped and counted if the writer is too far behind.
//
//	loops ─Record─▶ ring ─▶ writer, a goroutine ─▶ sink
//
// A nil *Log discards everything.
type Log struct {
	name      string
	which     string       // LogFailed or LogAll
	daemonLog *slog.Logger // where dropped records are reported
	sink      sink
	local     bool // lines may have the field local
	ring      *ring
	patience  time.Duration // of Close
	wakeSent  atomic.Bool   // the writer was woken and has not looked yet
	wake      chan struct{} // holds one token
	reopen    chan struct{} // holds one token
	adopted   chan func()   // takes over what another process has left; holds one
	quit      chan struct{} // closed by Close
	done      chan struct{} // closed by the writer
	abandoned chan struct{} // closed by Close when it no longer waits for the writer
	reported  chan struct{} // closed by the reporter
	once      sync.Once

	overflowed, written, failed atomic.Int64
	lastErr                     atomic.Pointer[error]
	progress                    Progress
}

// Progress counts the records of a log in memory that may outlive the process: what was taken and
// is not done with is dropped if the process is killed.
type Progress struct {
	Taken   *atomic.Int64
	Done    *atomic.Int64 // written, or dropped
	Dropped *atomic.Int64
}

// Resume counts the records that an earlier process was killed with as dropped, and returns their number. It is called
// before the log is opened. Of all that are not done with, left were left to this process: how many of them it may adopt is returned, too.
func (p Progress) Resume(left int64) (dropped, adopt int64) {
	taken := p.Taken.Load()
	n := max(taken-p.Done.Load(), 0)
	if left > n || left < 0 { // a process that did not know of them has counted them, or the number is damaged
		left = 0
	}
	p.Dropped.Add(n - left)
	p.Done.Store(taken - left)
	return n - left, left
}

// sink is where a writer writes. The writer alone calls it, except for abort.
type sink interface {
	// put writes an entry, which is valid during the call. It may keep the line until
	// flush. Both return how many lines were written and how many failed, and why.
	put(e *Entry) (written, failed int, err error)
	flush() (written, failed int, err error)
	// reopen opens a new file after the old one was renamed.
	reopen() error
	// abort makes a blocked write return, if the kernel supports that.
	abort()
	close()
}

// LogStats are the counters of a log, in records.
type LogStats struct {
	Written    int64
	Overflowed int64 // dropped because the writer was too far behind
	Failed     int64 // dropped because writing failed: a full disk, an unreachable server
}

// Dropped returns the number of records that were not written.
func (s LogStats) Dropped() int64 { return s.Overflowed + s.Failed }

// Opening says how the file of an access log is opened.
type Opening struct {
	// Ask opens a file to append to that this process may not open; nil: opening it fails.
	Ask func(path string) (*os.File, error)
	// Retry makes Open try again later, as with a syslog server, where the file cannot be opened, which otherwise is an error. Records
	// are dropped and counted until then.
	Retry bool
	// Version is that of this program.
	Version string
}

// Open opens the access log of cfg, or returns nil if cfg has none. Dropped records are
// reported to log. The caller must close it. A syslog server that does not answer is not an error, and is tried again.
func Open(cfg spec.AccessLog, log *slog.Logger, p Progress, how Opening) (*Log, error) {
	if cfg.To == "" {
		return nil, nil
	}
	format, err := newFormatter(cfg.Format)
	if err != nil {
		return nil, fmt.Errorf("access log's format: %w", err)
	}
	s, err := newSink(cfg, format, how)
	if err != nil {
		return nil, fmt.Errorf("access log: %w", err)
	}
	l := newLog("access log", LogAll, ringSize, log, s, reportInterval, p)
	l.local = hasField(cfg.Format, "local")
	if cfg.To == spec.ToOTLP {
		l.patience = collectorCloseTimeout
	}
	return l, nil
}

// newLog returns a log whose progress is counted in p, or in memory of its own where that has none.
func newLog(name, which string, size int, daemonLog *slog.Logger, s sink, reportEvery time.Duration, p Progress) *Log {
	for _, n := range []**atomic.Int64{&p.Taken, &p.Done, &p.Dropped} {
		if *n == nil {
			*n = new(atomic.Int64)
		}
	}
	l := &Log{
		name: name, which: which, daemonLog: daemonLog, sink: s, ring: newRing(size),
		patience: closeTimeout, wake: make(chan struct{}, 1), reopen: make(chan struct{}, 1), adopted: make(chan func(), 1),
		quit: make(chan struct{}), done: make(chan struct{}), abandoned: make(chan struct{}), reported: make(chan struct{}),
		progress: p,
	}
	go l.write()
	go l.report(reportEvery)
	return l
}

// WantsLocal reports whether the log writes Entry.Local, which costs a system call for a flow that nobody else
// has asked for it.
func (l *Log) WantsLocal() bool { return l != nil && l.local }

// Record copies e to the log. It does not block, and may be called by several event loops
// at once.
func (l *Log) Record(e *Entry) {
	if l == nil || l.which == LogFailed && !e.Failed() {
		return
	}
	l.progress.Taken.Add(1)
	if !l.ring.put(e) {
		l.overflowed.Add(1)
		l.progress.Dropped.Add(1)
		l.progress.Done.Add(1)
		return
	}
	if !l.wakeSent.Load() && !l.wakeSent.Swap(true) {
		signal(l.wake)
	}
}

// Reopen makes the writer open its file again by name, after SIGUSR1, when the old file
// has been renamed. It does not wait. If that fails, the log keeps the old file and
// reports the error. Logs that do not write to a file ignore it.
func (l *Log) Reopen() {
	if l != nil {
		signal(l.reopen)
	}
}

// Close writes the remaining records and ends the log. It waits a second for a writer
// that blocks, three for a collector, and then aborts it: its records are dropped, counted and reported. The engine must be closed before.
func (l *Log) Close() {
	if l == nil {
		return
	}
	l.once.Do(l.close)
}

func (l *Log) close() {
	close(l.quit)
	late := time.NewTimer(l.patience)
	defer late.Stop()
	select {
	case <-l.done:
	case <-late.C:
		l.sink.abort()
		late.Reset(closeTimeout / 4)
		select {
		case <-l.done: // what it dropped is counted
		case <-late.C:
		}
	}
	close(l.abandoned)
	late.Reset(closeTimeout / 4)
	select {
	case <-l.reported:
	case <-late.C: // the daemon's log blocks too
	}
}

// Stats returns the counters of the log.
func (l *Log) Stats() LogStats {
	if l == nil {
		return LogStats{}
	}
	return LogStats{Written: l.written.Load(), Overflowed: l.overflowed.Load(), Failed: l.failed.Load()}
}

// write runs the writer.
func (l *Log) write() {
	defer close(l.done)
	defer l.sink.close()
	for {
		select {
		case <-l.wake:
			select {
			case <-time.After(gatherTime):
			case <-l.quit:
			}
		case <-l.reopen:
			if err := l.sink.reopen(); err != nil {
				l.daemonLog.Error("cannot reopen the "+l.name+"; the old file stays open", "error", err)
			}
		case <-l.quit:
			l.drain()
			return
		}
		l.drain()
	}
}

// drain writes what another process has left, and all entries of the ring. A loop that adds one after wakeSent was cleared
// wakes the writer again.
func (l *Log) drain() {
	l.wakeSent.Store(false)
	select {
	case adopt := <-l.adopted:
		adopt()
	default:
	}
	for e := l.ring.next(); e != nil; e = l.ring.next() {
		l.count(l.sink.put(e))
		l.ring.drop()
	}
	l.count(l.sink.flush())
}

func (l *Log) count(written, failed int, err error) {
	l.written.Add(int64(written))
	l.failed.Add(int64(failed))
	l.progress.Dropped.Add(int64(failed))
	l.progress.Done.Add(int64(written + failed))
	if err != nil {
		l.lastErr.Store(&err)
	}
}

// report logs at intervals how many records were dropped since its last message. It runs
// on a goroutine of its own, because the writer may block.
func (l *Log) report(every time.Duration) {
	defer close(l.reported)
	tick := time.NewTicker(every)
	defer tick.Stop()
	var last LogStats
	for {
		ended := false
		select {
		case <-tick.C:
		case <-l.abandoned:
			ended = true
		}
		now := l.Stats()
		if overflowed, failed := now.Overflowed-last.Overflowed, now.Failed-last.Failed; overflowed+failed > 0 {
			attrs := []any{"overflowed", overflowed, "failed", failed}
			if err := l.lastErr.Swap(nil); err != nil {
				attrs = append(attrs, "error", (*err).Error())
			}
			l.daemonLog.Warn("the "+l.name+" dropped flow records", attrs...)
		}
		last = now
		if ended {
			return
		}
	}
}

// signal puts a token into a channel that holds one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
