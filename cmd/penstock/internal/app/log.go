package app

import (
	"io/fs"
	"log/slog"
	"os"
)

// newLog makes the log that the flags ask for. Format and level are among those
// that the grammar allows.
func newLog(w *os.File, format, level string) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		panic(err)
	}
	opt := &slog.HandlerOptions{Level: l}
	if format == "text" || format == "auto" && isTerminal(w) {
		return slog.New(slog.NewTextHandler(w, opt))
	}
	opt.ReplaceAttr = seconds
	return slog.New(slog.NewJSONHandler(w, opt))
}

// seconds makes durations what other programs can compute with: slog's JSON has
// them in nanoseconds.
func seconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.Float64Value(a.Value.Duration().Seconds())
	}
	return a
}

// isTerminal takes every character device for one: the others, such as
// /dev/null, have no reader who minds.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&fs.ModeCharDevice != 0
}
