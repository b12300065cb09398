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

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// ClientFlags are the flags of every command that talks to a running daemon.
type ClientFlags struct {
	Admin string `env:"PENSTOCK_ADMIN" default:"unix:///run/penstock/admin.sock" placeholder:"URL" help:"The admin listener of the daemon: unix:///PATH or tcp://HOST:PORT (${default}; $$${env})."`
	Token string `env:"PENSTOCK_TOKEN" placeholder:"TOKEN" help:"The token for an admin listener on TCP. Prefer $$${env}: other users can see command lines."`
	JSON  bool   `name:"json" help:"Print JSON."`
}

// callTimeout bounds the time for one answer.
const callTimeout = 30 * time.Second

// usageError is an error of the command line that kong cannot detect.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

// out is the standard output of a command.
type out struct {
	*os.File
	width int // of the terminal; 0 if it is not a terminal
}

func newOut(f *os.File) out {
	return out{File: f, width: TerminalWidth(f)}
}

// run calls do with a client, and with a context that ends with an interrupt. It prints an
// error as one line on stderr, and returns the exit code.
func (f *ClientFlags) run(stderr *os.File, do func(context.Context, *api.Client) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second one ends the command, whatever it waits for: a pipe that nobody reads
	client, err := api.NewClient(f.Admin, f.Token)
	if err != nil {
		fmt.Fprintln(stderr, "penstock: --admin:", err)
		return exitUsage
	}
	defer client.Close()
	err = do(ctx, client)
	if err == nil {
		return exitOK
	}
	if ctx.Err() != nil && !errors.As(err, new(goesOn)) {
		err = errors.New("interrupted")
	}
	fmt.Fprintln(stderr, "penstock:", f.explain(err))
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailed
}

// explain returns an error as one line, with what to do about it. Errors of a
// configuration follow, one per line.
func (f *ClientFlags) explain(err error) string {
	var problem *api.Problem
	var dial *net.OpError
	switch {
	case errors.As(err, &problem) && problem.Status == http.StatusUnauthorized:
		return f.Admin + ": no token, or a wrong one; allowed: --token or PENSTOCK_TOKEN with the token of the configuration, or the Unix socket"
	case errors.As(err, &problem) && len(problem.Errors) > 0:
		return printable(problem.Detail) + "\n" + configErrors(problem.Errors, "\n")
	case errors.As(err, &problem):
		return printable(problem.Error())
	case errors.Is(err, fs.ErrPermission):
		return f.Admin + ": no permission; run it as the user of the daemon or as root, or widen admin.mode of the configuration"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return f.Admin + ": nothing listens there; is the daemon running, and is that the admin.listen of its configuration (--admin, PENSTOCK_ADMIN)?"
	case errors.Is(err, context.DeadlineExceeded):
		return f.Admin + ": no answer for too long; the log of the daemon says whether its worker starts"
	case cut(err):
		return f.Admin + ": the daemon closed the connection before it answered"
	case errors.As(err, &dial) && dial.Op == "dial":
		return printable(f.Admin + ": cannot connect: " + dial.Err.Error())
	}
	return printable(err.Error())
}

// cut reports whether the daemon has closed the connection before it answered.
func cut(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// call calls ask once, with callTimeout.
func call[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return ask(ctx)
}

// query calls ask once and prints the answer, as JSON or with text.
func query[T any](f *ClientFlags, stdout, stderr *os.File, ask func(context.Context, *api.Client) (T, error), text func(out, T)) int {
	return f.run(stderr, func(ctx context.Context, c *api.Client) error {
		answer, err := call(ctx, func(ctx context.Context) (T, error) { return ask(ctx, c) })
		if err != nil {
			return err
		}
		if f.JSON {
			return printJSON(stdout, answer)
		}
		text(newOut(stdout), answer)
		return nil
	})
}

// printJSON prints v as indented JSON.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printable returns s as printable ASCII, in which every character is one cell wide. Others
// become escapes such as \x1b.
func printable(s string) string {
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
