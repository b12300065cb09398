package app

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/console"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// liveInterval is the interval at which the live line is updated.
const liveInterval = time.Second

// A screen is standard error when it is a terminal and log.format is auto: a person watches. It
// shows a greeting, log lines for people, and below them one live line about the flows.
type screen struct {
	out *os.File

	mu   sync.Mutex
	line string // the live line, if there is one
}

// newScreen returns a screen, or nil if out is not a terminal on which a line can be replaced.
func newScreen(out *os.File) *screen {
	if console.TerminalWidth(out) == 0 || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return &screen{out: out}
}

// eraseLine returns to the start of the line and erases it (ECMA-48 EL).
const eraseLine = "\r\x1b[K"

// Write writes whole lines above the live line.
func (s *screen) Write(lines []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line == "" {
		return s.out.Write(lines)
	}
	// In one write, so that the line does not flicker.
	b := append([]byte(eraseLine), lines...)
	b = append(b, s.line...)
	if n, err := s.out.Write(b); err != nil {
		return max(0, min(len(lines), n-len(eraseLine))), err
	}
	return len(lines), nil
}

// show replaces the live line. An empty line removes it.
func (s *screen) show(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if line != s.line {
		io.WriteString(s.out, eraseLine+line)
		s.line = line
	}
}

// run updates the live line until ctx ends, and then removes it.
func (s *screen) run(ctx context.Context, d *daemon) {
	tick := time.NewTicker(liveInterval)
	defer tick.Stop()
	defer s.show("")
	before := d.Status().Sample
	before.Uptime = time.Since(d.started).Seconds()
	for {
		after := d.Status().Sample
		after.Uptime = time.Since(d.started).Seconds()
		// The last cell stays free: some terminals wrap the line when it is written to.
		s.show(console.LiveLine(&before, &after, console.TerminalWidth(s.out)-1))
		before = after
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// greeting tells a person what runs, how to try it, and how to stop it.
func (d *daemon) greeting(files []string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	cfg := d.active.Load()
	var b strings.Builder
	fmt.Fprintf(&b, "penstock %s", version())
	if len(files) > 0 {
		fmt.Fprintf(&b, ", configuration %s", strings.Join(files, ", "))
	}
	b.WriteString("\n\n")
	try := ""
	for _, l := range cfg.Listeners {
		at := d.listensAt(l)
		var to []string
		seen := map[*spec.Group]bool{}
		for _, r := range routesOf(l) {
			if seen[r.To] {
				continue
			}
			seen[r.To] = true
			if len(files) == 0 && len(r.To.Members) > 0 {
				for _, m := range r.To.Members {
					to = append(to, m.To.String())
				}
				continue
			}
			text, n := r.To.Name, d.set.Group(r.To.Name).Len()
			if n != 1 {
				text += fmt.Sprintf(" (%d members)", n)
			}
			to = append(to, text)
		}
		const shown = 4
		if more := len(to) - shown; more > 0 {
			to = append(to[:shown], fmt.Sprintf("and %d more", more))
		}
		name := ""
		if len(cfg.Listeners) > 1 {
			name = l.Name + "  "
		}
		fmt.Fprintf(&b, "  %s%s -> %s\n", name, at, strings.Join(to, ", "))
		if try == "" {
			try = tryCommand(at)
		}
	}
	b.WriteString("\n")
	if try != "" {
		fmt.Fprintf(&b, "Try it:  %s\n", try)
	}
	if at, ok := cfg.Admin.Commands(); ok {
		fmt.Fprintf(&b, "Watch:   penstock top --admin %s\n", at)
	}
	fmt.Fprintf(&b, "Stop:    Ctrl-C (open flows may go on for %v; a second Ctrl-C ends them)\n\n", cfg.Drain)
	return b.String()
}

// tryCommand returns a command that connects to a listener, or an empty string if there is no
// common one.
func tryCommand(url string) string {
	network, at, _ := strings.Cut(url, "://")
	flag := map[string]string{"tcp": "", "udp": "-u ", "unix": "-U ", "unixgram": "-uU "}
	if strings.HasPrefix(network, "unix") {
		if !strings.HasPrefix(at, "/") {
			return ""
		}
		return "nc " + flag[network] + at
	}
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		return ""
	}
	port, _, _ = strings.Cut(port, "-") // of a range
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return "nc " + flag[network] + host + " " + port
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
