package console

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// KillCmd ends flows: those named, or those that a filter chooses.
type KillCmd struct {
	Ask
	Filter
	IDs    []uint64 `arg:"" optional:"" name:"ID" help:"Numbers of flows, as penstock flows shows them."`
	Yes    bool     `help:"End the flows that the filter chooses."`
	DryRun bool     `help:"Only show what would be ended."`
}

// Help is what penstock kill --help says below the flags.
func (KillCmd) Help() string {
	return "Flows are named, or chosen by a filter, which needs --yes. A flow ends with a reset where bytes are lost with it."
}

// Validate is called by kong.
func (c *KillCmd) Validate() error {
	f := c.api()
	switch {
	case len(c.IDs) > 0 && !f.Empty():
		return errors.New("IDs and a filter; allowed: one of them")
	case len(c.IDs) == 0 && f.Empty():
		return errors.New("which flows? allowed: IDs, or a filter such as --from, --group or --older")
	}
	return c.Filter.Validate()
}

// killed is what --json prints.
type killed struct {
	Killed  int64 `json:"killed"`
	Matched int64 `json:"matched"`
}

// Run ends the flows, and tells how many.
func (c *KillCmd) Run(stdout, stderr *os.File) int {
	return c.with(stderr, func(ctx context.Context, client *api.Client) error {
		if len(c.IDs) > 0 {
			return c.named(ctx, client, newOut(stdout), stderr)
		}
		return c.chosen(ctx, client, newOut(stdout), stderr)
	})
}

// named ends flows one by one. One that is no longer there is an error at the end.
func (c *KillCmd) named(ctx context.Context, client *api.Client, o out, stderr *os.File) error {
	done := killed{Matched: int64(len(c.IDs))}
	var failed error
	for _, id := range c.IDs {
		f, err := get(ctx, func(ctx context.Context) (api.FlowDetail, error) { return client.Flow(ctx, id) })
		if err == nil && !c.DryRun {
			_, err = get(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, client.Kill(ctx, id) })
		}
		var problem *api.Problem
		switch {
		case errors.As(err, &problem) && problem.Status == 404:
			if failed != nil {
				fmt.Fprintln(stderr, "penstock:", c.explain(failed))
			}
			failed = err
			continue
		case err != nil:
			return err
		}
		verb := "would end"
		if !c.DryRun {
			verb = "ended"
			done.Killed++
		}
		if !c.JSON {
			fmt.Fprintf(o, "%s flow %d of %s, %s old\n", verb, id, clean(f.Client.String()), age(f.Age))
		}
	}
	if c.JSON {
		return errors.Join(failed, printJSON(o, done))
	}
	return failed
}

// chosen ends the flows of the filter.
func (c *KillCmd) chosen(ctx context.Context, client *api.Client, o out, stderr *os.File) error {
	filter := c.api()
	list, err := client.Flows(ctx, filter, api.Page{Sort: "bytes", Limit: api.DefaultSorted})
	if err != nil {
		return err
	}
	done := killed{Matched: list.Matched}
	switch {
	case c.DryRun && c.JSON:
		return printJSON(o, done)
	case c.DryRun:
		printFlows(o, list, false)
		fmt.Fprintf(o, "would end %s flows\n", count(list.Matched))
		return nil
	case !c.Yes:
		return errUsage{fmt.Sprintf("%s flows match; --yes ends them, --dry-run shows them", count(list.Matched))}
	}
	if !c.JSON && list.Matched > 0 {
		fmt.Fprintf(stderr, "ending %s flows ...\n", count(list.Matched))
	}
	if done.Killed, err = client.KillAll(ctx, filter); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(o, done)
	}
	fmt.Fprintf(o, "ended %s flows\n", count(done.Killed))
	return nil
}
