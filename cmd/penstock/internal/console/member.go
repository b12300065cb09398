package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// memberArg names the members of a group that have a name or address. A group's name has no
// slash, an address does. A group that a URL stands for has the URL as its name, and so has its
// member, unless DNS found it: URL, or URL/MEMBER.
type memberArg struct{ group, member string }

func (a *memberArg) UnmarshalText(b []byte) error {
	if group, member, ok := splitURL(string(b)); ok {
		a.group, a.member = group, member
		return nil
	}
	var ok bool
	if a.group, a.member, ok = strings.Cut(string(b), "/"); !ok || a.group == "" || a.member == "" {
		return fmt.Errorf("%s is no member; allowed: GROUP/MEMBER, as penstock groups shows them", api.Quote(string(b)))
	}
	return nil
}

// splitURL splits what begins with a URL that stands for a group.
func splitURL(s string) (group, member string, ok bool) {
	scheme, rest, found := strings.Cut(s, ":")
	if !found || !slices.Contains([]string{"tcp", "udp", "unix", "unixgram", "echo", "discard"}, scheme) {
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

// Which is the member of a command.
type Which struct {
	Ask
	Member memberArg `arg:"" name:"GROUP/MEMBER" help:"A group, and the name or address of a member."`
}

// change asks for a change, and prints the members as they are then.
func (c *Which) change(stdout, stderr *os.File, change api.MemberChange) int {
	return show(&c.Ask, stdout, stderr, func(ctx context.Context, client *api.Client) (api.Members, error) {
		return client.SetMember(ctx, c.Member.group, c.Member.member, change)
	}, func(o out, m api.Members) { printMembers(o, c.Member.group, m.Members) })
}

func printMembers(o out, group string, members []api.Member) {
	for i := range members {
		m := &members[i]
		fmt.Fprintf(o, "%s/%s: %s, weight %d, %s flows\n", clean(group), clean(memberName(m)), m.State, m.Weight, count(m.Flows))
	}
}

// EnableCmd lets a member take flows.
type EnableCmd struct{ Which }

// Run changes the member.
func (c *EnableCmd) Run(stdout, stderr *os.File) int {
	return c.change(stdout, stderr, api.MemberChange{State: "enable"})
}

// DisableCmd takes a member out at once.
type DisableCmd struct{ Which }

// Run changes the member.
func (c *DisableCmd) Run(stdout, stderr *os.File) int {
	return c.change(stdout, stderr, api.MemberChange{State: "disable"})
}

// RestoreCmd undoes what the other commands did to a member.
type RestoreCmd struct{ Which }

// Run changes the member.
func (c *RestoreCmd) Run(stdout, stderr *os.File) int {
	return c.change(stdout, stderr, api.MemberChange{State: "file", Weight: new(int)})
}

// WeightCmd changes a member's weight.
type WeightCmd struct {
	Which
	Weight int `arg:"" name:"WEIGHT" help:"1 to 256, or 0 for that of the configuration."`
}

// Run changes the member.
func (c *WeightCmd) Run(stdout, stderr *os.File) int {
	return c.change(stdout, stderr, api.MemberChange{Weight: &c.Weight})
}

// DrainCmd lets a member's flows end.
type DrainCmd struct {
	Which
	Wait    bool          `help:"Wait until the member has no flow left."`
	Timeout time.Duration `default:"0" placeholder:"TIME" help:"With --wait: give up after so long, with exit code 1; the member stays drained (0: never)."`
}

// How often a drain that is waited for is looked at, and told of where no
// terminal shows every change.
const (
	lookEvery = 500 * time.Millisecond
	tellEvery = 5 * time.Second
)

// Validate is called by kong.
func (c *DrainCmd) Validate() error {
	if c.Timeout < 0 || c.Timeout > 0 && !c.Wait {
		return errors.New("--timeout: allowed: 0 or more, with --wait")
	}
	return nil
}

// Run drains, and waits if that was asked for.
func (c *DrainCmd) Run(stdout, stderr *os.File) int {
	if !c.Wait {
		return c.change(stdout, stderr, api.MemberChange{State: "drain"})
	}
	return c.with(stderr, func(ctx context.Context, client *api.Client) error {
		m, err := get(ctx, func(ctx context.Context) (api.Members, error) {
			return client.SetMember(ctx, c.Member.group, c.Member.member, api.MemberChange{State: "drain"})
		})
		if err != nil {
			return err
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

// wait looks at the members until they have no flow left, are gone, or ctx ends. How far it is goes to o.
func (c *DrainCmd) wait(ctx context.Context, client *api.Client, o out, members []api.Member) ([]api.Member, error) {
	p := progress{out: o, quiet: c.JSON}
	defer p.end()
	start := time.Now()
	atStart := flowsOf(members)
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		left := flowsOf(members)
		if left == 0 {
			return members, nil
		}
		p.tell(fmt.Sprintf("%s of %s flows left, %s", count(left), count(max(atStart, left)), age(time.Since(start).Seconds())))
		select {
		case <-look.C:
		case <-ctx.Done():
			return members, c.gaveUp(ctx, left)
		}
		g, err := get(ctx, func(ctx context.Context) (api.Group, error) { return client.Group(ctx, c.Member.group) })
		var problem *api.Problem
		switch {
		case errors.As(err, &problem) && problem.Status == http.StatusNotFound:
			return nil, nil // a reload took the group away, and its flows with it
		case ctx.Err() != nil:
			return members, c.gaveUp(ctx, left)
		case err != nil:
			return members, err
		}
		members = slices.DeleteFunc(g.Members, func(m api.Member) bool {
			return !slices.ContainsFunc(members, func(was api.Member) bool { return was.Name == m.Name && was.Address == m.Address })
		})
	}
}

// gaveUp is the error for a wait that ended before the flows did.
func (c *DrainCmd) gaveUp(ctx context.Context, left int64) error {
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

// progress tells a person how far something is: on a terminal in one line that
// changes, elsewhere in a line every few seconds.
type progress struct {
	out
	quiet bool
	told  time.Time
	open  bool // the terminal's line has not ended
}

func (p *progress) tell(line string) {
	switch {
	case p.quiet:
	case p.width > 0:
		// To the start of the line, and what was there is erased (ECMA-48 EL).
		fmt.Fprintf(p, "\r%s\x1b[K", shorten(line, p.width-1))
		p.open = true
	case time.Since(p.told) >= tellEvery:
		fmt.Fprintln(p, line)
		p.told = time.Now()
	}
}

// end leaves the line.
func (p *progress) end() {
	if p.open {
		fmt.Fprintln(p)
	}
}
