package logs

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/console"
)

// liveInterval is the interval at which the live line is updated.
const liveInterval = time.Second

// A Screen is standard error when it is a terminal and log.format is auto: a person watches. It
// shows a greeting, log lines for people, and below them one live line about the flows.
type Screen struct {
	out *os.File

	mu   sync.Mutex
	line string // the live line, if there is one
}

// NewScreen returns a Screen, or nil if out is not a terminal on which a line can be replaced.
func NewScreen(out *os.File) *Screen {
	if console.TerminalWidth(out) == 0 || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return &Screen{out: out}
}

// Write writes whole lines above the live line.
func (s *Screen) Write(lines []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line == "" {
		return s.out.Write(lines)
	}
	// In one write, so that the line does not flicker.
	b := append([]byte(console.EraseLine), lines...)
	b = append(b, s.line...)
	if n, err := s.out.Write(b); err != nil {
		return max(0, min(len(lines), n-len(console.EraseLine))), err
	}
	return len(lines), nil
}

// show replaces the live line. An empty line removes it.
func (s *Screen) show(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if line != s.line {
		io.WriteString(s.out, console.EraseLine+line)
		s.line = line
	}
}

// Run updates the live line until ctx ends, and then removes it. line returns it for a terminal of a width.
func (s *Screen) Run(ctx context.Context, line func(width int) string) {
	tick := time.NewTicker(liveInterval)
	defer tick.Stop()
	defer s.show("")
	for {
		// The last cell stays free: some terminals wrap the line when it is written to.
		s.show(line(console.TerminalWidth(s.out) - 1))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// flowForPerson returns the record of a flow with its ends and its cause in the message, and
// without the attributes that say little to a person.
func flowForPerson(r slog.Record) slog.Record {
	text := map[string]string{}
	var rest []slog.Attr
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "client", "upstream", "cause", "reason", "error":
			text[a.Key] = a.Value.Resolve().String()
		case "id", "listener", "route", "group", "path_up", "path_down":
		default:
			if v := a.Value.Resolve(); v.Kind() != slog.KindInt64 || v.Int64() != 0 {
				rest = append(rest, a)
			}
		}
		return true
	})
	message := "flow " + text["client"]
	if text["upstream"] != "" {
		message += " -> " + text["upstream"]
	}
	message += ": " + text["cause"]
	if text["reason"] != "" {
		message += " (" + text["reason"] + ")"
	}
	if text["error"] != "" {
		message += ": " + text["error"]
	}
	out := slog.NewRecord(r.Time, r.Level, message, r.PC)
	out.AddAttrs(rest...)
	return out
}

// A personHandler formats log records for people: the time of day, the level if it is not info,
// the message, and the attributes.
type personHandler struct {
	level slog.Leveler
	out   io.Writer
	attrs slog.Handler // formats the attributes into text

	mu   *sync.Mutex // guards text
	text *bytes.Buffer
}

func newPersonHandler(out io.Writer, level slog.Leveler) *personHandler {
	text := new(bytes.Buffer)
	attrs := slog.NewTextHandler(text, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
			return slog.Attr{}
		}
		return a
	}})
	return &personHandler{level: level, out: out, attrs: attrs, mu: new(sync.Mutex), text: text}
}

func (h *personHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level.Level() }

func (h *personHandler) WithAttrs(a []slog.Attr) slog.Handler {
	with := *h
	with.attrs = h.attrs.WithAttrs(a)
	return &with
}

func (h *personHandler) WithGroup(name string) slog.Handler {
	with := *h
	with.attrs = h.attrs.WithGroup(name)
	return &with
}

func (h *personHandler) Handle(ctx context.Context, r slog.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	line := r.Time.Format("15:04:05 ")
	if r.Level != slog.LevelInfo {
		line += strings.ToLower(r.Level.String()) + ": "
	}
	if r.Message == "flow" {
		r = flowForPerson(r)
	}
	line += console.Printable(r.Message)
	h.text.Reset()
	if err := h.attrs.Handle(ctx, r); err != nil {
		return err
	}
	// The text handler quotes what is not printable.
	if attrs := strings.TrimSpace(h.text.String()); attrs != "" {
		line += "  " + attrs
	}
	_, err := io.WriteString(h.out, line+"\n")
	return err
}
