package offline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"os/user"
	"strconv"
	"syscall"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/console"
	"github.com/penstock/penstock/cmd/penstock/internal/cycle"
	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/fleet"
	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/rules"
	"github.com/penstock/penstock/cmd/penstock/internal/sources"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// exitTakenBack says that a version was tried, and taken back.
const exitTakenBack = 3

// fleetFlags are the flags of commands that change what a fleet has in etcd.
type fleetFlags struct {
	Fleet   string `arg:"" env:"PENSTOCK_FLEET" name:"URL" help:"Where the fleet's configuration is: etcd://HOST:PORT[,HOST:PORT...]/KEY, or etcds:// with TLS (or $$${env})."`
	By      string `env:"PENSTOCK_BY" placeholder:"WHO" help:"Who you are, for the history (default: USER@HOST)."`
	Message string `short:"m" placeholder:"TEXT" help:"Why, for the history."`
}

// Publish is the command publish.
type Publish struct {
	Config []string `short:"c" required:"" sep:"none" placeholder:"FILE" help:"The configuration: a file, a folder, or - for standard input. Several are layers: each one changes those before it."`
	fleetFlags

	Canary    *cli.Share  `placeholder:"SHARE" help:"Have this share of the relays run it first, such as 5%, at least one; then all, or none."`
	Wait      cli.Timeout `default:"0" placeholder:"TIME" help:"With --canary, how long it is tried (1m if not given); without, how long to wait until all relays run it."`
	Unjudged  string      `enum:"take-back,promote" default:"take-back" placeholder:"WHAT" help:"With --canary, what becomes of the version if its relays have seen no flow, or cannot say how clients are served: take-back or promote (${default})."`
	EndCanary bool        `help:"Publish although somebody tries a version, which ends that."`
	DryRun    bool        `help:"Only check the configuration, and show what it would change."`
}

// Help returns the text that penstock publish --help prints below the flags.
func (Publish) Help() string {
	return "The configuration is checked first, and published as one text with its variables as written: each relay expands them in its own environment, so that this command needs them, too. Nobody's changes are overwritten: if two publish at once, one is told what the other has done.\n\n" +
		"A canary is taken back when one of its relays refuses the version, goes away or is started again, or when its clients are served worse than before and than elsewhere: docs/fleet.md says by what that is told. It lasts up to three times as long as --wait if few flows come. It also ends when this command does.\n\n" +
		"Exit codes: 0: it is published, or nothing changes; 1: nothing was changed; 2: the configuration is invalid; 3: it was tried and taken back, or with --wait, not all relays run it."
}

// promoteUnjudged is the value of --unjudged that is not the default.
const promoteUnjudged = "promote"

// Validate is called by kong.
func (c *Publish) Validate() error {
	if c.Canary != nil && c.Wait == 0 {
		c.Wait = cli.Timeout(time.Minute)
	}
	return nil
}

// registry returns where the fleet is.
func (f *fleetFlags) registry() (spec.Registry, string, error) {
	registry, key, err := spec.ParseRemote(f.Fleet)
	if err == nil && registry.Kind != "etcd" {
		err = fmt.Errorf("%s: nothing can be published there; allowed: etcd://HOST:PORT/KEY", spec.RemoteName(f.Fleet))
	}
	return registry, key, err
}

// operator returns the client of a fleet.
func (f *fleetFlags) operator() (*fleet.Operator, error) {
	registry, key, err := f.registry()
	if err != nil {
		return nil, err
	}
	client, err := etcd.New(etcd.Config{Remote: remote.Of(registry)})
	if err != nil {
		return nil, err
	}
	by := f.By
	if by == "" {
		by = whoAmI()
	}
	return &fleet.Operator{Client: client, Key: key, By: by}, nil
}

// whoAmI returns USER@HOST.
func whoAmI() string {
	name := strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	host, _ := os.Hostname()
	return name + "@" + host
}

// runFleet calls do with the client of a fleet, and a context that ends with a signal. It prints an error, and
// returns the exit code.
func (f *fleetFlags) runFleet(stderr io.Writer, do func(context.Context, *fleet.Operator) (int, error)) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := f.operator()
	if err != nil {
		fmt.Fprintln(stderr, config.Message(err))
		return cli.ExitUsage
	}
	defer o.Client.Close()
	code, err := do(ctx, o)
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = errors.New("interrupted")
		}
		fmt.Fprintln(stderr, console.Printable(config.Message(err)))
		if code == cli.ExitOK {
			code = cli.ExitFailed
		}
	}
	return code
}

// Run runs the command.
func (c *Publish) Run(call Call) int {
	stdout, stderr := call.Stdout, call.Stderr
	if _, _, err := c.registry(); err != nil {
		fmt.Fprintln(stderr, console.Printable(config.Message(err)))
		return cli.ExitUsage
	}
	source := &config.Source{Paths: c.Config, Remote: sources.Fetch(call.Version), NoTokens: true}
	cfg, warnings, err := source.Load(rules.Everywhere...)
	if err == nil {
		cfg, err = parsePublished(c.Fleet, cfg.Written)
	}
	if err == nil {
		err = cycle.Check(cycle.NewListeners(cfg.Listeners, cycle.ConfiguredAddrs), cfg.Listeners)
	}
	var errs config.Errors
	if errors.As(err, &errs) || err == nil && len(warnings) > 0 {
		fmt.Fprintln(stderr, config.Messages(errs, warnings))
	} else if err != nil {
		fmt.Fprintln(stderr, config.Message(err))
	}
	if err != nil {
		return cli.ExitUsage
	}
	return c.runFleet(stderr, func(ctx context.Context, o *fleet.Operator) (int, error) { return c.publish(ctx, o, cfg, stdout) })
}

// parsePublished reads a text as relays read it from a registry, but with the environment of this process.
func parsePublished(url string, text []byte) (*spec.Config, error) {
	source := &config.Source{Paths: []string{url}, NoTokens: true, Remote: func(string) (spec.Layer, error) { return spec.Layer{Text: text}, nil }}
	cfg, _, err := source.Load(rules.Everywhere...)
	return cfg, err
}

func (c *Publish) publish(ctx context.Context, o *fleet.Operator, cfg *spec.Config, stdout *os.File) (int, error) {
	s, err := o.State(ctx)
	if err != nil {
		return cli.ExitFailed, err
	}
	if s.Problem != nil {
		fmt.Fprintf(stdout, "what is published cannot be read, and is replaced: %s\n", console.Printable(config.OneLine(s.Problem)))
	}
	draft := fleet.Draft{Text: string(cfg.Layers[0].Text), Message: c.Message, EndCanary: c.EndCanary}
	if s.Current.Version != 0 {
		old, err := o.Version(ctx, s.Current.Version)
		switch {
		case err != nil && ctx.Err() != nil:
			return cli.ExitFailed, err
		case err != nil:
			fmt.Fprintf(stdout, "the version before cannot be compared: %s\n", console.Printable(config.OneLine(err)))
		case old.Text == draft.Text && s.Canary == nil:
			fmt.Fprintf(stdout, "nothing changes: version %d has the same text\n", old.Version)
			return cli.ExitOK, nil
		default:
			c.printChanges(stdout, &old, cfg)
		}
	}
	switch {
	case c.DryRun:
		fmt.Fprintln(stdout, "nothing was published")
		return cli.ExitOK, nil
	case c.Canary != nil:
		return c.tryCanaries(ctx, o, s, draft, stdout)
	}
	v, err := o.Publish(ctx, s, draft, "publish")
	if err != nil {
		return cli.ExitFailed, c.explainConflict(ctx, o, err, stdout)
	}
	fmt.Fprintf(stdout, "published version %d\n", v.Version)
	if c.Wait > 0 {
		return c.awaitAll(ctx, o, v.Version, time.Duration(c.Wait), stdout)
	}
	return cli.ExitOK, nil
}

// printChanges prints what a configuration changes, compared with a version.
func (c *Publish) printChanges(w io.Writer, old *fleet.Version, cfg *spec.Config) {
	was, err := parsePublished(c.Fleet, []byte(old.Text))
	if err != nil {
		fmt.Fprintf(w, "version %d cannot be compared with this host's environment: %s\n", old.Version, console.Printable(config.OneLine(err)))
		return
	}
	fmt.Fprintf(w, "compared with version %d of %s:\n", old.Version, console.Printable(old.By))
	diff := config.Compare(was, cfg)
	fmt.Fprint(w, diff.String())
}

// explainConflict adds to a conflict what the other one has changed.
func (c *Publish) explainConflict(ctx context.Context, o *fleet.Operator, err error, w io.Writer) error {
	var conflict *fleet.ConflictError
	if !errors.As(err, &conflict) || conflict.By.Text == "" {
		return err
	}
	before, failed := o.Version(ctx, conflict.By.Parent)
	if failed != nil {
		return err
	}
	now, failed := parsePublished(c.Fleet, []byte(conflict.By.Text))
	if failed == nil {
		c.printChanges(w, &before, now)
	}
	return err
}
