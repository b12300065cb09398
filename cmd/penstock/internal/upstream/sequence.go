package upstream

import (
	"math/rand/v2"
	"slices"
)

// A sequence is an order in which members are tried. Each place holds the index of a member, and
// each member has places in proportion to its weight. A flow begins at the place of its seed and
// goes on from there.
type sequence struct {
	members   []weightedMember
	places    []int32 // indexes of members
	slowStart []int   // by member: its step, so that of slowStartSteps flows it gets only as many; nil: all
	// Those that accept flows, in the order in which pickRest looks at them.
	rest        []weightedMember
	inFileOrder bool // rest is looked at from its beginning
	full        *fullness
	state       *tierState
}

// newSequence returns the sequence of members, whose places fill returns, unless old has the same
// members.
func newSequence(c *candidates, members []weightedMember, old *sequence, fill func([]weightedMember) []int32) sequence {
	s := sequence{members: members, rest: members, state: c.state, full: &fullness{}}
	if old != nil && slices.Equal(old.members, members) {
		s.places = old.places
	} else if len(members) > 0 {
		s.places = fill(members)
	}
	return s
}

// Limits of the search for a member.
const (
	maxDraws = 8  // random draws before the search goes along the sequence
	maxWalk  = 64 // places of the sequence before each member is tried once
)

// pick searches the sequence from the lease's place.
func (s *sequence) pick(l *Lease) (m *Member, full bool) { return s.pickFrom(l, l.seed) }

// pickFrom searches the sequence from a place, and when that takes long, all members that accept
// flows.
func (s *sequence) pickFrom(l *Lease, seed uint64) (m *Member, full bool) {
	n := len(s.places)
	if n == 0 {
		return nil, false
	}
	at := int(seed % uint64(n))
	for range min(n, maxWalk) {
		i := s.places[at]
		if s.slowStart == nil || seed>>32%slowStartSteps < uint64(s.slowStart[i]) {
			ok, f := l.take(s.members[i].m)
			if ok {
				return s.members[i].m, false
			}
			full = full || f
		}
		if at++; at == n {
			at = 0
		}
	}
	if n <= maxWalk {
		return nil, full
	}
	return s.pickRest(l, seed)
}

// pickRest looks at each member once. While all are full, only the first flow does so after one of
// them had a free slot.
func (s *sequence) pickRest(l *Lease, seed uint64) (m *Member, full bool) {
	if len(s.rest) == 0 {
		return nil, false
	}
	first := len(l.tried()) == 0
	freed := s.state.room.freed.Load()
	if known, full := s.full.foundAt(freed); known && first {
		return nil, full
	}
	if m := s.state.room.last.Load(); m != nil && m.tier.Load() == s.state && !s.inFileOrder {
		if ok, _ := l.take(m); ok {
			return m, false
		}
	}
	at := 0
	if !s.inFileOrder {
		at = int(seed % uint64(len(s.rest)))
	}
	for range s.rest {
		ok, f := l.take(s.rest[at].m)
		if ok {
			return s.rest[at].m, false
		}
		full = full || f
		if at++; at == len(s.rest) {
			at = 0
		}
	}
	if first {
		s.full.note(freed, full)
	}
	return nil, full
}

// draw returns a random member, by weight.
func (s *sequence) draw() weightedMember { return s.members[s.places[rand.IntN(len(s.places))]] }

// maxPlaces bounds a sequence. Weights that need a longer one are rounded.
const maxPlaces = 1 << 20

// spread gives each member a number of places equal to its weight, evenly spread: members of equal
// weights are in turn. Weights are divided by their greatest common divisor first.
//
// A member of weight w has its places where w equal parts of a circle begin, shifted a little by
// its index. Members that fall on the same place stay in order.
func spread(members []weightedMember) []int32 {
	weights, sum := reduceWeights(members)
	n := len(members)
	counts := make([]int32, sum+1)
	place := func(i, k int) int { return int(int64(2*k*n+2*i+1) * int64(sum) / int64(2*n*weights[i])) }
	for i, w := range weights {
		for k := range w {
			counts[place(i, k)+1]++
		}
	}
	for i := range sum {
		counts[i+1] += counts[i]
	}
	places := make([]int32, sum)
	for i, w := range weights {
		for k := range w {
			p := place(i, k)
			places[counts[p]] = int32(i)
			counts[p]++
		}
	}
	return places
}

// reduceWeights returns weights in the smallest whole numbers, and their sum, which is at most
// maxPlaces unless there are more members.
func reduceWeights(members []weightedMember) (weights []int, sum int) {
	common := 0
	for _, s := range members {
		common = gcd(common, s.weight)
		sum += s.weight
	}
	for _, s := range members {
		w := s.weight / max(common, 1)
		if all := sum / max(common, 1); all > maxPlaces {
			w = max(1, w*maxPlaces/all)
		}
		weights = append(weights, w)
	}
	sum = 0
	for _, w := range weights {
		sum += w
	}
	return weights, sum
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
