package account

import (
	"context"
	"log/slog"
	"slices"
)

// The flows that are logged in the daemon's own log.
const (
	LogNone   = "none"
	LogFailed = "failed" // those for which Entry.Failed returns true
	LogAll    = "all"
)

// NewFlowLog returns a Log that writes flows to the daemon's own log. The argument
// which is LogNone, LogFailed or LogAll; for LogNone it returns nil. The caller must
// close it.
func NewFlowLog(log *slog.Logger, which string, p Progress) *Log {
	if which == LogNone {
		return nil
	}
	return newLog("log", which, ringSize, log, flowLogSink{log}, reportInterval, p)
}

// flowLogSink is a sink that writes to the daemon's own log.
type flowLogSink struct{ log *slog.Logger }

func (j flowLogSink) put(e *Entry) (written, failed int, err error) {
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

func (flowLogSink) flush() (written, failed int, err error) { return 0, 0, nil }
func (flowLogSink) reopen() error                           { return nil }
func (flowLogSink) abort()                                  {}
func (flowLogSink) close()                                  {}
