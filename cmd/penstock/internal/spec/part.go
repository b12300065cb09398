package spec

import (
	"iter"
	"slices"
)

// A Part is one of the destinations among which the clients of a route are split by weight. Most routes have one.
type Part struct {
	Group  *Group // nil if Refuse is set
	Refuse bool   // its clients are refused
	Weight int    // its share is this divided by the sum of all parts; 0: it gets no clients
}

// MaxPartWeight is the greatest weight of a part, and MaxParts the number of parts that a route may have: their sum fits into 32 bits.
const (
	MaxPartWeight = 1_000_000
	MaxParts      = 1000
)

// SplitRandom is the value of Route.SplitBy for a choice at random.
const SplitRandom = "random"

// RefusePart is the name of a part that refuses its clients.
const RefusePart = "refuse"

// Name returns the name of a part, unique among those of a route: its group's, or RefusePart.
func (p *Part) Name() string {
	switch {
	case p.Refuse:
		return RefusePart
	case p.Group != nil:
		return p.Group.Name
	}
	return ""
}

// Only returns the parts of a route that leads to one group.
func Only(g *Group) []Part { return []Part{{Group: g, Weight: 1}} }

// GroupsOf returns the groups among parts.
func GroupsOf(parts []Part) iter.Seq[*Group] {
	return func(yield func(*Group) bool) {
		for i := range parts {
			if g := parts[i].Group; g != nil && !yield(g) {
				return
			}
		}
	}
}

// Groups returns the groups to which a route leads.
func (r *Route) Groups() iter.Seq[*Group] { return GroupsOf(r.To) }

// LeadsTo reports whether a route leads to a group of this name, whatever its weight.
func (r *Route) LeadsTo(group string) bool {
	return slices.ContainsFunc(r.To, func(p Part) bool { return p.Group != nil && p.Group.Name == group })
}

// NeedsSNI reports whether the upstream of a client depends on its server name, once the route is chosen.
func (r *Route) NeedsSNI() bool {
	return r.SplitBy == "sni" || slices.ContainsFunc(r.To, func(p Part) bool {
		return p.Group != nil && (p.Group.Hash == "sni" || p.Group.Destination.needs(BySNI))
	})
}

// NeedsHost reports whether the upstream of a client depends on the host of its first request, once the route is chosen.
func (r *Route) NeedsHost() bool {
	return slices.ContainsFunc(r.To, func(p Part) bool { return p.Group != nil && p.Group.Destination.needs(ByHost) })
}
