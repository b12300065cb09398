package upstream

import "sync/atomic"

// roundRobin gives members flows in turn, in proportion to their weights.
type roundRobin struct {
	sequence
	turn *atomic.Uint64 // shared with the balancers before and after
}

func newRoundRobin(c *candidates) balancer {
	var old *sequence
	if b, ok := c.old.(*roundRobin); ok {
		old = &b.sequence
	}
	return &roundRobin{newSequence(c, c.accepting(), old, spread), c.turn}
}

func (b *roundRobin) seed(Client) uint64 { return b.turn.Add(1) - 1 }
