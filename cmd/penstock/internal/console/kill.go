package console

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// KillCmd ends flows, by id or by filter.
type KillCmd struct {
	ClientFlags
	Filter
	IDs    []uint64 `arg:"" optional:"" name:"ID" help:"Ids of flows, as shown by penstock flows."`
	Yes    bool     `help:"End the flows that match the filter."`
	DryRun bool     `help:"Only show which flows would end."`
}

// Help returns the text below the flags of penstock kill --help.
func (KillCmd) Help() string {
	return "Flows are selected by id, or by a filter together with --yes. A side that has not received everything is reset."
}

// Validate checks the combination of flags. Kong calls it.
func (c *KillCmd) Validate() error {
	f := c.api()
	switch {
	case len(c.IDs) > 0 && !f.Empty():
		return errors.New("both ids and a filter; allowed: one of them")
	case len(c.IDs) == 0 && f.Empty():
		return errors.New("no flows selected; allowed: ids, or a filter such as --from, --group or --older")
	}
	return c.Filter.Validate()
}

// killed is the output of --json.
type killed struct {
	Killed  int64 `json:"killed"`
	Matched int64 `json:"matched"`
}

// Run executes the command.
func (c *KillCmd) Run(stdout, stderr *os.File) int {
	return c.run(stderr, func(ctx context.Context, client *api.Client) error {
		if len(c.IDs) > 0 {
			return c.killByID(ctx, client, newOut(stdout), stderr)
		}
		return c.killByFilter(ctx, client, newOut(stdout), stderr)
	})
}

// killByID ends flows one by one. A flow that has already ended is an error at the end.
func (c *KillCmd) killByID(ctx context.Context, client *api.Client, o out, stderr *os.File) error {
	done := killed{Matched: int64(len(c.IDs))}
	var failed error
	for _, id := range c.IDs {
		f, err := call(ctx, func(ctx context.Context) (api.FlowDetail, error) { return client.Flow(ctx, id) })
		if err == nil && !c.DryRun {
			_, err = call(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, client.Kill(ctx, id) })
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
			fmt.Fprintf(o, "%s flow %d of %s, %s old\n", verb, id, printable(f.Client.String()), age(f.Age))
		}
	}
	if c.JSON {
		return errors.Join(failed, printJSON(o, done))
	}
	return failed
}

// killByFilter ends the flows that match the filter.
func (c *KillCmd) killByFilter(ctx context.Context, client *api.Client, o out, stderr *os.File) error {
	filter := c.api()
	list, err := client.Flows(ctx, filter, api.Page{Sort: "bytes", Limit: api.DefaultSorted})
	if err == nil && list.Matched == 0 {
		err = c.checkNames(ctx, client)
	}
	if err != nil {
		return err
	}
	done := killed{Matched: list.Matched}
	switch {
	case c.DryRun && c.JSON:
		return printJSON(o, done)
	case c.DryRun:
		printFlows(o, list, false)
		fmt.Fprintf(o, "would end %s\n", plural(list.Matched, "flow"))
		return nil
	case !c.Yes:
		return usageError{fmt.Sprintf("%s flows match; --yes ends them, --dry-run shows them", count(list.Matched))}
	}
	if !c.JSON && list.Matched > 0 {
		fmt.Fprintf(stderr, "ending %s ...\n", plural(list.Matched, "flow"))
	}
	if done.Killed, err = client.KillAll(ctx, filter); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(o, done)
	}
	fmt.Fprintf(o, "ended %s\n", plural(done.Killed, "flow"))
	return nil
}
