package account

import (
	"context"
	"log/slog"
	"slices"
)

// Which flows get a line in the daemon's own log.
const (
	LogNone   = "none"   // none
	LogFailed = "failed" // those of which Entry.Failed says so
	LogAll    = "all"    // each
)

// NewJournal starts a log of the flows that which names, into the daemon's own
// log; nil if it names none. It must be closed.
func NewJournal(log *slog.Logger, which string) *Log {
	if which == LogNone {
		return nil
	}
	return newLog("log", which, maxWaiting, log, journal{log}, tellEvery)
}

// journal is the sink that writes to the daemon's own log.
type journal struct{ log *slog.Logger }

func (j journal) put(e *Entry) (written, failed int, err error) {
	level := slog.LevelInfo
	if e.Failed() {
		level = slog.LevelWarn
	}
	var names []slog.Attr
	for _, a := range [...]struct{ key, value string }{
		{"reason", e.Reason.String()}, {"listener", e.ListenerName}, {"route", e.Route}, {"group", e.Group}, {"member", e.Member},
	} {
		if a.value != "" {
			names = append(names, slog.String(a.key, a.value))
		}
	}
	attrs := e.Record.LogValue().Group()
	client := slices.IndexFunc(attrs, func(a slog.Attr) bool { return a.Key == "client" })
	attrs = slices.Insert(attrs, client, names...)
	j.log.LogAttrs(context.Background(), level, "flow", attrs...)
	return 1, 0, nil
}

func (journal) flush() (written, failed int, err error) { return 0, 0, nil }
func (journal) reopen() error                           { return nil }
func (journal) abort()                                  {}
func (journal) close()                                  {}
