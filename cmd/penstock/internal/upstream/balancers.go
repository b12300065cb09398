package upstream

import (
	"net/netip"
	"sync/atomic"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// balancers builds each of spec.Balancers.
var balancers = map[string]func(*candidates) balancer{
	"round-robin":       newRoundRobin,
	"least-connections": newLeastConnections,
	"p2c":               newP2C,
	"maglev":            newMaglev,
	"random":            newRandom,
	"first":             newFirst,
}

// newBalancer builds the balancer of a tier.
func newBalancer(c *candidates) balancer { return balancers[spec.BalancerNamed(c.cfg.Balance).Name](c) }

// A balancer chooses among the members of a tier. Its methods run on event loops: they do not block.
type balancer interface {
	// seed returns where the search for a member begins, for a new flow: in which tier, and where in
	// it. What is tried after a failure follows from it.
	seed(Client) uint64
	// pick reserves a slot of a member that l can use. full reports that there is such a member,
	// but that none has a free slot.
	pick(l *Lease) (m *Member, full bool)
}

// Client is what a balancer may hash.
type Client struct {
	Addr  netip.AddrPort // zero: a Unix socket
	Local netip.AddrPort // address that it connected to; set if UsesLocal
	Key   string         // what the hashes sni and tlv hash; empty: its address instead
}

// candidates are the members that a balancer is built for: those of a tier.
type candidates struct {
	cfg *spec.Group
	all []weightedMember
	// slowStart says that a member of the group has not reached the last step.
	slowStart bool
	state     *tierState
	turn      *atomic.Uint64 // the group's, for round-robin
	// old is the balancer of the tier before; nil: none. What is unchanged may be taken over.
	old balancer
}

// weightedMember is a member and its weight relative to the others.
type weightedMember struct {
	m      *Member
	weight int
}

// accepting returns the members that accept flows. While one is in slow start, all weights are in
// smaller units.
func (c *candidates) accepting() []weightedMember {
	all := true
	for _, w := range c.all {
		all = all && w.m.acceptsFlows.Load()
	}
	if all && !c.slowStart {
		return c.all
	}
	list := make([]weightedMember, 0, len(c.all))
	for _, w := range c.all {
		if !w.m.acceptsFlows.Load() {
			continue
		}
		if c.slowStart {
			w.weight *= w.m.step()
		}
		list = append(list, w)
	}
	return list
}
