package console

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/fleet"
)

// limit is a number of relays, or a share of them.
type limit struct {
	n       int
	percent bool
}

// UnmarshalText reads 3 or 10%.
func (l *limit) UnmarshalText(text []byte) error {
	digits, percent := strings.CutSuffix(string(text), "%")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || percent && n > 100 {
		return fmt.Errorf("%q; allowed: a number of relays from 1, or a share from 1%% to 100%%", text)
	}
	*l = limit{n, percent}
	return nil
}

// share returns the number of so many relays, at least 1.
func (l limit) share(all int) int {
	if l.percent {
		return max(1, all*l.n/100)
	}
	return l.n
}

// FleetDrainCmd drains relays.
type FleetDrainCmd struct {
	FleetFlags
	Why            string        `placeholder:"TEXT" help:"The reason, for others who look."`
	MaxUnavailable *limit        `placeholder:"N|N%" help:"Do nothing if more relays than this would then not be ready, of those in the same zones."`
	Wait           time.Duration `placeholder:"TIME" help:"Wait until the relays are drained and have no open flows, for at most this long."`
	Nodes          []string      `arg:"" name:"NODE" help:"The relays."`
}

// Help returns the text below the flags.
func (FleetDrainCmd) Help() string {
	return "A drained relay is not ready (/readyz) at once, and closes its listeners after fleet.drain-grace of its configuration. Its open flows continue. It stays drained, also when it is started again, until penstock fleet undrain."
}

// Run executes the command.
func (c *FleetDrainCmd) Run(stdout, stderr *os.File) int {
	return c.run(stderr, func(ctx context.Context, o *fleet.Operator) error {
		changed, err := call(ctx, func(ctx context.Context) ([]string, error) {
			return drainNodes(ctx, o, c.Nodes, c.MaxUnavailable, c.Why)
		})
		if err != nil {
			return err
		}
		if c.Wait > 0 {
			wait, cancel := context.WithTimeout(ctx, c.Wait)
			defer cancel()
			if err := awaitDrained(wait, o, c.Nodes); err != nil {
				return err
			}
		}
		return printChanged(c.JSON, stdout, "drained", changed, len(c.Nodes))
	})
}

func printChanged(asJSON bool, stdout *os.File, what string, changed []string, asked int) error {
	if asJSON {
		return printJSON(stdout, map[string][]string{what: append([]string{}, changed...)})
	}
	fmt.Fprintf(stdout, "%s %s", what, plural(int64(len(changed)), "relay"))
	if n := asked - len(changed); n > 0 {
		fmt.Fprintf(stdout, "; %d were so before", n)
	}
	fmt.Fprintln(stdout)
	return nil
}

// drainNodes drains relays that are present, unless too many would then not be ready.
func drainNodes(ctx context.Context, o *fleet.Operator, names []string, most *limit, why string) ([]string, error) {
	return o.SetDrain(ctx, names, true, why, func(nodes []fleet.Node) error {
		if _, err := (&NodeFilter{}).pick(nodes, names); err != nil || most == nil {
			return err
		}
		zones := map[string]bool{}
		for _, n := range nodes {
			if slices.Contains(names, n.Node) {
				zones[n.Zone] = true
			}
		}
		all, unready := 0, 0
		for _, n := range nodes {
			if !zones[n.Zone] && n.Present() {
				continue
			}
			all++
			if slices.Contains(names, n.Node) || n.State != "ready" || n.Drain != nil {
				unready++
			}
		}
		if allowed := most.share(all); unready > allowed {
			return fmt.Errorf("%d of %d relays would not be ready, and --max-unavailable allows %d; nothing was changed", unready, all, allowed)
		}
		return nil
	})
}

// awaitDrained waits until relays are drained, or gone, and have no flows.
func awaitDrained(ctx context.Context, o *fleet.Operator, names []string) error {
	var left string
	err := o.Await(ctx, func(nodes []fleet.Node) (bool, error) {
		left = ""
		for _, n := range nodes {
			if n.Present() && slices.Contains(names, n.Node) && (n.State != "drained" || n.Flows > 0) {
				left = fmt.Sprintf("%s is %s, with %s", n.Node, n.State, plural(n.Flows, "flow"))
				return false, nil
			}
		}
		return true, nil
	})
	if errors.Is(err, context.DeadlineExceeded) && left != "" {
		return fmt.Errorf("not drained in time: %s", left)
	}
	return err
}

// awaitHealthy waits until relays are ready, with the configuration that they should have.
func awaitHealthy(ctx context.Context, o *fleet.Operator, names []string) error {
	var left string
	err := o.Await(ctx, func(nodes []fleet.Node) (bool, error) {
		left = strings.Join(names, ", ") + " absent"
		good := 0
		for _, n := range nodes {
			if slices.Contains(names, n.Node) {
				if n.Healthy() {
					good++
				} else {
					left = fmt.Sprintf("%s is %s: %s", n.Node, dash(n.State), strings.Join(newFleetView(nodes, time.Now()).odd(&n), "; "))
				}
			}
		}
		return good == len(names), nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("not ready in time: %s", left)
	}
	return err
}

// FleetServeCmd takes orders to drain back.
type FleetServeCmd struct {
	FleetFlags
	Wait  time.Duration `placeholder:"TIME" help:"Wait until the relays are ready, for at most this long."`
	Nodes []string      `arg:"" name:"NODE" help:"The relays."`
}

// Run executes the command.
func (c *FleetServeCmd) Run(stdout, stderr *os.File) int {
	return c.run(stderr, func(ctx context.Context, o *fleet.Operator) error {
		all, err := nodesOf(ctx, o)
		if err != nil {
			return err
		}
		for _, name := range c.Nodes { // those that are absent but have an order to drain are listed, too
			if !slices.ContainsFunc(all, func(n fleet.Node) bool { return n.Node == name }) {
				return fmt.Errorf("no relay %s is present or drained; penstock fleet status shows who is", api.Quote(name))
			}
		}
		changed, err := call(ctx, func(ctx context.Context) ([]string, error) { return o.SetDrain(ctx, c.Nodes, false, "", nil) })
		if err != nil {
			return err
		}
		if c.Wait > 0 {
			wait, cancel := context.WithTimeout(ctx, c.Wait)
			defer cancel()
			if err := awaitHealthy(wait, o, c.Nodes); err != nil {
				return err
			}
		}
		return printChanged(c.JSON, stdout, "undrained", changed, len(c.Nodes))
	})
}
