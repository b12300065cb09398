package upstream

import "math/rand/v2"

// twoChoices draws two members by weight and takes the one with fewer flows for its weight
// (Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", 2001).
type twoChoices struct{ sequence }

func newP2C(c *candidates) balancer {
	var old *sequence
	if b, ok := c.old.(*twoChoices); ok {
		old = &b.sequence
	}
	return &twoChoices{newSequence(c, c.accepting(), old, spread)}
}

func (b *twoChoices) seed(Client) uint64 { return rand.Uint64() }

func (b *twoChoices) pick(l *Lease) (m *Member, full bool) {
	if len(b.members) == 0 {
		return nil, false
	}
	for range maxDraws {
		w, other := b.draw(), b.draw()
		if !l.canUse(w.m) || w.m.full() || l.canUse(other.m) && lighter(other, w) {
			w, other = other, w
		}
		for _, w := range [2]weightedMember{w, other} {
			if ok, _ := l.take(w.m); ok {
				return w.m, false
			}
		}
	}
	return b.sequence.pick(l)
}

// lighter compares flows per unit of weight. A full member is not lighter. Of equal ones the one
// that was drawn first, by weight, is taken.
func lighter(a, b weightedMember) bool {
	return !a.m.full() && int64(a.m.active.Load())*int64(b.weight) < int64(b.m.active.Load())*int64(a.weight)
}
