package app

import (
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// newLog returns the log that a configuration asks for, at a level that can be changed
// later. Format and level must be valid. The screen is nil unless a person watches. The
// caller must close the writer.
func newLog(out *os.File, cfg *spec.Log, level *slog.LevelVar) (*slog.Logger, *logWriter, *screen) {
	level.Set(levelOf(cfg.Level))
	var person *screen
	var to io.Writer = out
	if cfg.Format == "auto" {
		if person = newScreen(out); person != nil {
			to = person
		}
	}
	w := newLogWriter(to)
	opt := &slog.HandlerOptions{Level: level}
	var h slog.Handler
	switch {
	case person != nil:
		h = newPersonHandler(w, level)
	case cfg.Format == "text" || cfg.Format == "auto" && isTerminal(out):
		h = slog.NewTextHandler(w, opt)
	default:
		opt.ReplaceAttr = seconds
		h = slog.NewJSONHandler(w, opt)
	}
	limiter := newLogLimiter(h)
	log := slog.New(limiter)
	w.beforeClose = limiter.reportAllLeftOut
	w.onDropped = func(n int64) { log.Warn("the log dropped lines", "dropped", n) }
	return log, w, person
}

// levelOf and levelName convert between slog's levels and the names in a configuration.
func levelOf(name string) slog.Level {
	var l slog.Level
	if err := l.UnmarshalText([]byte(name)); err != nil {
		panic(err)
	}
	return l
}

func levelName(l slog.Level) string { return strings.ToLower(l.String()) }

// seconds replaces durations by seconds: slog's JSON handler writes nanoseconds.
func seconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.Float64Value(a.Value.Duration().Seconds())
	}
	return a
}

// isTerminal reports whether f is a character device. It takes every one for a terminal:
// the others, such as /dev/null, have no readers.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&fs.ModeCharDevice != 0
}
