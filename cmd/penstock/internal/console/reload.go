package console

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// ReloadCmd puts a changed configuration in force.
type ReloadCmd struct {
	Ask
}

// Run asks, and prints what changed, or every error of the configuration.
func (c *ReloadCmd) Run(stdout, stderr *os.File) int {
	return c.with(stderr, func(ctx context.Context, client *api.Client) error {
		if !c.JSON {
			fmt.Fprintln(stderr, "reading the configuration ...")
		}
		// New listeners and the first checks of members may take their time.
		diff, err := client.Reload(ctx)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(stdout, diff)
		}
		printDiff(newOut(stdout), diff)
		return nil
	})
}

func printDiff(o out, d api.Diff) {
	if len(d.Changes) == 0 {
		fmt.Fprintf(o, "nothing has changed; %.12s is in force\n", d.Hash)
		return
	}
	t := newTable("KIND", "~NAME", "WHAT", ">FLOWS", "~FIELDS")
	for _, c := range d.Changes {
		fields := strings.Join(c.Fields, ", ")
		if c.Restart {
			fields += " (needs a restart)"
		}
		t.add(c.Kind, c.Name, c.What, count(c.Flows), dash(strings.TrimSpace(fields)))
	}
	t.print(o)
	fmt.Fprintf(o, "\n%d changes, %s flows end or drain; %.12s is in force\n", len(d.Changes), count(d.Flows), d.Hash)
	if d.Restart {
		fmt.Fprintln(o, "what needs a restart was left as it is")
	}
}

// LogCmd changes the level of the log.
type LogCmd struct {
	Ask
	Level string `arg:"" optional:"" name:"LEVEL" enum:",debug,info,warn,error" default:"" help:"debug, info, warn or error; none: show it."`
}

// Run asks, and prints the level that is in force then.
func (c *LogCmd) Run(stdout, stderr *os.File) int {
	return show(&c.Ask, stdout, stderr, func(ctx context.Context, client *api.Client) (api.Level, error) {
		if c.Level != "" {
			return api.Level{Level: c.Level}, client.SetLevel(ctx, c.Level)
		}
		level, err := client.Level(ctx)
		return api.Level{Level: level}, err
	}, func(o out, l api.Level) { fmt.Fprintln(o, clean(l.Level)) })
}
