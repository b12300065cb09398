package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/charmbracelet/x/term"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// Ask is where the daemon is asked, and how it is answered.
type Ask struct {
	Admin string `env:"PENSTOCK_ADMIN" default:"unix:///run/penstock/admin.sock" placeholder:"URL" help:"Where the daemon is asked: unix:///PATH or tcp://HOST:PORT (${default}; $$${env})."`
	Token string `env:"PENSTOCK_TOKEN" placeholder:"TOKEN" help:"The token of a daemon that is asked over TCP ($$${env}, where other users do not see it)."`
	JSON  bool   `name:"json" help:"Print JSON."`
}

// patience is how long one answer may take.
const patience = 30 * time.Second

// errUsage is a command line that kong could not know to be wrong.
type errUsage struct{ text string }

func (e errUsage) Error() string { return e.text }

// out is where a command prints.
type out struct {
	*os.File
	width int // of the terminal; 0: it is none
}

func newOut(f *os.File) out {
	o := out{File: f}
	if term.IsTerminal(f.Fd()) {
		if o.width, _, _ = term.GetSize(f.Fd()); o.width <= 0 {
			o.width = 80
		}
	}
	return o
}

// with gives a client to do, and a context that an interrupt ends. An error is
// one line on stderr.
func (a *Ask) with(stderr *os.File, do func(context.Context, *api.Client) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := api.NewClient(a.Admin, a.Token)
	if err != nil {
		fmt.Fprintln(stderr, "penstock: --admin:", err)
		return exitUsage
	}
	defer client.Close()
	err = do(ctx, client)
	if err == nil {
		return exitOK
	}
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	fmt.Fprintln(stderr, "penstock:", a.explain(err))
	if errors.As(err, new(errUsage)) {
		return exitUsage
	}
	return exitFailed
}

// explain makes one line of an error, with what to do about it. Errors of a
// configuration follow, a line each.
func (a *Ask) explain(err error) string {
	var problem *api.Problem
	var dial *net.OpError
	switch {
	case errors.As(err, &problem) && problem.Status == http.StatusUnauthorized:
		return a.Admin + ": no token, or a wrong one; allowed: --token or PENSTOCK_TOKEN with the token of the configuration, or the Unix socket"
	case errors.As(err, &problem) && len(problem.Errors) > 0:
		return clean(problem.Detail) + "\n" + configErrors(problem.Errors, "\n")
	case errors.As(err, &problem):
		return clean(problem.Error())
	case errors.Is(err, fs.ErrPermission):
		return a.Admin + ": no permission; run it as the user of the daemon or as root, or widen admin.mode of the configuration"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return a.Admin + ": nobody listens there; is the daemon running, and is that the admin.listen of its configuration (--admin, PENSTOCK_ADMIN)?"
	case errors.Is(err, context.DeadlineExceeded):
		return a.Admin + ": no answer for too long"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return a.Admin + ": the daemon went away before it had answered"
	case errors.As(err, &dial) && dial.Op == "dial":
		return clean(a.Admin + ": cannot connect: " + dial.Err.Error())
	}
	return clean(err.Error())
}

// get asks once, within patience.
func get[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return ask(ctx)
}

// show asks once and prints the answer, as JSON or as text makes it.
func show[T any](a *Ask, stdout, stderr *os.File, ask func(context.Context, *api.Client) (T, error), text func(out, T)) int {
	return a.with(stderr, func(ctx context.Context, c *api.Client) error {
		answer, err := get(ctx, func(ctx context.Context) (T, error) { return ask(ctx, c) })
		if err != nil {
			return err
		}
		if a.JSON {
			return printJSON(stdout, answer)
		}
		text(newOut(stdout), answer)
		return nil
	})
}

// printJSON prints one value for programs and people.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// clean makes text fit for a terminal: every rune is printable ASCII, so it is one
// cell wide and does nothing. What is not becomes an escape such as \x1b.
func clean(s string) string {
	plain := func(r rune) bool { return r >= ' ' && r <= '~' }
	if strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case plain(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
