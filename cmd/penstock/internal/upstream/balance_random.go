package upstream

import "math/rand/v2"

// randomBalancer draws members by weight.
type randomBalancer struct{ sequence }

func newRandom(c *candidates) balancer {
	var old *sequence
	if b, ok := c.old.(*randomBalancer); ok {
		old = &b.sequence
	}
	return &randomBalancer{newSequence(c, c.accepting(), old, spread)}
}

func (b *randomBalancer) seed(Client) uint64 { return rand.Uint64() }

func (b *randomBalancer) pick(l *Lease) (m *Member, full bool) {
	if len(b.members) == 0 {
		return nil, false
	}
	for range maxDraws {
		w := b.draw()
		if ok, _ := l.take(w.m); ok {
			return w.m, false
		}
	}
	return b.sequence.pick(l)
}
