package upstream

// firstBalancer fills one member after the other, in the file's order.
type firstBalancer struct{ sequence }

func newFirst(c *candidates) balancer {
	return &firstBalancer{newSequence(c.accepting(), nil, func(members []weightedMember) []int32 {
		places := make([]int32, len(members))
		for i := range places {
			places[i] = int32(i)
		}
		return places
	})}
}

func (b *firstBalancer) seed(Client) uint64 { return 0 }
