package console

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// GroupsCmd lists groups and members.
type GroupsCmd struct {
	ClientFlags
	Group string `arg:"" optional:"" name:"GROUP" help:"Show only this group."`
}

// Run executes the command.
func (c *GroupsCmd) Run(stdout, stderr *os.File) int {
	var changes api.MemberChanges
	return query(&c.ClientFlags, stdout, stderr, func(ctx context.Context, client *api.Client) (list api.Groups, err error) {
		if c.Group == "" {
			list, err = client.Groups(ctx)
		} else {
			var g api.Group
			g, err = client.Group(ctx, c.Group)
			list.Groups = []api.Group{g}
		}
		changed := slices.ContainsFunc(list.Groups, func(g api.Group) bool { return g.Changed > 0 })
		if err == nil && changed && !c.JSON {
			changes, err = client.MemberChanges(ctx)
		}
		return list, err
	}, func(o out, g api.Groups) { printGroups(o, g, changes.Changes, time.Now()) })
}

func printGroups(o out, list api.Groups, changes []api.MemberDifference, now time.Time) {
	for i := range list.Groups {
		g := &list.Groups[i]
		if i > 0 {
			fmt.Fprintln(o)
		}
		fmt.Fprintf(o, "%s: %s, %s, %s retries", printable(g.Name), printable(cmp.Or(g.Destination, g.Balance)), plural(g.Flows, "flow"), count(g.Retries))
		if q := g.Queue; q.Size > 0 {
			fmt.Fprintf(o, ", queue %d of %d (%s queued, %s timed out, %s refused while full)", q.Flows, q.Size, count(q.QueuedTotal), count(q.TimedOut), count(q.Full))
		}
		if g.DownKept > 0 {
			fmt.Fprintf(o, ", %s kept when most members went down at once", plural(g.DownKept, "flow"))
		}
		if g.Panic {
			fmt.Fprint(o, ", panic mode: too few members are healthy, so all take flows")
		}
		fmt.Fprintln(o)
		for _, l := range g.Lookups {
			if l.Error != "" || l.LeftOut > 0 {
				fmt.Fprintf(o, "  %s: %s\n", printable(l.Name), lookupProblem(&l, now))
			}
		}
		differs := map[string]string{}
		for _, d := range changes {
			switch {
			case d.Group != g.Name:
			case d.What == "removed":
				fmt.Fprintf(o, "  %s: removed at run time\n", printable(d.Member))
			default:
				differs[d.Member] = d.What
			}
		}
		if len(g.Members) > 0 {
			memberTable(g.Members, differs, now).print(o)
		}
	}
}

// lookupProblem returns what is wrong with a name.
func lookupProblem(l *api.Lookup, now time.Time) string {
	text := plural(int64(l.Members), "member")
	if l.LeftOut > 0 {
		text += fmt.Sprintf(", %s more are left out", count(int64(l.LeftOut)))
	}
	if l.Error != "" {
		text += "; " + printable(l.Error) + goodAge(l.GoodTime, now)
	}
	return text
}

// goodAge says how old the last good answer to a lookup is.
func goodAge(at, now time.Time) string {
	if at.IsZero() {
		return "; there was no good answer yet"
	}
	return fmt.Sprintf("; the last good answer is %s old", age(now.Sub(at).Seconds()))
}

// memberTable returns a table of members. If differs is not empty, a column says which ones were
// added or changed at run time, by name.
func memberTable(members []api.Member, differs map[string]string, now time.Time) *table {
	heads := []string{"~MEMBER", "STATE", ">FOR", "?>WEIGHT", ">FLOWS", "?>UP", "?>DOWN", "?>CONNECT", "?>FIRST BYTE", "?>FAILURES", "~WHY"}
	placed := slices.ContainsFunc(members, func(m api.Member) bool { return m.Zone != "" || m.Priority != 0 })
	if placed {
		heads = append(heads, "?ZONE", "?>PRIORITY")
	}
	certified := slices.ContainsFunc(members, func(m api.Member) bool { return m.Check != nil && !m.Check.CertificateExpires.IsZero() })
	if certified {
		heads = append(heads, "?>CERTIFICATE")
	}
	if len(differs) > 0 {
		heads = append(heads, "RUN TIME")
	}
	t := newTable(heads...)
	for i := range members {
		m := &members[i]
		flows := count(m.Flows)
		if m.MaxFlows > 0 {
			flows += " of " + count(int64(m.MaxFlows))
		}
		cells := []string{memberName(m), m.State, since(m, now), fmt.Sprint(m.Weight), flows, volume(float64(m.BytesUp)), volume(float64(m.BytesDown)),
			span(m.ConnectSeconds / float64(max(1, m.Connects))), answersOf(m).mean(), count(m.Failures), dash(why(m, now))}
		if placed {
			cells = append(cells, dash(m.Zone), fmt.Sprint(m.Priority))
		}
		if certified {
			cells = append(cells, certificate(m.Check, now))
		}
		if len(differs) > 0 {
			cells = append(cells, dash(differs[m.Name]))
		}
		t.add(cells...)
	}
	return t
}

// certificate returns for how long a member's certificate is valid.
func certificate(c *api.Check, now time.Time) string {
	switch {
	case c == nil || c.CertificateExpires.IsZero():
		return "-"
	case c.CertificateExpires.Before(now):
		return "expired"
	}
	return age(c.CertificateExpires.Sub(now).Seconds())
}

// memberName returns the name, followed by the address if it differs.
func memberName(m *api.Member) string {
	if m.Address == "" || m.Address == m.Name {
		return m.Name
	}
	return m.Name + " " + m.Address
}

// since returns how long a member has been in its state.
func since(m *api.Member, now time.Time) string {
	if m.Since.IsZero() {
		return "-"
	}
	return age(now.Sub(m.Since).Seconds())
}

// why returns why a member is in its state.
func why(m *api.Member, now time.Time) string {
	switch {
	case m.Draining && m.State == "drained":
		return "its registry says so"
	case m.Why != "":
		return m.Why
	case m.State == "ejected" && !m.Until.IsZero():
		return "for " + age(m.Until.Sub(now).Seconds()) + " more"
	case m.Check != nil && !m.Check.OK:
		return m.Check.Error
	case m.Agent != nil && m.Agent.Error != "":
		return "agent: " + m.Agent.Error
	case m.Agent != nil && m.Agent.Says != "":
		return "its agent says " + m.Agent.Says
	case m.Health == "degraded":
		return "its registry says degraded"
	case m.Backup:
		return "backup"
	}
	return ""
}
