package upstream

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Members are in tiers. A level has a tier of its healthy members, and one of those that its registry calls degraded;
// backups are the last tier. Where the own zone is preferred, each of them is two: the members of the own zone, and the
// others. A flow begins in one tier, and if no member of it can take the flow, goes on with the others in their order.
type tier struct {
	tierKey
	balancer
	state *tierState
	until uint32 // flows begin here up to this of 2^32, from the end of the tier before
}

// A tierKey identifies a tier of a group. Its order is that of the fields.
type tierKey struct {
	rank     rank
	priority int
	foreign  bool // of other zones than the own one, which is preferred
}

// A rank orders the tiers of a group before their priorities do: degraded members are tried after all that are not.
type rank uint8

const (
	mainRank rank = iota
	degradedRank
	backupRank
)

func (a tierKey) compare(b tierKey) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.priority, b.priority), difference(b.foreign, a.foreign))
}

// A tierState is what the balancers of a tier have in common, from table to table.
type tierState struct {
	room room
	heap *heapState // of least-connections; nil with other balancers
}

// released is called after a slot of m was given back. wasFull says that there was no other one.
func (s *tierState) released(m *Member, wasFull bool) {
	if wasFull {
		s.room.free(m)
	}
	if s.heap != nil {
		s.heap.released(m)
	}
}

// moveTo makes slots of m that are given back from now on count at a tier. The tier's balancer has m already, and may have looked
// at it before a slot was given back to the tier before.
func (m *Member) moveTo(s *tierState) {
	if m.tier.Load() == s {
		return
	}
	m.tier.Store(s)
	if s.heap != nil {
		s.heap.released(m)
	}
}

// ownShare returns which share of the flows begins in the tier of the own zone, and not in that of the others, for what
// members that accept flows weigh in both, and the number of zones that have such members.
//
// The own zone takes at most enough times what it would get if flows were spread over both tiers evenly, assuming
// that as many come to the relays of each zone: all of them, if it has at least 1/enough of its even part of the
// weight. The others get what remains.
func ownShare(own, foreign, zones int) float64 {
	if foreign == 0 {
		return 1
	}
	return min(1, enough/100.0*float64(own*zones)/float64(own+foreign))
}

// A sorter puts the members of a group into tiers. It is used once for each table.
type sorter struct {
	keys      []tierKey
	members   [][]weightedMember
	accepting []int             // what those that accept flows weigh
	zones     []map[string]bool // that have members which accept flows
	shares    []float64         // of the flows that begin in each tier; all 0: nobody accepts flows
}

// sortMembers puts the members of a group into tiers, in their order. There is at least one tier. The
// caller holds the Set's lock.
func (g *Group) sortMembers() *sorter {
	s := &sorter{}
	zone := ""
	if g.cfg.Zone == spec.ZonePrefer {
		zone = g.set.opt.Zone
	}
	g.spread()
	// The tiers first, so that they are in order whatever the order of the members is.
	var seen map[tierKey]bool
	for i, m := range g.members {
		if k := m.tierKey(zone); i == 0 || k != s.keys[len(s.keys)-1] && !seen[k] {
			s.keys = append(s.keys, k)
			setIn(&seen, k, true)
		}
	}
	slices.SortFunc(s.keys, tierKey.compare)
	if len(s.keys) == 0 {
		s.keys = []tierKey{{}}
	}
	n := len(s.keys)
	s.members, s.accepting, s.zones, s.shares = make([][]weightedMember, n), make([]int, n), make([]map[string]bool, n), make([]float64, n)
	if n == 1 {
		s.members[0] = make([]weightedMember, 0, len(g.members))
	}
	at := 0
	for _, m := range g.members {
		if k := m.tierKey(zone); k != s.keys[at] {
			at, _ = slices.BinarySearchFunc(s.keys, k, tierKey.compare)
		}
		w := weightedMember{m, m.weight()}
		s.members[at] = append(s.members[at], w)
		if m.acceptsFlows.Load() {
			s.accepting[at] += w.weight
			if zone != "" && !s.zones[at][m.zone] {
				setIn(&s.zones[at], m.zone, true)
			}
		}
	}
	if g.cfg.Zone == spec.ZoneWeighted {
		s.weighLocalities(g)
	}
	for _, l := range g.levels {
		if l.head == l && !l.backup {
			s.share(tierKey{mainRank, l.priority, false}, l.share.healthy)
			s.share(tierKey{degradedRank, l.priority, false}, l.share.degraded)
		}
	}
	return s
}

// share gives a tier, with that of other zones, its share of the flows. own is the key of the tier of the own zone.
func (s *sorter) share(own tierKey, share float64) {
	i, ok := slices.BinarySearchFunc(s.keys, own, tierKey.compare)
	j := i
	if ok {
		j++
	}
	foreign := j < len(s.keys) && s.keys[j] == tierKey{own.rank, own.priority, true}
	switch {
	case ok && foreign:
		part := ownShare(s.accepting[i], s.accepting[j], len(s.zones[i])+len(s.zones[j]))
		s.shares[i], s.shares[j] = share*part, share*(1-part)
	case ok || foreign:
		s.shares[i] = share
	}
}

// tierKey returns the key of the tier that m is in. zone is the one that is preferred; empty: none.
func (m *Member) tierKey(zone string) tierKey {
	l := m.counted.level
	k := tierKey{priority: l.head.priority, foreign: zone != "" && m.zone != zone}
	switch {
	case l.backup:
		k.rank = backupRank
	case m.counted.class == degraded && !l.panics:
		k.rank = degradedRank
	}
	return k
}

// setShares sets where flows begin.
func (t *table) setShares(shares []float64) {
	sum, with := 0.0, 0
	for i, share := range shares {
		sum += share
		t.tiers[i].until = uint32(min(sum*(1<<32), math.MaxUint32))
		if share > 0 {
			if with == 0 {
				t.first = i
			}
			with++
		}
	}
	t.several = with > 1
	if t.several {
		last := len(shares) - 1
		for shares[last] == 0 {
			last--
		}
		t.tiers[last].until = math.MaxUint32
	}
}

// A room is where there may be a free slot while members of a tier are full.
type room struct {
	freed atomic.Uint64          // how often a full member was no longer full, or a member began to accept flows
	last  atomic.Pointer[Member] // the last one
}

// free notes that m may have a free slot.
func (r *room) free(m *Member) {
	r.last.Store(m)
	r.freed.Add(1)
}

// A fullness remembers that no member of a balancer had a free slot, so that not every flow looks at
// all of them.
//
// Slots are freed before room.freed is counted, and it is read before the members are looked at. So
// what was found holds as long as the count is the same.
type fullness struct{ found atomic.Uint64 }

// note notes that a look that began at a count of room.freed found no free slot. full says that there
// are members.
func (f *fullness) note(freed uint64, full bool) {
	n := freed<<2 | 1
	if full {
		n |= 2
	}
	f.found.Store(n)
}

// foundAt returns what was found at a count, if there was a look.
func (f *fullness) foundAt(freed uint64) (known, full bool) {
	n := f.found.Load()
	return n&1 != 0 && n>>2 == freed&(1<<62-1), n&2 != 0
}
