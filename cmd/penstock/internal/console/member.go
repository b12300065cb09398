package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// memberArg is a GROUP/MEMBER argument: the members of a group with a name or an address. The
// name of a group has no slash, an address may have. A group that is configured as a URL has
// the URL as its name, and so has its member, unless DNS found it. It is written as URL or
// URL/MEMBER.
type memberArg struct{ group, member string }

func (a *memberArg) UnmarshalText(b []byte) error {
	if group, member, ok := splitURL(string(b)); ok {
		a.group, a.member = group, member
		return nil
	}
	var ok bool
	if a.group, a.member, ok = strings.Cut(string(b), "/"); !ok || a.group == "" || a.member == "" {
		return fmt.Errorf("invalid member %s; allowed: GROUP/MEMBER, as shown by penstock groups", api.Quote(string(b)))
	}
	return nil
}

// splitURL splits an argument that begins with the URL of a group.
func splitURL(s string) (group, member string, ok bool) {
	scheme, rest, found := strings.Cut(s, ":")
	if !found || !api.IsNetwork(scheme) {
		return "", "", false
	}
	// The member is the second URL, if there is one.
	for at := range rest {
		if rest[at] == '/' {
			if next, _, _ := strings.Cut(rest[at+1:], ":"); next == scheme && strings.Contains(rest[at+1:], ":") {
				return s[:len(scheme)+1+at], rest[at+1:], true
			}
		}
	}
	return s, s, true
}

// MemberFlags are the flags and arguments of a command that changes a member.
type MemberFlags struct {
	ClientFlags
	Member memberArg `arg:"" name:"GROUP/MEMBER" help:"The name of a group, and the name or address of a member."`
}

// change changes the members, and prints their new state.
func (c *MemberFlags) change(stdout, stderr *os.File, change api.MemberChange) int {
	return query(&c.ClientFlags, stdout, stderr, func(ctx context.Context, client *api.Client) (api.Members, error) {
		m, err := client.SetMember(ctx, c.Member.group, c.Member.member, change)
		before := slices.Clone(m.Members)
		return awaitWorker(ctx, client, stderr, c.JSON, c.Member.group, m, err, func(m *api.Member) bool {
			return slices.ContainsFunc(before, func(was api.Member) bool { return was.Name == m.Name && was.Address != m.Address })
		})
	}, func(o out, m api.Members) {
		printMembers(o, c.Member.group, m.Members)
		c.tellNone(o, m)
	})
}

// tellNone warns that a change has left the group without a member that takes new flows.
func (c *MemberFlags) tellNone(w io.Writer, m api.Members) {
	if m.NoneAvailable {
		fmt.Fprintf(w, "%s: no member takes new flows now: they are refused, or wait if the group has a queue\n", printable(c.Member.group))
	}
}

func printMembers(o out, group string, members []api.Member) {
	for i := range members {
		m := &members[i]
		fmt.Fprintf(o, "%s/%s: %s, weight %d, %s\n", printable(group), printable(memberName(m)), m.State, m.Weight, plural(m.Flows, "flow"))
	}
}

// EnableCmd sends flows to a member again.
type EnableCmd struct{ MemberFlags }

// Run executes the command.
func (c *EnableCmd) Run(stdout, stderr *os.File) int {
	return c.change(stdout, stderr, api.MemberChange{State: "enable"})
}

// DisableCmd disables a member and ends its flows.
type DisableCmd struct{ MemberFlags }

// Run executes the command.
func (c *DisableCmd) Run(stdout, stderr *os.File) int {
	return c.change(stdout, stderr, api.MemberChange{State: "disable"})
}

// RestoreCmd undoes the changes of the other commands.
type RestoreCmd struct{ MemberFlags }

// Run executes the command.
func (c *RestoreCmd) Run(stdout, stderr *os.File) int {
	return c.change(stdout, stderr, api.MemberChange{State: "file", Weight: new(int)})
}

// WeightCmd changes the weight of a member.
type WeightCmd struct {
	MemberFlags
	Weight int `arg:"" name:"WEIGHT" help:"1 to 256, or 0 for the configured weight."`
}

// Run executes the command.
func (c *WeightCmd) Run(stdout, stderr *os.File) int {
	return c.change(stdout, stderr, api.MemberChange{Weight: &c.Weight})
}

// DrainCmd drains a member.
type DrainCmd struct {
	MemberFlags
	Wait    bool          `help:"Wait until the member has no open flows."`
	Timeout time.Duration `default:"0" placeholder:"TIME" help:"With --wait: give up after this time, with exit code 1; the member stays drained (0: never)."`
}

// The intervals at which a drain is polled, and at which its progress is printed if stderr
// is not a terminal.
const (
	pollInterval     = 500 * time.Millisecond
	progressInterval = 5 * time.Second
)

// Validate checks the combination of flags. Kong calls it.
func (c *DrainCmd) Validate() error {
	if c.Timeout < 0 || c.Timeout > 0 && !c.Wait {
		return errors.New("--timeout: allowed: 0 or more, with --wait")
	}
	return nil
}

// Run executes the command.
func (c *DrainCmd) Run(stdout, stderr *os.File) int {
	if !c.Wait {
		return c.change(stdout, stderr, api.MemberChange{State: "drain"})
	}
	return c.run(stderr, func(ctx context.Context, client *api.Client) error {
		m, err := call(ctx, func(ctx context.Context) (api.Members, error) {
			return client.SetMember(ctx, c.Member.group, c.Member.member, api.MemberChange{State: "drain"})
		})
		if err != nil {
			return err
		}
		if !c.JSON {
			c.tellNone(stderr, m)
		}
		if c.Timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, c.Timeout, errTimeout)
			defer cancel()
		}
		if m.Members, err = c.wait(ctx, client, newOut(stderr), m.Members); err != nil {
			return err
		}
		if c.JSON {
			return printJSON(stdout, m)
		}
		printMembers(newOut(stdout), c.Member.group, m.Members)
		return nil
	})
}

var errTimeout = errors.New("--timeout is over")

// wait polls the members until they have no open flows, are removed, or ctx ends. It prints
// its progress to o.
func (c *DrainCmd) wait(ctx context.Context, client *api.Client, o out, members []api.Member) ([]api.Member, error) {
	p := progress{out: o, quiet: c.JSON}
	defer p.end()
	start := time.Now()
	atStart := flowsOf(members)
	look := time.NewTicker(pollInterval)
	defer look.Stop()
	for {
		left := flowsOf(members)
		if left == 0 {
			return members, nil
		}
		p.update(fmt.Sprintf("%s of %s flows left, %s", count(left), count(max(atStart, left)), age(time.Since(start).Seconds())))
		select {
		case <-look.C:
		case <-ctx.Done():
			return members, c.waitError(ctx, left)
		}
		g, err := call(ctx, func(ctx context.Context) (api.Group, error) { return client.Group(ctx, c.Member.group) })
		var problem *api.Problem
		switch {
		case errors.As(err, &problem) && problem.Status == http.StatusNotFound:
			return nil, nil // a reload removed the group and its flows
		case ctx.Err() != nil:
			return members, c.waitError(ctx, left)
		case err != nil:
			return members, err
		}
		members = slices.DeleteFunc(g.Members, func(m api.Member) bool {
			return !slices.ContainsFunc(members, func(was api.Member) bool { return was.Name == m.Name && was.Address == m.Address })
		})
	}
}

// waitError returns the error of a wait that ended before the flows did.
func (c *DrainCmd) waitError(ctx context.Context, left int64) error {
	if context.Cause(ctx) == errTimeout {
		return fmt.Errorf("%s flows are left after %s; the member stays drained", count(left), c.Timeout)
	}
	return ctx.Err()
}

func flowsOf(members []api.Member) (n int64) {
	for i := range members {
		n += members[i].Flows
	}
	return n
}

// progress prints the progress of a command: on a terminal in one line that changes,
// otherwise as a line every few seconds.
type progress struct {
	out
	quiet bool
	last  time.Time // when a line was printed
	open  bool      // the line on the terminal is not finished
}

func (p *progress) update(line string) {
	switch {
	case p.quiet:
	case p.width > 0:
		// Return to the start of the line, and erase the rest of it (ECMA-48 EL).
		fmt.Fprintf(p, "\r%s\x1b[K", shorten(line, p.width-1))
		p.open = true
	case time.Since(p.last) >= progressInterval:
		fmt.Fprintln(p, line)
		p.last = time.Now()
	}
}

// end finishes the line.
func (p *progress) end() {
	if p.open {
		fmt.Fprintln(p)
	}
}
