package upstream

import "math/rand/v2"

// firstBalancer fills one member after the other, in the file's order.
type firstBalancer struct{ sequence }

func newFirst(c *candidates) balancer {
	b := &firstBalancer{newSequence(c, c.accepting(), nil, func(members []weightedMember) []int32 {
		places := make([]int32, min(len(members), maxWalk+1))
		for i := range places {
			places[i] = int32(i)
		}
		return places
	})}
	b.inFileOrder = true
	return b
}

func (b *firstBalancer) seed(Client) uint64 { return rand.Uint64() }

func (b *firstBalancer) pick(l *Lease) (m *Member, full bool) { return b.pickFrom(l, 0) }
