package console

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// ReloadCmd applies a changed configuration.
type ReloadCmd struct {
	ClientFlags
}

// reloadPatience bounds for how long a reload is asked for again that has met a worker that ends.
const reloadPatience = 5 * time.Second

// Run executes the command. It prints the changes, or every error of the configuration.
func (c *ReloadCmd) Run(stdout, stderr *os.File) int {
	return c.run(stderr, func(ctx context.Context, client *api.Client) error {
		if !c.JSON {
			fmt.Fprintln(stderr, "reading the configuration ...")
		}
		// New listeners and the first health checks may take a while, so there is no timeout.
		diff, err := client.Reload(ctx)
		for begun := time.Now(); replacing(err) && ctx.Err() == nil && time.Since(begun) < reloadPatience; { // the next worker reloads as well
			time.Sleep(upgradePoll)
			diff, err = client.Reload(ctx)
		}
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
		fmt.Fprintf(o, "no changes; running configuration %.12s\n", d.Hash)
		return
	}
	t := newTable("KIND", "~NAME", "WHAT", ">FLOWS", "~FIELDS")
	for _, c := range d.Changes {
		fields := strings.Join(c.Fields, ", ")
		if c.Restart {
			fields += " (needs a restart)"
		}
		if c.NewWorker {
			fields += " (by a new worker)"
		}
		t.add(c.Kind, c.Name, c.What, count(c.Flows), dash(strings.TrimSpace(fields)))
	}
	t.print(o)
	fmt.Fprintf(o, "\n%s, %s; running configuration %.12s\n", plural(int64(len(d.Changes)), "change"), plural(d.Flows, "flow")+" end or drain", d.Hash)
	if d.Restart {
		fmt.Fprintln(o, "changes that need a restart were not applied")
	}
	if d.NewWorker && d.Applied {
		fmt.Fprintln(o, "a new worker takes over; open flows continue"+exceptTLS(d.TLSFlows))
	}
}

// exceptTLS names the flows that another worker cannot continue; empty: there are none.
func exceptTLS(n int64) string {
	switch n {
	case 0:
		return ""
	case 1:
		return ", except for 1 whose TLS ends or begins here"
	}
	return ", except for " + count(n) + " whose TLS ends or begins here"
}

// LogCmd changes the level of the log.
type LogCmd struct {
	ClientFlags
	Level string `arg:"" optional:"" name:"LEVEL" enum:",debug,info,warn,error" default:"" help:"debug, info, warn or error. Without it, show the level."`
}

// Run executes the command. It prints the level.
func (c *LogCmd) Run(stdout, stderr *os.File) int {
	return query(&c.ClientFlags, stdout, stderr, func(ctx context.Context, client *api.Client) (api.Level, error) {
		if c.Level != "" {
			return api.Level{Level: c.Level}, client.SetLevel(ctx, c.Level)
		}
		level, err := client.Level(ctx)
		return api.Level{Level: level}, err
	}, func(o out, l api.Level) { fmt.Fprintln(o, printable(l.Level)) })
}
