package offline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/console"
	"github.com/penstock/penstock/cmd/penstock/internal/fleet"
)

// Rollback is the command rollback.
type Rollback struct {
	fleetFlags

	To   int64       `placeholder:"VERSION" help:"Go back to this version (default: the one before the current one)."`
	Wait cli.Timeout `default:"0" placeholder:"TIME" help:"How long to wait until all relays run it."`
}

// Help returns the text that penstock rollback --help prints below the flags.
func (Rollback) Help() string {
	return "The text of the version before is published again as a new version, so that the history goes on. While a version is tried, rollback without --to only ends that.\n\n" +
		"Exit codes: 0: it is published; 1: nothing was changed; 3: with --wait, not all relays run it."
}

// Run runs the command.
func (c *Rollback) Run(call Call) int {
	stdout, stderr := call.Stdout, call.Stderr
	return c.runFleet(stderr, func(ctx context.Context, o *fleet.Operator) (int, error) {
		v, old, err := o.Rollback(ctx, c.To, c.Message)
		switch {
		case errors.Is(err, fleet.ErrNoChange):
			fmt.Fprintf(stdout, "nothing changes: the current version has the text of version %d\n", old.Version)
			return cli.ExitOK, nil
		case err != nil:
			return cli.ExitFailed, err
		case old.Version == 0:
			fmt.Fprintf(stdout, "the trial, which could not be read, is over; version %d goes on\n", v.Version)
		case old.Hash == "":
			fmt.Fprintf(stdout, "the trial of version %d has ended; version %d goes on\n", old.Version, v.Version)
		default:
			fmt.Fprintf(stdout, "published version %d, which is version %d of %s again\n", v.Version, old.Version, old.At.Local().Format(time.DateTime))
		}
		if c.Wait == 0 {
			return cli.ExitOK, nil
		}
		return (&Publish{}).awaitAll(ctx, o, v.Version, time.Duration(c.Wait), stdout)
	})
}

// History is the command history.
type History struct {
	Fleet string    `arg:"" env:"PENSTOCK_FLEET" name:"URL" help:"Where the fleet's configuration is: etcd://HOST:PORT[,HOST:PORT...]/KEY, or etcds:// with TLS (or $$${env})."`
	Limit cli.Count `default:"20" placeholder:"N" help:"At most this many versions (${default})."`
	Show  int64     `placeholder:"VERSION" help:"Print the text of a version."`
	Diff  []string  `sep:"," placeholder:"N[,M]" help:"Show the lines that version N has changed, or those that differ between N and M."`
	JSON  bool      `name:"json" help:"Print JSON."`
}

// Help returns the text that penstock history --help prints below the flags.
func (History) Help() string {
	return "The last 100 versions are kept. Of those that are neither current nor tried, the state is \"before\" if all relays were given it, and \"taken back\" if only canaries were; \"unknown\" if that cannot be told, because what was published in between is gone."
}

// historyEntry is a version in JSON.
type historyEntry struct {
	Version int64     `json:"version"`
	State   string    `json:"state"`
	At      time.Time `json:"at"`
	By      string    `json:"by"`
	Message string    `json:"message,omitempty"`
	Hash    string    `json:"hash"`
	Parent  int64     `json:"parent,omitempty"`
	Bytes   int       `json:"bytes"`
}

// Run runs the command.
func (c *History) Run(call Call) int {
	stdout, stderr := call.Stdout, call.Stderr
	flags := fleetFlags{Fleet: c.Fleet}
	return flags.runFleet(stderr, func(ctx context.Context, o *fleet.Operator) (int, error) {
		switch {
		case c.Show != 0:
			v, err := o.Version(ctx, c.Show)
			if err == nil {
				_, err = stdout.WriteString(v.Text)
			}
			return cli.ExitOK, err
		case len(c.Diff) > 0:
			return cli.ExitOK, c.printDiff(ctx, o, stdout)
		}
		list, s, err := o.History(ctx, int(c.Limit))
		if err != nil {
			return cli.ExitFailed, err
		}
		if s.Problem != nil {
			fmt.Fprintln(stderr, "penstock:", console.Printable(config.OneLine(s.Problem)))
		}
		return cli.ExitOK, c.print(stdout, entriesOf(list, &s))
	})
}

// entriesOf says of each version what has become of it. list has the latest first.
func entriesOf(list []fleet.Version, s *fleet.State) []historyEntry {
	entries := make([]historyEntry, len(list))
	ran := s.Current.Version // the next older one that all relays ran; 0: it is not known
	for i, v := range list {
		e := historyEntry{v.Version, "taken back", v.At, v.By, v.Message, v.Hash, v.Parent, len(v.Text)}
		if v.Version < ran {
			ran = 0
		}
		switch {
		case s.Canary != nil && v.Version == s.Canary.Version:
			e.State = "tried"
		case v.Version == s.Current.Version:
			e.State, ran = "current", v.Parent
		case v.Version == ran:
			e.State, ran = "before", v.Parent
		case ran == 0:
			e.State = "unknown"
		}
		entries[i] = e
	}
	return entries
}

func (c *History) print(stdout *os.File, list []historyEntry) error {
	if c.JSON {
		return printJSON(stdout, list)
	}
	if len(list) == 0 {
		fmt.Fprintln(stdout, "nothing has been published")
		return nil
	}
	for _, e := range list {
		line := fmt.Sprintf("%6d  %-10s  %s  %.12s  %7d  %s", e.Version, e.State, e.At.Local().Format(time.DateTime), e.Hash, e.Bytes, console.Printable(e.By))
		if e.Message != "" {
			line += ": " + console.Printable(e.Message)
		}
		fmt.Fprintln(stdout, line)
	}
	return nil
}

// printDiff prints the lines in which two versions differ.
func (c *History) printDiff(ctx context.Context, o *fleet.Operator, stdout *os.File) error {
	var of [2]fleet.Version
	for i, text := range c.Diff {
		var n int64
		if _, err := fmt.Sscan(text, &n); err != nil || n <= 0 || i > 1 {
			return fmt.Errorf("--diff: invalid version %q; allowed: N, or N,M", text)
		}
		v, err := o.Version(ctx, n)
		if err != nil {
			return err
		}
		of[i] = v
	}
	if len(c.Diff) == 1 {
		of[1] = of[0]
		of[0] = fleet.Version{}
		if n := of[1].Parent; n != 0 {
			v, err := o.Version(ctx, n)
			if err != nil {
				return err
			}
			of[0] = v
		}
	}
	lines := fleet.LineDiff(of[0].Text, of[1].Text)
	if len(lines) == 0 {
		lines = []string{"  the texts are equal"}
	}
	fmt.Fprintln(stdout, strings.Join(lines, "\n"))
	return nil
}
