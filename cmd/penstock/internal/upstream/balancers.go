package upstream

import (
	"net/netip"

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

// newBalancer builds the balancer of a group.
func newBalancer(c *candidates) balancer { return balancers[spec.BalancerNamed(c.cfg.Balance).Name](c) }

// A balancer chooses among the primary or among the backup members of a group. Its methods run on
// event loops: they do not block.
type balancer interface {
	// seed returns where the search for a member begins, for a new flow. What is tried after a
	// failure follows from it.
	seed(Client) uint64
	// pick reserves a slot of a member that l can use. full reports that there is such a member,
	// but that none has a free slot.
	pick(l *Lease) (m *Member, full bool)
	// released is called after a slot of m, which the group has or has had, was returned.
	released(m *Member)
}

// Client is what a balancer may hash.
type Client struct {
	Addr  netip.AddrPort // zero: a Unix socket
	Local netip.AddrPort // address that it connected to; set if UsesLocal
	Key   string         // what the hashes sni and tlv hash; empty: its address instead
}

// candidates are the members that a balancer is built for: the primaries or the backups of a
// group.
type candidates struct {
	cfg *spec.Group
	all []weightedMember
	// steps are the slow-start steps of members that have not reached slowStartSteps.
	steps map[*Member]int
	// old is the balancer in the same place before; nil: none. What is unchanged may be taken over.
	old balancer
}

// weightedMember is a member and its weight relative to the others.
type weightedMember struct {
	m      *Member
	weight int
}

// accepting returns the members that accept flows. While one is in slow start, all weights are in
// smaller units.
func (c *candidates) accepting() (list []weightedMember) {
	for _, w := range c.all {
		if !w.m.acceptsFlows.Load() {
			continue
		}
		if c.steps != nil {
			w.weight *= c.step(w.m)
		}
		list = append(list, w)
	}
	return list
}

func (c *candidates) step(m *Member) int {
	if step, ok := c.steps[m]; ok {
		return step
	}
	return slowStartSteps
}
