package upstream

import (
	"math"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Localities of xDS have weights. What a locality gets of a tier is made a part of the weights of its members, so that
// every balancer heeds it, and tiers are no more than without.

// A locality is the members of one locality, in one tier.
type locality struct {
	weight    uint32
	accepting int // members that accept flows
	counted   int // members of the level that are not draining, whatever their health
	weights   int // of the members that share its flows
}

// effectiveWeight returns the weight of a locality, which is less if few of its members can be used.
func (l *locality) effectiveWeight(factor int) float64 {
	if l.accepting == 0 || l.counted == 0 {
		return 0
	}
	return float64(l.weight) * min(1, float64(factor)/100*float64(l.accepting)/float64(l.counted))
}

// weighLocalities gives the members of each tier weights by their localities. Members of a locality without weight
// are left out. A tier stays as it is if its level panics, or if no locality of it has a weight.
func (s *sorter) weighLocalities(g *Group) {
	counted := map[placed]int{}
	for _, m := range g.members {
		if m.counted.class > excluded {
			counted[placed{m.counted.level.head, m.locality.Name}]++
		}
	}
	hashes := spec.BalancerNamed(g.cfg.Balance).Hash
	for i, members := range s.members {
		if len(members) > 0 && s.keys[i].rank != backupRank && !members[0].m.counted.level.panics {
			s.members[i] = weighByLocality(members, counted, g.rule.factor, hashes)
		}
	}
}

// placed is a locality of a level.
type placed struct {
	head     *level
	locality string
}

// weighByLocality returns the members of a tier with weights by their localities. Where the balancer hashes, members
// that are down keep their part, so that other clients stay with their members.
func weighByLocality(members []weightedMember, counted map[placed]int, factor int, hashes bool) []weightedMember {
	localities := map[string]*locality{}
	for _, w := range members {
		l := localities[w.m.locality.Name]
		if l == nil {
			l = &locality{weight: w.m.locality.Weight, counted: counted[placed{w.m.counted.level.head, w.m.locality.Name}]}
			localities[w.m.locality.Name] = l
		}
		accepts := w.m.acceptsFlows.Load()
		if accepts {
			l.accepting++
		}
		if accepts || hashes {
			l.weights += w.weight
		}
	}
	total := 0.0
	for _, l := range localities {
		total += l.effectiveWeight(factor)
	}
	if total == 0 {
		return members
	}
	// Whole numbers, which are exact enough if an average member has this many.
	const average = 128
	parts := float64(min(average*len(members), maxPlaces))
	out := make([]weightedMember, 0, len(members))
	for _, w := range members {
		l := localities[w.m.locality.Name]
		if l.weight == 0 {
			continue
		}
		w.weight = max(1, int(math.Round(parts*l.effectiveWeight(factor)/total*float64(w.weight)/float64(max(l.weights, 1)))))
		out = append(out, w)
	}
	return out
}
