package hooks

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/logs"
	"github.com/penstock/penstock/cmd/penstock/internal/saved"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// Accounting records flows: in the counters, in the access log, and in the daemon's own log. A new
// configuration may replace the logs.
type Accounting struct {
	counters   *account.Counters
	values     *saved.Values
	log        *slog.Logger
	logDropped func() int64     // returns the number of log lines dropped
	progress   account.Progress // of the access log
	flowDrops  *atomic.Int64    // records that the daemon's log dropped
	// leftRecords is the number of records in left. They are taken, and not done with.
	leftRecords *atomic.Int64
	access      atomic.Pointer[account.Log]
	flowLog     atomic.Pointer[account.Log]
	recent      atomic.Pointer[account.Recent] // nil: nobody can ask

	opening account.Opening // without Retry
	left    *saved.Document // what the worker before has left of the records that its access log has not written

	mu           sync.Mutex // serializes changes
	accessConfig spec.AccessLog
	loggedFlows  string
}

// NewAccounting returns the counters, and logs that are not open yet. logDropped returns the number of lines of log that were
// dropped; how says how the access log is opened, apart from Retry.
func NewAccounting(log *slog.Logger, logDropped func() int64, counters *account.Counters, v *saved.Values, left *saved.Document, how account.Opening) *Accounting {
	b := &Accounting{counters: counters, values: v, log: log, logDropped: logDropped, opening: how, loggedFlows: account.LogNone, left: left, leftRecords: v.Word("access-log.left")}
	b.progress = account.Progress{Taken: v.Word("access-log.taken"), Done: v.Word("access-log.done"), Dropped: v.Word("access-log.dropped")}
	b.flowDrops = v.Word("log.flows.dropped")
	n, adopt := b.progress.Resume(b.leftRecords.Load())
	b.leftRecords.Store(adopt)
	if n > 0 {
		log.Warn("the worker before was killed with flow records that were not in the access log yet", "dropped", n)
	}
	return b
}

// Logs are those that a configuration asks for. Use or Close ends them.
type Logs struct {
	access *account.Log // nil: none, or the one that is in use
	config spec.AccessLog
	flows  string
}

// Open opens the logs that a configuration asks for. Nothing is written to them before Use. With retry, a file that cannot be opened is
// tried again later.
func (b *Accounting) Open(cfg *spec.Config, retry bool) (*Logs, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := &Logs{config: cfg.AccessLog, flows: cfg.Log.Flows}
	if next.config == b.accessConfig {
		return next, nil
	}
	how := b.opening
	how.Retry = retry
	var err error
	if next.access, err = account.Open(next.config, b.log, b.progress, how); err != nil {
		return nil, err
	}
	return next, nil
}

// Use records flows in these logs from now on.
func (b *Accounting) Use(next *Logs) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if next.config != b.accessConfig {
		b.accessConfig = next.config
		replaceLog(&b.access, next.access)
	}
	b.adopt()
	if next.flows != b.loggedFlows {
		b.loggedFlows = next.flows
		log := b.log
		if b.loggedFlows == account.LogAll {
			log = logs.Unlimited(log) // the operator asked for a line per flow
		}
		replaceLog(&b.flowLog, account.NewFlowLog(log, b.loggedFlows, account.Progress{Dropped: b.flowDrops}))
	}
}

// adopt writes the records that the worker before has left, once its configuration is the running one: a worker that ends before leaves them to
// the one after it.
func (b *Accounting) adopt() {
	n := b.leftRecords.Load()
	if n == 0 {
		return
	}
	text, err := b.left.Read()
	b.leftRecords.Store(0)
	if err := b.left.Write(nil); err != nil {
		b.log.Error("flow records that are sent now are kept, too", "error", err)
	}
	if l := b.access.Load(); l.Adopts() {
		l.Adopt(n, text, err)
		return
	}
	b.progress.Dropped.Add(n)
	b.progress.Done.Add(n)
	b.log.Warn("the worker before has left flow records for a collector, and there is none any more", "dropped", n)
}

// Pause begins no further request to a collector, and waits for at most that long for the answer to one that is on its way.
func (b *Accounting) Pause(most time.Duration) { b.access.Load().Pause(most) }

// Continue ends a pause.
func (b *Accounting) Continue() { b.access.Load().Continue() }

// Leave is Close for a worker that hands over: what a collector does not have yet is left to the next one.
func (b *Accounting) Leave() {
	b.mu.Lock()
	text, n := b.access.Load().Leave()
	b.mu.Unlock()
	if n > 0 {
		if err := b.left.Write(text); err != nil {
			b.log.Error("flow records are lost to the collector", "records", n, "error", err)
		} else {
			b.leftRecords.Store(int64(n))
		}
	}
	b.Close()
}

// Close closes logs that were not used; nil: there are none.
func (l *Logs) Close() {
	if l != nil {
		l.access.Close()
	}
}

// replaceLog replaces a log, which writes what is queued and is closed.
func replaceLog(at *atomic.Pointer[account.Log], next *account.Log) { at.Swap(next).Close() }

// wantsLocal reports whether a record should have the address that the client connected to. It cannot be asked for when
// the flow has ended.
func (b *Accounting) wantsLocal() bool { return b.access.Load().WantsLocal() }

// record records a flow that has ended, on its loop. s is the series that counts it; nil: none.
func (b *Accounting) record(s *account.Series, e *account.Entry) {
	b.counters.Record(s, e)
	b.access.Load().Record(e)
	b.flowLog.Load().Record(e)
	b.recent.Load().Record(e)
}

// Reopen reopens the logs after they were moved away.
func (b *Accounting) Reopen() {
	b.access.Load().Reopen()
	b.flowLog.Load().Reopen()
}

// Dropped returns the number of lines of the daemon's log and of the access log that were
// dropped since the start of the service, because the queue was full, because writing failed, or because a
// worker was killed.
func (b *Accounting) Dropped() (journal, access int64) {
	return b.values.GoOn("log.dropped", b.logDropped()) + b.flowDrops.Load(), b.progress.Dropped.Load()
}

// Close writes what is queued. No flow is open any more.
func (b *Accounting) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.recent.Load().Close()
	replaceLog(&b.access, nil)
	replaceLog(&b.flowLog, nil)
}

// Counters returns the counters of all flows.
func (b *Accounting) Counters() *account.Counters { return b.counters }

// KeepRecent begins to keep the flows that ended last, because somebody can ask for them.
func (b *Accounting) KeepRecent() { b.recent.Store(account.NewRecent()) }

// Recent returns the flows that ended last, the youngest first; with problems only those that had one.
func (b *Accounting) Recent(problems bool) []account.Entry { return b.recent.Load().Last(problems) }

// Moved returns what a direction has moved.
func Moved(t *relay.Transfer) account.Volume {
	return account.Volume{Bytes: t.Written, Datagrams: t.Datagrams}
}
