package account

import (
	"context"
	"log/slog"

	"github.com/penstock/penstock/relay"
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
	return newLog("log", which, log, journal{log}, tellEvery)
}

// journal is the sink that writes to the daemon's own log.
type journal struct{ log *slog.Logger }

func (j journal) put(e *Entry) (written, failed int, err error) {
	level := slog.LevelInfo
	if e.Failed() {
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{slog.String("cause", e.Cause.String())}
	for _, a := range [...]struct{ key, value string }{
		{"reason", e.Reason.String()}, {"listener", e.ListenerName}, {"route", e.Route}, {"group", e.Group}, {"member", e.Member},
	} {
		if a.value != "" {
			attrs = append(attrs, slog.String(a.key, a.value))
		}
	}
	attrs = append(attrs,
		slog.String("client", e.A.String()),
		slog.String("upstream", e.B.String()),
		slog.Int64("sent", e.AB.Written),
		slog.Int64("received", e.BA.Written),
		slog.Duration("duration", e.Duration),
	)
	if d := e.AB.Dropped() + e.BA.Dropped(); d > 0 {
		attrs = append(attrs, slog.Int64("dropped", d))
	}
	if n := e.AB.Lost + e.BA.Lost; n > 0 {
		attrs = append(attrs, slog.Int64("lost", n))
	}
	if e.Attempts > 1 {
		attrs = append(attrs, slog.Int("attempts", e.Attempts))
	}
	attrs = append(attrs, path("path_sent", e.AB), path("path_received", e.BA))
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	j.log.LogAttrs(context.Background(), level, "flow", attrs...)
	return 1, 0, nil
}

func (journal) flush() (written, failed int, err error) { return 0, 0, nil }
func (journal) reopen() error                           { return nil }
func (journal) abort()                                  {}
func (journal) close()                                  {}

// path tells how a direction's bytes went, and why not the faster way:
// "splice", "copy: small reads".
func path(key string, t relay.Transfer) slog.Attr {
	s := t.Path.String()
	if why := t.Why.String(); why != "" && t.Path == relay.PathCopy {
		s += ": " + why
	}
	return slog.String(key, s)
}
