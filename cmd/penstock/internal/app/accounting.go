package app

import (
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// accounting records flows: in the counters, in the access log, and in the daemon's own log. A new
// configuration may replace the logs.
type accounting struct {
	counters   *account.Counters
	values     *values
	log        *slog.Logger
	logDropped func() int64     // returns the number of log lines dropped
	progress   account.Progress // of the access log
	access     atomic.Pointer[account.Log]
	flowLog    atomic.Pointer[account.Log]
	recent     atomic.Pointer[account.Recent] // nil: nobody can ask

	// ask opens a log that this process may not open; nil: nobody does.
	ask func(path string) (*os.File, error)

	mu           sync.Mutex // serializes changes
	accessConfig spec.AccessLog
	loggedFlows  string
	closedDrops  [2]int64 // lines dropped by logs that are closed: flowLog, access
}

func newAccounting(log *slog.Logger, logDropped func() int64, counters *account.Counters, v *values) *accounting {
	b := &accounting{counters: counters, values: v, log: log, logDropped: logDropped, loggedFlows: account.LogNone}
	b.progress = account.Progress{Taken: v.word("access-log.taken"), Done: v.word("access-log.done")}
	if n := b.progress.Dropped(); n > 0 {
		log.Warn("the worker before was killed with flow records that were not in the access log yet", "dropped", n)
		b.closedDrops[1] = n
		b.dropped() // counted for good
	}
	return b
}

// configure opens the logs that a configuration asks for. On an error nothing changes. With retry, a file that cannot be opened is tried
// again later.
func (b *accounting) configure(cfg *spec.Config, retry bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if cfg.AccessLog != b.accessConfig {
		next, err := account.Open(cfg.AccessLog, b.log, b.progress, account.Opening{Ask: b.ask, Retry: retry})
		if err != nil {
			return err
		}
		b.accessConfig = cfg.AccessLog
		b.replace(&b.access, next, &b.closedDrops[1])
	}
	if cfg.Log.Flows != b.loggedFlows {
		b.loggedFlows = cfg.Log.Flows
		log := b.log
		if b.loggedFlows == account.LogAll {
			log = unlimited(log) // the operator asked for a line per flow
		}
		b.replace(&b.flowLog, account.NewFlowLog(log, b.loggedFlows), &b.closedDrops[0])
	}
	return nil
}

// replace replaces a log, which writes what is queued and is closed.
func (b *accounting) replace(at *atomic.Pointer[account.Log], next *account.Log, drops *int64) {
	if old := at.Swap(next); old != nil {
		old.Close()
		*drops += old.Stats().Dropped()
	}
}

// record records a flow that has ended, on its loop. s is the series that counts it; nil: none.
func (b *accounting) record(s *account.Series, e *account.Entry) {
	b.counters.Record(s, e)
	b.access.Load().Record(e)
	b.flowLog.Load().Record(e)
	b.recent.Load().Record(e)
}

func (b *accounting) reopen() {
	b.access.Load().Reopen()
	b.flowLog.Load().Reopen()
}

// dropped returns the number of lines of the daemon's log and of the access log that were
// dropped since the start of the service, because the queue was full, because writing failed, or because a
// worker was killed.
func (b *accounting) dropped() (journal, access int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	journal = b.logDropped() + b.closedDrops[0] + b.flowLog.Load().Stats().Dropped()
	access = b.closedDrops[1] + b.access.Load().Stats().Dropped()
	return b.values.goOn("log.dropped", journal), b.values.goOn("access-log.dropped", access)
}

// close writes what is queued. No flow is open any more.
func (b *accounting) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.recent.Load().Close()
	b.replace(&b.access, nil, &b.closedDrops[1])
	b.replace(&b.flowLog, nil, &b.closedDrops[0])
}
