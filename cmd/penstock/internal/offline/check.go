package offline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/rules"
	"github.com/penstock/penstock/cmd/penstock/internal/sources"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Check is the command check.
type Check struct {
	Config []string `short:"c" sep:"none" placeholder:"FILE" help:"The configuration: a file, a folder, - for standard input, or a text in etcd: etcd://HOST:PORT/KEY. Several are layers: each one changes those before it (default: /etc/penstock/penstock.yaml)."`
	Diff   []string `sep:"none" placeholder:"RUNNING" help:"Also show what FILE would change, compared with another configuration (several are layers, as above) or with the daemon whose admin listener is at unix:///PATH or tcp://HOST:PORT."`
	Print  bool     `help:"Print the configuration as one file, with its layers, included files and variables resolved."`
	Token  string   `env:"PENSTOCK_TOKEN" placeholder:"TOKEN" help:"The token of an admin listener on TCP."`
	JSON   bool     `name:"json" help:"Print what changes as JSON."`
}

// Help returns the text that penstock check --help prints below the flags.
func (Check) Help() string {
	return "Nothing is looked up, bound or connected. All errors are printed at once, with FILE:LINE:COLUMN. Exit codes: 0: the file is valid; 2: it is not; 1: the daemon could not be asked."
}

// Run runs the command.
func (c *Check) Run(call Call) int {
	stdout, stderr := call.Stdout, call.Stderr
	source := &config.Source{Paths: pathsOrPackaged(c.Config), Remote: sources.Fetch(call.Version)}
	cfg, warnings, err := source.Load(rules.OnHost(false)...)
	var errs config.Errors
	if errors.As(err, &errs) || err == nil && len(warnings) > 0 {
		fmt.Fprintln(stderr, config.Messages(errs, warnings))
	} else if err != nil {
		fmt.Fprintln(stderr, config.Message(explainNoPackaged(err, c.Config)))
	}
	for _, path := range sources.Experimental(c.Config) {
		fmt.Fprintf(stderr, "%s: warning: %s\n", spec.RemoteName(path), sources.ExperimentalWhy)
	}
	if err != nil {
		return cli.ExitUsage
	}
	switch {
	case c.Print:
		_, err = stdout.Write(cfg.Text)
	case len(c.Diff) == 0:
		fmt.Fprintf(stdout, "%s: good: %s, %s\n", source, config.Counted(len(cfg.Listeners), "listener"), config.Counted(len(cfg.Groups), "group"))
	case strings.HasPrefix(c.Diff[0], "unix:") || strings.HasPrefix(c.Diff[0], "tcp:"):
		err = c.compareWithDaemon(stdout, cfg)
	default:
		err = c.compareWithFile(call, cfg)
	}
	if err != nil {
		fmt.Fprintln(stderr, config.Message(err))
		return cli.ExitFailed
	}
	return cli.ExitOK
}

// compareWithFile prints what FILE changes compared with another file.
func (c *Check) compareWithFile(call Call, cfg *spec.Config) error {
	old, _, err := (&config.Source{Paths: c.Diff, Remote: sources.Fetch(call.Version)}).Load(rules.Everywhere...)
	if err != nil {
		return err
	}
	diff := config.Compare(old, cfg)
	if c.JSON {
		return printJSON(call.Stdout, diff)
	}
	fmt.Fprint(call.Stdout, diff.String())
	return nil
}

// compareWithDaemon prints what FILE would change in a running daemon.
func (c *Check) compareWithDaemon(stdout io.Writer, cfg *spec.Config) error {
	client, err := api.NewClient(c.Diff[0], c.Token)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	diff, err := client.Diff(ctx, cfg.Text)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(stdout, diff)
	}
	printDiff(stdout, &diff)
	return nil
}

// printDiff prints what a daemon would change, or has changed, for a person.
func printDiff(w io.Writer, d *api.Diff) {
	if len(d.Changes) == 0 {
		fmt.Fprintln(w, "nothing changes")
		return
	}
	for _, c := range d.Changes {
		fmt.Fprintf(w, "%-8s %-9s %s", c.What, c.Kind, c.Name)
		if len(c.Fields) > 0 && c.Kind != "setting" {
			fmt.Fprintf(w, " (%s)", strings.Join(c.Fields, ", "))
		}
		if c.Flows > 0 {
			fmt.Fprintf(w, ": ends %s", config.Counted(int(c.Flows), "open flow"))
		}
		if c.Restart {
			fmt.Fprint(w, ": only after a restart")
		}
		if c.NewWorker {
			fmt.Fprint(w, ": by a new worker, while flows continue")
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "%s in all will end\n", config.Counted(int(d.Flows), "open flow"))
	if d.TLSFlows > 0 {
		fmt.Fprintf(w, "%s will end when the new worker takes over, because TLS ends or begins here\n", config.Counted(int(d.TLSFlows), "open flow"))
	}
}

func printJSON(w io.Writer, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}
