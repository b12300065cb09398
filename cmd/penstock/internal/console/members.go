package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// MembersCmd has the commands that change the list of a group's members.
type MembersCmd struct {
	Add    MembersAddCmd    `cmd:"" help:"Add a member to a group, until the daemon ends or the file has a member of that name."`
	Remove MembersRemoveCmd `cmd:"" help:"Remove a member from a group, until the daemon ends or the file changes it."`
	Set    MembersSetCmd    `cmd:"" help:"Change the address or the weight of a member."`
}

// MembersAddCmd adds a member.
type MembersAddCmd struct {
	ClientFlags
	Group    string `arg:"" name:"GROUP" help:"The name of a group."`
	Address  string `arg:"" name:"URL" help:"Where to connect, such as tcp://10.0.0.1:80."`
	Name     string `placeholder:"NAME" help:"The member's name in logs, metrics and commands (the URL)."`
	Weight   int    `default:"1" placeholder:"N" help:"Its share of flows relative to the others, 1 to 256 (${default})."`
	Backup   bool   `help:"Use it only when no other member can take a flow."`
	MaxFlows int    `default:"0" placeholder:"N" help:"Maximum number of its open flows (0: no limit)."`

	CheckPort    int     `placeholder:"PORT" help:"The port to check. Default: as the group's check says."`
	CheckAddress hostArg `placeholder:"ADDRESS" help:"The address to check. Default: the member's own."`

	QUICServerID string `name:"quic-server-id" placeholder:"HEX" help:"Its ID in connection IDs of QUIC, in hexadecimal digits."`
}

// hostArg is the IP address of a host.
type hostArg netip.Addr

func (a *hostArg) UnmarshalText(b []byte) error {
	addr, err := netip.ParseAddr(string(b))
	if err != nil {
		return fmt.Errorf("invalid address %s; allowed: an IP address", api.Quote(string(b)))
	}
	*a = hostArg(addr)
	return nil
}

// Run executes the command. It prints the new member.
func (c *MembersAddCmd) Run(stdout, stderr *os.File) int {
	return query(&c.ClientFlags, stdout, stderr, func(ctx context.Context, client *api.Client) (api.Members, error) {
		m, err := client.AddMember(ctx, c.Group, api.NewMember{Name: c.Name, Address: c.Address, Weight: c.Weight, Backup: c.Backup, MaxFlows: c.MaxFlows, CheckPort: c.CheckPort, CheckAddress: netip.Addr(c.CheckAddress), QUICServerID: c.QUICServerID})
		return awaitWorker(ctx, client, stderr, c.JSON, c.Group, m, err, func(m *api.Member) bool { return m.Name == cmp.Or(c.Name, c.Address) || m.Address == c.Address })
	}, func(o out, m api.Members) {
		printMembers(o, c.Group, m.Members)
		if len(m.Members) == 0 {
			fmt.Fprintln(o, "added; its name is being looked up")
		}
		fmt.Fprintln(o, "The file does not have it: penstock diff --yaml prints what to put there.")
	})
}

// awaitWorker waits, after a change of members that another worker carries out, until that one has them, and returns the answer with
// them.
func awaitWorker(ctx context.Context, client *api.Client, stderr *os.File, quiet bool, group string, m api.Members, err error, is func(*api.Member) bool) (api.Members, error) {
	if err != nil || !m.NewWorker {
		return m, err
	}
	if !quiet {
		fmt.Fprintf(stderr, "a new worker takes over, because the sandbox of this one does not allow that address; open flows continue%s ...\n", exceptTLS(m.TLSFlows))
	}
	tick := time.NewTicker(workerInterval)
	defer tick.Stop()
	for {
		g, err := client.Group(ctx, group)
		var there []api.Member
		for i := range g.Members {
			if is(&g.Members[i]) {
				there = append(there, g.Members[i])
			}
		}
		if err == nil && len(there) > 0 {
			m.Members = there
			return m, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return m, errors.New("another worker was to take over with the member, and has not for too long; the daemon's log says why")
		}
	}
}

// workerInterval is how often it is asked whether another worker has taken over.
const workerInterval = 50 * time.Millisecond

// MembersRemoveCmd removes a member.
type MembersRemoveCmd struct{ MemberFlags }

// Run executes the command. It prints what was removed.
func (c *MembersRemoveCmd) Run(stdout, stderr *os.File) int {
	return query(&c.ClientFlags, stdout, stderr, func(ctx context.Context, client *api.Client) (api.Members, error) {
		return client.RemoveMember(ctx, c.Member.group, c.Member.member)
	}, func(o out, m api.Members) {
		for i := range m.Members {
			x := &m.Members[i]
			fmt.Fprintf(o, "%s/%s: removed, %s flows end as their routes say\n", printable(c.Member.group), printable(memberName(x)), count(x.Flows))
		}
	})
}

// MembersSetCmd changes a member.
type MembersSetCmd struct {
	MemberFlags
	Address string `placeholder:"URL" help:"Connect there from now on. Flows to the old address end as their routes say."`
	Weight  *int   `placeholder:"N" help:"1 to 256, or 0 for the configured weight."`
}

// Validate checks the combination of flags. Kong calls it.
func (c *MembersSetCmd) Validate() error {
	if c.Address == "" && c.Weight == nil {
		return errors.New("nothing to change; allowed: --address, --weight")
	}
	return nil
}

// Run executes the command.
func (c *MembersSetCmd) Run(stdout, stderr *os.File) int {
	return c.change(stdout, stderr, api.MemberChange{Address: c.Address, Weight: c.Weight})
}

// DiffCmd shows how the running daemon differs from its file.
type DiffCmd struct {
	ClientFlags
	YAML bool `name:"yaml" xor:"form" help:"Print the members of groups, and the parts of routes, that differ, as the file would have them."`
}

// differences is the answer of penstock diff --json.
type differences struct {
	File    api.Diff          `json:"file"` // what a reload would change
	Members api.MemberChanges `json:"members"`
}

// Help returns the text that penstock diff --help prints below the flags.
func (DiffCmd) Help() string {
	return "Two kinds of differences are shown: what a reload would change, because the file has changed; and what operators have changed at run time (members, drain, disable, weight, split), which a reload keeps and a restart loses. To keep it for good, put the output of --yaml into the file."
}

// Run executes the command.
func (c *DiffCmd) Run(stdout, stderr *os.File) int {
	return query(&c.ClientFlags, stdout, stderr, func(ctx context.Context, client *api.Client) (d differences, err error) {
		if d.Members, err = client.MemberChanges(ctx); err == nil && !c.YAML {
			d.File, err = client.FileDiff(ctx)
			var problem *api.Problem
			if errors.As(err, &problem) && problem.Status == http.StatusConflict {
				err = nil // it was started by penstock relay, and has no file
			}
		}
		return d, err
	}, c.print)
}

func (c *DiffCmd) print(o out, d differences) {
	if c.YAML {
		fmt.Fprint(o, d.Members.YAML)
		return
	}
	if len(d.File.Changes) == 0 {
		fmt.Fprintln(o, "The file has not changed since it was loaded.")
	} else {
		fmt.Fprintln(o, "A reload would change:")
		printDiff(o, d.File)
	}
	if len(d.Members.Changes)+len(d.Members.Splits) == 0 {
		fmt.Fprintln(o, "Members are as the file has them.")
		return
	}
	fmt.Fprintln(o, "\nChanged at run time:")
	for _, s := range d.Members.Splits {
		var parts []string
		for _, p := range s.Parts {
			parts = append(parts, fmt.Sprintf("%s has weight %d instead of %d", printable(p.Name), p.Running, p.File))
		}
		where := ""
		if s.Fleet {
			where = ", in the whole fleet"
		}
		fmt.Fprintf(o, "route %s/%s: %s%s\n", printable(s.Listener), printable(s.Route), strings.Join(parts, ", "), where)
	}
	t := newTable("~MEMBER", "WHAT", "~FILE", "~RUNNING")
	for _, m := range d.Members.Changes {
		var file, running []string
		for _, f := range m.Fields {
			if f.File != "" {
				file = append(file, f.Name+" "+f.File)
			}
			if f.Running != "" {
				running = append(running, f.Name+" "+f.Running)
			}
		}
		t.add(m.Group+"/"+m.Member, m.What, dash(strings.Join(file, ", ")), dash(strings.Join(running, ", ")))
	}
	if len(d.Members.Changes) > 0 {
		t.print(o)
	}
	fmt.Fprintln(o, "\nA reload keeps these, a restart does not: penstock diff --yaml prints them for the file.")
}
