package console

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/fleet"
)

// FleetFlowsCmd lists flows of all relays.
type FleetFlowsCmd struct {
	FleetFlags
	NodeFilter
	Group   string        `placeholder:"GROUP" help:"Only flows of this group."`
	Member  string        `placeholder:"MEMBER" help:"Only flows to the member with this name or address."`
	Limit   int           `default:"50" placeholder:"N" help:"At most so many flows of each relay, those that have moved the most bytes; up to 100 (${default})."`
	Timeout time.Duration `default:"10s" placeholder:"TIME" help:"How long to wait for answers (${default})."`
	Nodes   []string      `arg:"" optional:"" name:"NODE" help:"Only these relays."`
}

// Validate is called by kong.
func (c *FleetFlowsCmd) Validate() error {
	if c.Limit < 1 || c.Limit > fleet.MaxFlows {
		return fmt.Errorf("--limit: allowed: 1 to %d", fleet.MaxFlows)
	}
	return c.FleetFlags.Validate()
}

// nodeFlow is a flow with its relay.
type nodeFlow struct {
	Node string `json:"node"`
	fleet.Flow
}

// fleetFlows is the output of --json.
type fleetFlows struct {
	Matched int64             `json:"matched"`
	Relays  int               `json:"relays"` // that answered
	Silent  []string          `json:"silent"` // that did not
	Failed  map[string]string `json:"failed"` // that answered with an error
	Flows   []nodeFlow        `json:"flows"`
}

// Run executes the command.
func (c *FleetFlowsCmd) Run(stdout, stderr *os.File) int {
	return c.run(stderr, func(ctx context.Context, o *fleet.Operator) error {
		nodes, err := nodesOf(ctx, o)
		if err != nil {
			return err
		}
		list, err := c.pick(nodes, c.Nodes)
		if err != nil {
			return err
		}
		res := fleetFlows{Silent: []string{}, Failed: map[string]string{}, Flows: []nodeFlow{}}
		wait, cancel := context.WithTimeout(ctx, c.Timeout)
		defer cancel()
		silent, err := o.Ask(wait, namesOf(list), fleet.Order{Kind: fleet.OrderFlows, Group: c.Group, Member: c.Member, Limit: c.Limit}, func(a fleet.Answer) {
			if a.State != "done" {
				res.Failed[a.Node] = a.Error
				return
			}
			res.Relays++
			res.Matched += a.Matched
			for _, f := range a.Flows {
				res.Flows = append(res.Flows, nodeFlow{a.Node, f})
			}
		})
		if err != nil {
			return err
		}
		res.Silent = append(res.Silent, silent...)
		sort.Slice(res.Flows, func(i, j int) bool {
			a, b := &res.Flows[i], &res.Flows[j]
			return cmp.Or(cmp.Compare(b.Up+b.Down, a.Up+a.Down), cmp.Compare(a.Node, b.Node), cmp.Compare(a.ID, b.ID)) < 0
		})
		if c.JSON {
			return printJSON(stdout, res)
		}
		printFleetFlows(newOut(stdout), &res)
		return nil
	})
}

func printFleetFlows(o out, res *fleetFlows) {
	if len(res.Flows) > 0 {
		t := newTable("~NODE", "~CLIENT", "~UPSTREAM", ">DOWN", ">UP", ">AGE", "?~MEMBER", "?~LISTENER", "?>ID")
		for i := range res.Flows {
			f := &res.Flows[i]
			short := func(s string) string { return strings.TrimPrefix(strings.TrimPrefix(s, "tcp://"), "udp://") }
			t.add(f.Node, short(f.Client), dash(short(f.Upstream)), volume(float64(f.Down)), volume(float64(f.Up)), age(f.Age), dash(f.Group+"/"+f.Member), f.Listener, fmt.Sprint(f.ID))
		}
		t.print(o)
		fmt.Fprintln(o)
	}
	fmt.Fprintf(o, "%s of %s at %s\n", count(int64(len(res.Flows))), plural(res.Matched, "flow"), plural(int64(res.Relays), "relay"))
	if len(res.Silent) > 0 {
		fmt.Fprintf(o, "no answer in time from %s\n", printable(someNames(res.Silent)))
	}
	for _, line := range failures(res.Failed) {
		fmt.Fprintln(o, line)
	}
}

// someNames returns a list of names, of which many are not all named.
func someNames(names []string) string {
	const most = 10
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

func failures(failed map[string]string) (lines []string) {
	for node, text := range failed {
		lines = append(lines, printable(node+": "+text))
	}
	slices.Sort(lines)
	return lines
}

// FleetReloadCmd reloads relays.
type FleetReloadCmd struct {
	FleetFlags
	NodeFilter
	MaxUnavailable *limit        `placeholder:"N|N%" help:"So many relays at a time; the next ones follow when these are ready. Default: all at once."`
	Timeout        time.Duration `default:"1m" placeholder:"TIME" help:"How long a relay may take (${default})."`
	Nodes          []string      `arg:"" optional:"" name:"NODE" help:"Only these relays. Default: all that are present."`
}

// Help returns the text below the flags.
func (FleetReloadCmd) Help() string {
	return "Relays whose configuration is in etcd take a new version by themselves; this is for those with files. The first relay that refuses its configuration stops what has not begun."
}

// Run executes the command.
func (c *FleetReloadCmd) Run(stdout, stderr *os.File) int {
	return c.run(stderr, func(ctx context.Context, o *fleet.Operator) error {
		nodes, err := nodesOf(ctx, o)
		if err != nil {
			return err
		}
		list, err := c.pick(nodes, c.Nodes)
		if err != nil {
			return err
		}
		size := len(list)
		if c.MaxUnavailable != nil {
			size = c.MaxUnavailable.share(len(list))
		}
		if err := o.Log(ctx, "reload", plural(int64(len(list)), "relay"), ""); err != nil {
			return err
		}
		done, changes, failed := 0, 0, map[string]string{}
		var mu sync.Mutex
		for part := range slices.Chunk(namesOf(list), size) {
			wait, cancel := context.WithTimeout(ctx, c.Timeout)
			silent, err := o.Ask(wait, part, fleet.Order{Kind: fleet.OrderReload}, func(a fleet.Answer) {
				mu.Lock()
				defer mu.Unlock()
				if a.State == "done" {
					done++
					changes += a.Changes
					return
				}
				failed[a.Node] = a.Error
			})
			if err == nil && c.MaxUnavailable != nil && len(silent)+len(failed) == 0 {
				err = awaitHealthy(wait, o, part)
			}
			cancel()
			if err != nil {
				return err
			}
			for _, n := range silent {
				failed[n] = "no answer in time"
			}
			if len(failed) > 0 {
				break
			}
		}
		if c.JSON {
			if err := printJSON(stdout, map[string]any{"reloaded": done, "changes": changes, "failed": failed}); err != nil {
				return err
			}
		} else {
			fmt.Fprintf(stdout, "%d of %s reloaded, %s\n", done, plural(int64(len(list)), "relay"), plural(int64(changes), "change"))
			for _, line := range failures(failed) {
				fmt.Fprintln(stdout, line)
			}
		}
		if len(failed) > 0 {
			return fmt.Errorf("%s failed", plural(int64(len(failed)), "relay"))
		}
		return nil
	})
}

// FleetLogCmd shows the log.
type FleetLogCmd struct {
	FleetFlags
	Limit int `default:"50" placeholder:"N" help:"The last so many entries; 0: all that are kept (${default})."`
}

// Run executes the command.
func (c *FleetLogCmd) Run(stdout, stderr *os.File) int {
	return c.run(stderr, func(ctx context.Context, o *fleet.Operator) error {
		most := c.Limit
		if most <= 0 {
			most = -1
		}
		list, err := call(ctx, func(ctx context.Context) ([]fleet.Entry, error) { return o.ReadLog(ctx, most) })
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(stdout, map[string][]fleet.Entry{"entries": append([]fleet.Entry{}, list...)})
		}
		t := newTable("TIME", "~BY", "WHAT", "~TO", "~TEXT")
		for _, e := range list {
			t.add(e.At.Local().Format(time.DateTime), e.By, e.What, dash(e.To), dash(e.Text))
		}
		t.print(newOut(stdout))
		return nil
	})
}
