package console

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// EndedCmd lists flows that have ended.
type EndedCmd struct {
	ClientFlags
	EndedFilter
	Problems bool   `help:"Only flows that were refused, or for which the relay could not do its job."`
	Cause    string `placeholder:"CAUSE" help:"Flows that ended with this cause or reason, as in docs/causes.md."`
	Limit    int    `default:"100" placeholder:"N" help:"List at most this many flows; 0: all that the daemon remembers (${default})."`
}

// Help returns the text below the flags of penstock ended --help.
func (EndedCmd) Help() string {
	return "Latest first. The daemon remembers the last 512 flows, and separately the last 512 with a problem (--problems). With --json each flow is one line."
}

// Validate checks what the types of the flags do not. Kong calls it.
func (c *EndedCmd) Validate() error {
	if c.Limit < 0 || c.Limit > api.MaxLimit {
		return fmt.Errorf("--limit: %d; allowed: 0 to %d", c.Limit, api.MaxLimit)
	}
	return c.EndedFilter.Validate()
}

// Run executes the command.
func (c *EndedCmd) Run(stdout, stderr *os.File) int {
	limit := c.Limit
	if limit == 0 {
		limit = api.MaxLimit
	}
	return c.run(stderr, func(ctx context.Context, client *api.Client) error {
		list, err := call(ctx, func(ctx context.Context) (api.EndedFlows, error) {
			return client.Ended(ctx, c.api(), c.Problems, c.Cause, limit)
		})
		if err == nil && len(list.Flows) == 0 {
			err = c.checkNames(ctx, client)
		}
		if err != nil {
			return err
		}
		if !c.JSON {
			printEnded(newOut(stdout), list, time.Now())
			return nil
		}
		enc := json.NewEncoder(stdout)
		enc.SetEscapeHTML(false)
		for i := range list.Flows {
			if err := enc.Encode(&list.Flows[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func printEnded(o out, list api.EndedFlows, now time.Time) {
	if len(list.Flows) > 0 {
		endedTable(list.Flows, now).print(o)
		fmt.Fprintln(o)
	}
	fmt.Fprintf(o, "%s of %s ended flows\n", count(int64(len(list.Flows))), count(int64(list.Kept)))
}

// endedTable returns a table of ended flows. The most important columns come first, and remain on
// a narrow terminal.
func endedTable(flows []api.EndedFlow, now time.Time) *table {
	t := newTable(">ID", "~CLIENT", "~UPSTREAM", "~CAUSE", "?>AGO", "?>LASTED", "?>DOWN", "?>UP", "?~LISTENER", "?~GROUP", "?~ERROR")
	for i := range flows {
		f := &flows[i]
		cause := f.Cause
		if f.Reason != "" && f.Reason != f.Cause {
			cause += ": " + f.Reason
		}
		t.add(fmt.Sprint(f.ID), address(f.Client), dash(address(f.Upstream)), cause, age(now.Sub(f.End).Seconds()), span(f.Duration),
			volume(float64(f.Down.Bytes)), volume(float64(f.Up.Bytes)), f.Listener, dash(f.Group), dash(f.Error))
	}
	return t
}
