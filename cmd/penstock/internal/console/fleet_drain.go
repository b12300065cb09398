package console

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// of returns the number of so many relays, at least 1.
func (l limit) of(all int) int {
	if l.percent {
		return max(1, all*l.n/100)
	}
	return l.n
}

// operatorLock is the lock of those who take relays out of service, so that two do not count the same relays.
const operatorLock = "operators"

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
	lock, err := o.Lock(ctx, operatorLock, 1, "drain", nil)
	if err != nil {
		return nil, err
	}
	defer lock.Release()
	nodes, err := o.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := (&NodeFilter{}).pick(nodes, names); err != nil {
		return nil, err
	}
	if most != nil {
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
		if allowed := most.of(all); unready > allowed {
			return nil, fmt.Errorf("%d of %d relays would not be ready, and --max-unavailable allows %d; nothing was changed", unready, all, allowed)
		}
	}
	return o.SetDrain(ctx, names, true, why)
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
		changed, err := call(ctx, func(ctx context.Context) ([]string, error) { return o.SetDrain(ctx, c.Nodes, false, "") })
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

// FleetRollCmd drains relays in turn and runs a command for each.
type FleetRollCmd struct {
	FleetFlags
	NodeFilter
	MaxUnavailable limit         `default:"1" placeholder:"N|N%" help:"At most so many relays at once (${default})."`
	Node           []string      `placeholder:"NODE" help:"Only these relays. Default: all that are present."`
	Wait           time.Duration `default:"5m" placeholder:"TIME" help:"How long a relay may take to drain, and to be ready afterwards (${default})."`
	Cut            bool          `help:"Go on with a relay that still has flows after --wait. Without it, that is an error."`
	Command        []string      `arg:"" passthrough:"" name:"COMMAND" help:"The command, for example ssh to the host. Its environment has PENSTOCK_NODE and PENSTOCK_HOST."`
}

// Help returns the text below the flags.
func (FleetRollCmd) Help() string {
	return "For each relay in turn: drain it, wait until it has no flows, run the command, take the order to drain back, and wait until the relay is ready. The first failure stops everything; a relay whose command failed stays drained. Only one roll of a fleet is under way at a time; a second one waits."
}

// Run executes the command.
func (c *FleetRollCmd) Run(stdout, stderr *os.File) int {
	return c.run(stderr, func(ctx context.Context, o *fleet.Operator) error {
		if len(c.Command) > 0 && c.Command[0] == "--" {
			c.Command = c.Command[1:]
		}
		if len(c.Command) == 0 {
			return usageError{"no command"}
		}
		lock, err := o.Lock(ctx, "roll", 1, strings.Join(c.Command, " "), tellHolders(stderr))
		if err != nil {
			return err
		}
		defer lock.Release()
		nodes, err := nodesOf(ctx, o)
		if err != nil {
			return err
		}
		list, err := c.pick(nodes, c.Node)
		if err != nil {
			return err
		}
		most := c.MaxUnavailable.of(len(list))
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		go func() {
			select {
			case <-lock.Lost():
				cancel(fleet.ErrLost)
			case <-ctx.Done():
			}
		}()
		var mu sync.Mutex
		tell := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintf(stdout, "%s "+format+"\n", append([]any{clock(time.Now())}, args...)...)
		}
		room := make(chan struct{}, most)
		var group sync.WaitGroup
		for _, n := range list {
			select {
			case room <- struct{}{}:
			case <-ctx.Done():
			}
			if ctx.Err() != nil {
				break
			}
			group.Go(func() {
				defer func() { <-room }()
				if err := c.one(ctx, o, &n, tell, stdout, stderr); err != nil {
					cancel(fmt.Errorf("%s: %w", n.Node, err))
				}
			})
		}
		group.Wait()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		tell("done: %s", plural(int64(len(list)), "relay"))
		return nil
	})
}

// one does what there is to do for one relay.
func (c *FleetRollCmd) one(ctx context.Context, o *fleet.Operator, n *fleet.Node, tell func(string, ...any), stdout, stderr *os.File) error {
	names := []string{n.Node}
	tell("%s: draining", n.Node)
	if _, err := o.SetDrain(ctx, names, true, "roll: "+strings.Join(c.Command, " ")); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, c.Wait)
	err := awaitDrained(wait, o, names)
	cancel()
	if err != nil && (!c.Cut || ctx.Err() != nil) {
		if n.Drain == nil && ctx.Err() == nil { // nothing has happened to it
			_, back := o.SetDrain(ctx, names, false, "")
			err = errors.Join(err, back)
		}
		return err
	}
	tell("%s: running the command", n.Node)
	cmd := exec.CommandContext(ctx, c.Command[0], c.Command[1:]...)
	cmd.Env = append(os.Environ(), "PENSTOCK_NODE="+n.Node, "PENSTOCK_HOST="+n.Host.Name)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the command failed, and the relay stays drained: %w", err)
	}
	if _, err := o.SetDrain(ctx, names, false, ""); err != nil {
		return err
	}
	wait, cancel = context.WithTimeout(ctx, c.Wait)
	defer cancel()
	if err := awaitHealthy(wait, o, names); err != nil {
		return err
	}
	tell("%s: ready", n.Node)
	return o.Log(ctx, "roll", n.Node, strings.Join(c.Command, " "))
}

// tellHolders returns a function that says who holds a lock.
func tellHolders(stderr *os.File) func([]fleet.Holder) {
	told := ""
	return func(holders []fleet.Holder) {
		var names []string
		for _, h := range holders {
			names = append(names, fmt.Sprintf("%s (%s, for %s)", dash(h.By), dash(h.Why), age(time.Since(h.Since).Seconds())))
		}
		if text := strings.Join(names, ", "); told == "" {
			told = text
			fmt.Fprintln(stderr, printable("the lock is taken by "+text+"; waiting ..."))
		}
	}
}

// FleetLockCmd runs a command with a lock.
type FleetLockCmd struct {
	FleetFlags
	MaxUnavailable int           `default:"1" placeholder:"N" help:"How many may run at once; all should say the same (${default})."`
	Wait           time.Duration `placeholder:"TIME" help:"Give up after waiting this long for the lock. Default: never."`
	Name           string        `arg:"" name:"NAME" help:"The name of the lock."`
	Command        []string      `arg:"" passthrough:"" name:"COMMAND" help:"The command."`
}

// Help returns the text below the flags.
func (FleetLockCmd) Help() string {
	return "Each host can take the lock by itself, for example around penstock upgrade or unattended upgrades. The lock has a lease: if this process dies, the next one gets it after 15 s. If it is lost because etcd is away, the command gets SIGINT. The exit code is that of the command."
}

// Validate is called by kong.
func (c *FleetLockCmd) Validate() error {
	if c.MaxUnavailable < 1 {
		return errors.New("--max-unavailable: allowed: from 1")
	}
	if strings.Contains(c.Name, "/") || c.Name == "" {
		return errors.New("the name of a lock has no /")
	}
	return c.FleetFlags.Validate()
}

// Run executes the command.
func (c *FleetLockCmd) Run(stdout, stderr *os.File) int {
	code := exitOK
	failed := c.run(stderr, func(ctx context.Context, o *fleet.Operator) error {
		if len(c.Command) > 0 && c.Command[0] == "--" {
			c.Command = c.Command[1:]
		}
		if len(c.Command) == 0 {
			return usageError{"no command"}
		}
		wait, cancel := ctx, context.CancelFunc(func() {})
		if c.Wait > 0 {
			wait, cancel = context.WithTimeout(ctx, c.Wait)
		}
		lock, err := o.Lock(wait, "named/"+c.Name, c.MaxUnavailable, strings.Join(c.Command, " "), tellHolders(stderr))
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			return errors.New("the lock was not free in time")
		} else if err != nil {
			return err
		}
		defer lock.Release()
		cmd := exec.Command(c.Command[0], c.Command[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, stdout, stderr
		if err := cmd.Start(); err != nil {
			return err
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		lost := false
		select {
		case err = <-ended:
		case <-lock.Lost():
			lost = true
			cmd.Process.Signal(os.Interrupt)
			err = <-ended
		case <-ctx.Done():
			cmd.Process.Signal(os.Interrupt)
			err = <-ended
		}
		var exit *exec.ExitError
		if lost {
			return fleet.ErrLost
		}
		if errors.As(err, &exit) && exit.ExitCode() > 0 {
			code = exit.ExitCode()
			return nil
		}
		return err
	})
	if failed != exitOK {
		return failed
	}
	return code
}
