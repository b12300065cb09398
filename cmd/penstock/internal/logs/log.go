package logs

import (
	"context"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// New returns the log that a configuration asks for, at a level that can be changed
// later. Format and level must be valid. The screen is nil unless a person watches. The
// caller must close the writer. explain says more of errors.
func New(out *os.File, cfg *spec.Log, level *slog.LevelVar, explain func(error) error) (*slog.Logger, *Writer, *Screen) {
	level.Set(LevelOf(cfg.Level))
	var person *Screen
	var to io.Writer = out
	if cfg.Format == "auto" {
		if person = NewScreen(out); person != nil {
			to = person
		}
	}
	w := newWriter(to)
	opt := &slog.HandlerOptions{Level: level}
	var h slog.Handler
	switch {
	case person != nil:
		h = newPersonHandler(w, level)
	case cfg.Format == "text" || cfg.Format == "auto" && IsTerminal(out):
		h = slog.NewTextHandler(w, opt)
	default:
		opt.ReplaceAttr = replaceDurations
		h = slog.NewJSONHandler(w, opt)
	}
	limiter := newLimiter(&explainer{h, explain})
	log := slog.New(limiter)
	w.beforeClose = limiter.reportAllLeftOut
	w.onDropped = func(n int64) { log.Warn("the log dropped lines", "dropped", n) }
	return log, w, person
}

// An explainer says more of the errors in a log.
type explainer struct {
	slog.Handler
	explain func(error) error
}

func (h *explainer) WithAttrs(a []slog.Attr) slog.Handler {
	return &explainer{h.Handler.WithAttrs(a), h.explain}
}

func (h *explainer) WithGroup(name string) slog.Handler {
	return &explainer{h.Handler.WithGroup(name), h.explain}
}

func (h *explainer) Handle(ctx context.Context, r slog.Record) error {
	explained := false
	attrs := make([]slog.Attr, 0, 8)
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok {
			if more := h.explain(err); more != err {
				a.Value, explained = slog.AnyValue(more), true
			}
		}
		attrs = append(attrs, a)
		return true
	})
	if explained {
		plain := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
		plain.AddAttrs(attrs...)
		r = plain
	}
	return h.Handler.Handle(ctx, r)
}

// LevelOf and LevelName convert between slog's levels and the names in a configuration.
func LevelOf(name string) slog.Level {
	var l slog.Level
	if err := l.UnmarshalText([]byte(name)); err != nil {
		panic(err)
	}
	return l
}

func LevelName(l slog.Level) string { return strings.ToLower(l.String()) }

// replaceDurations replaces durations by seconds: slog's JSON handler writes nanoseconds.
func replaceDurations(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.Float64Value(a.Value.Duration().Seconds())
	}
	return a
}

// IsTerminal reports whether f is a character device. It takes every one for a terminal:
// the others, such as /dev/null, have no readers.
func IsTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&fs.ModeCharDevice != 0
}
