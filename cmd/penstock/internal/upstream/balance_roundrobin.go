package upstream

import "sync/atomic"

// roundRobin gives members flows in turn, in proportion to their weights.
type roundRobin struct {
	sequence
	turn *atomic.Uint64 // shared with the balancers before and after
}

func newRoundRobin(c *candidates) balancer {
	old, ok := c.old.(*roundRobin)
	if !ok {
		old = &roundRobin{turn: new(atomic.Uint64)}
	}
	return &roundRobin{newSequence(c.accepting(), &old.sequence, spread), old.turn}
}

func (b *roundRobin) seed(Client) uint64 { return b.turn.Add(1) - 1 }
