package offline

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	dest "github.com/penstock/penstock/cmd/penstock/internal/destination"
	"github.com/penstock/penstock/cmd/penstock/internal/route"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
)

// A destination says what would happen to a connection in one part of its route.
type destination struct {
	Share   string   `json:"share,omitempty"` // of clients, if chance decides
	Group   string   `json:"group,omitempty"`
	Members []string `json:"members,omitempty"` // in order of preference, if there is one
	Choice  string   `json:"choice,omitempty"`  // how a member is chosen
	Path    string   `json:"path,omitempty"`    // the fastest data path that the flow can have, and what may prevent it
}

// addGroup lists the members, and says how one is chosen. The client's port has the offset in its
// range; it is negative if the port is not known.
func (e *destination) addGroup(g *spec.Group, offset int, lookup lookupFunc) {
	for _, backup := range []bool{false, true} {
		for _, m := range g.Members {
			if m.Backup != backup {
				continue
			}
			to := m.To
			if offset >= 0 && to.Ports() > 1 {
				to = to.At(offset)
			}
			text := to.String()
			if m.Name != m.To.String() {
				text = m.Name + " at " + text
			}
			if to.Ports() > 1 {
				text += ", at the port with the offset of the client's"
			}
			if m.Weight != 1 {
				text += fmt.Sprintf(", weight %d", m.Weight)
			}
			if m.Backup {
				text += ", backup"
			}
			if m.Drained {
				text += ", drained: gets no new flows"
			}
			e.Members = append(e.Members, text+lookup(m.To, "", nil))
		}
	}
	for _, d := range g.Discover {
		if d.Registry.Kind != "" {
			e.Members = append(e.Members, fmt.Sprintf("what the registry %s has: %s", d.Registry.Name, d))
			continue
		}
		if d.Service != "" {
			e.Members = append(e.Members, "SRV records of "+d.Service+lookup(spec.Endpoint{}, d.Service, nil))
			continue
		}
		e.Members = append(e.Members, fmt.Sprintf("A and AAAA records of %s, port %d", d.Host, d.Port)+
			lookup(spec.Endpoint{Kind: d.Network, Host: d.Host, Port: d.Port}, "", nil))
	}
	e.Choice = g.Balance
	if g.Hash != "" {
		e.Choice += " by " + g.Hash
	}
	further := g.Retries
	if len(g.Discover) == 0 {
		further = min(further, len(g.Members)-1)
	}
	if further > 0 {
		e.Choice += fmt.Sprintf("; after a failed connect up to %s", config.Counted(further, "further member"))
	}
}

// addNamed explains where a client goes whose group has a destination, and why it does not.
func (e *explanation) addNamed(d *spec.Destination, datagrams bool, m route.Meta, lookup lookupFunc) (to destination) {
	sent, option := m.SNI, "--sni"
	if d.By == spec.ByHost {
		sent, option = m.First.Host(), "--host"
	}
	to.Choice = d.String()
	if d.By == spec.ByOriginal {
		return to
	}
	name, ok := dest.Normalize(sent)
	switch {
	case sent == "":
		e.Refused = spec.ReasonNoName.String() + ": the client has no name, which the destination of its group goes by; " + option + " gives one"
	case !ok:
		e.Refused = fmt.Sprintf("%v: %q is not the name of a host", spec.ReasonNoName, sent)
	case !dest.NewNames(d.Allow).Allow(name):
		e.Refused = fmt.Sprintf("%v: %s is not in allow of the destination of its group", spec.ReasonNameDenied, name)
	default:
		at := spec.Endpoint{Kind: spec.TCP, Host: name, Port: d.Port}
		if datagrams {
			at.Kind = spec.UDP
		}
		to.Members = []string{at.String() + lookup(at, "", d)}
	}
	return to
}

// lookUpNamed returns what DNS has for the name of a destination, and which addresses are refused.
func lookUpNamed(name string, d *spec.Destination) string {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	addrs, _, err := upstream.DNS{}.Addresses(ctx, name)
	if err != nil {
		return ": lookup failed: " + err.Error()
	}
	var list []string
	for _, a := range addrs {
		text := a.String()
		if why := dest.Refuses(a, d.Networks); why != "" {
			text += " (refused: " + why + ")"
		}
		list = append(list, text)
	}
	return ": currently " + strings.Join(list, ", ")
}

// addPath names the fastest data path that the flow can have.
func (e *destination) addPath(cfg *spec.Config, l *spec.Listener, r *spec.Route, g *spec.Group) {
	builtin := func(m spec.Member) bool { return m.To.Kind.BuiltIn() }
	switch {
	case l.TLS != nil && !r.PassTLS:
		e.Path = "copy: the client's TLS is terminated"
	case g.TLS != nil && !l.Datagrams:
		e.Path = "copy: members are connected over TLS"
	case slices.ContainsFunc(g.Members, builtin):
		e.Path = "copy: the upstream is built in"
	case l.Datagrams && cfg.Engine.NoGSO:
		e.Path = "single datagrams: gso is off"
	case l.Datagrams:
		e.Path = "runs of datagrams (GSO), where several arrive at once and the route to the member supports them"
	case cfg.Engine.Pipes < 0:
		e.Path = "copy: splicing is off"
	default:
		e.Path = "splice once reads are large; small messages are copied, which is faster for them"
		if r.Bandwidth > 0 {
			e.Path += fmt.Sprintf("; at most %d bytes per second in each direction", r.Bandwidth)
		}
	}
}

func (e *destination) print(b *bytes.Buffer) {
	share := ""
	if e.Share != "" {
		share = ", for " + e.Share
	}
	fmt.Fprintf(b, "group     %s, %s%s\n", e.Group, e.Choice, share)
	for _, m := range e.Members {
		fmt.Fprintf(b, "          %s\n", m)
	}
	fmt.Fprintf(b, "path      %s\n", e.Path)
}
