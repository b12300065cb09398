package console

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// FlowsCmd lists flows.
type FlowsCmd struct {
	Ask
	Filter
	Sort  string `enum:"bytes,rate,age,id" default:"bytes" placeholder:"KEY" help:"bytes, rate or age, greatest first, or id (${default}). A rate takes a second to measure."`
	Limit int    `default:"100" placeholder:"N" help:"So many flows at most; 0: all, in no order (${default})."`
}

// Help is what penstock flows --help says below the flags.
func (FlowsCmd) Help() string { return "With --json each flow is a line of its own." }

// page is the listing in the API's words.
func (c *FlowsCmd) page() api.Page {
	p := api.Page{Limit: c.Limit}
	if c.Sort != "id" && c.Limit != 0 {
		p.Sort = c.Sort
	}
	return p
}

// Run asks and prints. A listing without a limit is printed as JSON while it comes in.
func (c *FlowsCmd) Run(stdout, stderr *os.File) int {
	return c.with(stderr, func(ctx context.Context, client *api.Client) error {
		if c.JSON {
			enc := json.NewEncoder(stdout)
			enc.SetEscapeHTML(false)
			_, err := client.EachFlow(ctx, c.api(), c.page(), func(f *api.Flow) error { return enc.Encode(f) })
			return err
		}
		list, err := client.Flows(ctx, c.api(), c.page())
		if err != nil {
			return err
		}
		printFlows(newOut(stdout), list, c.Sort == "rate")
		return nil
	})
}

func printFlows(o out, list api.Flows, rates bool) {
	if len(list.Flows) > 0 {
		flowTable(list.Flows, rates).print(o)
		fmt.Fprintln(o)
	}
	fmt.Fprintf(o, "%s of %s flows", count(int64(len(list.Flows))), count(list.Total))
	if list.Matched > int64(len(list.Flows)) {
		fmt.Fprintf(o, "; %s match", count(list.Matched))
	}
	fmt.Fprintln(o)
}

// flowTable has a line for each flow, with rates where they were measured. What
// matters most comes first, and stays where the terminal is narrow.
func flowTable(flows []api.Flow, rates bool) *table {
	heads := []string{">ID", "~CLIENT", "~UPSTREAM"}
	if rates {
		heads = append(heads, ">RATE")
	}
	t := newTable(append(heads, "WAY", "?>DOWN", "?>UP", "?>AGE", "?~LISTENER", "?~GROUP", "?>IDLE")...)
	for i := range flows {
		f := &flows[i]
		cells := []string{fmt.Sprint(f.ID), address(f.Client), dash(address(f.Upstream))}
		if rates {
			cells = append(cells, steady(f.Rate))
		}
		t.add(append(cells, way(f), volume(float64(f.Down.Bytes)), volume(float64(f.Up.Bytes)), age(f.Age), f.Listener, dash(f.Group), age(f.Idle))...)
	}
	return t
}

// address is short where the network goes without saying.
func address(a api.Addr) string {
	if a.AddrPort.IsValid() {
		return a.AddrPort.String()
	}
	return a.String()
}

// way is the state of a flow that is not relayed yet, or else the data paths up
// and down.
func way(f *api.Flow) string {
	switch {
	case f.State != "relaying":
		return f.State
	case f.Up.Path == f.Down.Path:
		return f.Up.Path
	}
	return f.Up.Path + "/" + f.Down.Path
}
