package app

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// books are where flows are entered: the counters, the access log, and the daemon's own
// log. A configuration may put other logs in place of those that are there.
type books struct {
	counters *account.Counters
	log      *slog.Logger
	lost     func() int64 // lines of log
	access   atomic.Pointer[account.Log]
	journal  atomic.Pointer[account.Log]

	mu    sync.Mutex // one change at a time
	asked spec.AccessLog
	which string
	drops [2]int64 // of logs that are closed: journal, access
}

func newBooks(log *slog.Logger, lost func() int64) *books {
	return &books{counters: account.NewCounters(), log: log, lost: lost, which: account.LogNone}
}

// configure opens the logs that a configuration asks for. With an error everything stays
// as it is.
func (b *books) configure(cfg *spec.Config) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if cfg.AccessLog != b.asked {
		next, err := account.Open(cfg.AccessLog, b.log)
		if err != nil {
			return err
		}
		b.asked = cfg.AccessLog
		b.replace(&b.access, next, &b.drops[1])
	}
	if cfg.Log.Flows != b.which {
		b.which = cfg.Log.Flows
		log := b.log
		if b.which == account.LogAll {
			log = unlimited(log) // a line for each flow was asked for
		}
		b.replace(&b.journal, account.NewJournal(log, b.which), &b.drops[0])
	}
	return nil
}

// replace puts a log in place of another one, which writes what it has and is closed.
func (b *books) replace(at *atomic.Pointer[account.Log], next *account.Log, drops *int64) {
	if old := at.Swap(next); old != nil {
		old.Close()
		*drops += old.Stats().Lost()
	}
}

// enter is for the flow's loop. s is the series that it was begun in; nil: in none.
func (b *books) enter(s *account.Series, e *account.Entry) {
	b.counters.Enter(s, e)
	b.access.Load().Enter(e)
	b.journal.Load().Enter(e)
}

func (b *books) reopen() {
	b.access.Load().Reopen()
	b.journal.Load().Reopen()
}

// dropped counts lines that were lost since the start, for want of room or because they
// could not be written: of the daemon's log and of the access log.
func (b *books) dropped() (journal, access int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lost() + b.drops[0] + b.journal.Load().Stats().Lost(), b.drops[1] + b.access.Load().Stats().Lost()
}

// close writes what waits. No flow is open any more.
func (b *books) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replace(&b.access, nil, &b.drops[1])
	b.replace(&b.journal, nil, &b.drops[0])
}
