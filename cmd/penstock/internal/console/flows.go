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
	ClientFlags
	Filter
	Sort  string `enum:"bytes,rate,age,id" default:"bytes" placeholder:"KEY" help:"Sort by bytes, rate or age, greatest first, or by id (${default}). Measuring rates takes a second."`
	Limit int    `default:"100" placeholder:"N" help:"List at most this many flows; 0: all, unsorted (${default})."`
}

// Help returns the text below the flags of penstock flows --help.
func (FlowsCmd) Help() string { return "With --json each flow is one line." }

// page returns the page of the API.
func (c *FlowsCmd) page() api.Page {
	p := api.Page{Limit: c.Limit}
	if c.Sort != "id" && c.Limit != 0 {
		p.Sort = c.Sort
	}
	return p
}

// Run executes the command. JSON is printed while the listing arrives.
func (c *FlowsCmd) Run(stdout, stderr *os.File) int {
	return c.run(stderr, func(ctx context.Context, client *api.Client) error {
		if c.JSON {
			enc := json.NewEncoder(stdout)
			enc.SetEscapeHTML(false)
			list, err := client.EachFlow(ctx, c.api(), c.page(), func(f *api.Flow) error { return enc.Encode(f) })
			if err == nil && list.Matched == 0 {
				err = c.checkNames(ctx, client)
			}
			return err
		}
		list, err := client.Flows(ctx, c.api(), c.page())
		if err == nil && list.Matched == 0 {
			err = c.checkNames(ctx, client)
		}
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

// flowTable returns a table of flows, with their rates if they were measured. The most
// important columns come first, and remain on a narrow terminal.
func flowTable(flows []api.Flow, rates bool) *table {
	heads := []string{">ID", "~CLIENT", "~UPSTREAM"}
	if rates {
		heads = append(heads, ">RATE")
	}
	t := newTable(append(heads, "PATH", "?>DOWN", "?>UP", "?>AGE", "?~LISTENER", "?~GROUP", "?>IDLE")...)
	for i := range flows {
		f := &flows[i]
		cells := []string{fmt.Sprint(f.ID), address(f.Client), dash(address(f.Upstream))}
		if rates {
			cells = append(cells, fixedRate(f.Rate))
		}
		t.add(append(cells, pathOf(f), volume(float64(f.Down.Bytes)), volume(float64(f.Up.Bytes)), age(f.Age), f.Listener, dash(f.Group), age(f.Idle))...)
	}
	return t
}

// address returns the address without its network if it is an IP address.
func address(a api.Addr) string {
	if a.AddrPort.IsValid() {
		return a.AddrPort.String()
	}
	return a.String()
}

// pathOf returns the data paths up and down, or the state of a flow that is not relaying
// yet.
func pathOf(f *api.Flow) string {
	switch {
	case f.State != "relaying":
		return f.State
	case f.Up.Path == f.Down.Path:
		return f.Up.Path
	}
	return f.Up.Path + "/" + f.Down.Path
}
