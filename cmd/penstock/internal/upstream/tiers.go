package upstream

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"
)

// Members are in tiers. A level has the members of one priority; backups are the last level. Where
// the own zone is preferred, a level has two tiers: the members of the own zone, and the others. A
// flow begins in one tier, and if no member of it can take the flow, goes on with the others in their
// order.
type tier struct {
	tierKey
	balancer
	state *tierState
	until uint32 // flows begin here up to this of 2^32, from the end of the tier before
}

// A tierKey identifies a tier of a group. Its order is that of the fields.
type tierKey struct {
	backup   bool
	priority int
	foreign  bool // of other zones than the own one, which is preferred
}

func (a tierKey) compare(b tierKey) int {
	rank := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	return cmp.Or(rank(a.backup)-rank(b.backup), a.priority-b.priority, rank(a.foreign)-rank(b.foreign))
}

// sameLevel reports whether two tiers are parts of one level.
func (a tierKey) sameLevel(b tierKey) bool { return a.backup == b.backup && a.priority == b.priority }

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

// moveTo has the slots of m that are given back counted by a tier. Its balancer, which has m already, may have looked at m before
// one was given back to the tier before.
func (m *Member) moveTo(s *tierState) {
	if m.tier.Load() == s {
		return
	}
	m.tier.Store(s)
	if s.heap != nil {
		s.heap.released(m)
	}
}

// A load is what the members of a tier weigh.
type load struct {
	all       int // of those that are neither drained nor disabled
	accepting int // of those that accept flows
}

// enough is how much more than its even share of flows a zone, or a level, takes before any spill
// over: 1.4 is Envoy's overprovisioning factor. Members that are asked to take more would be
// overloaded when the relays run at about 70% of what they can carry.
const enough = 1.4

// shares returns which share of the flows begins in each tier; all 0: no member accepts flows, so they
// begin in the first tier. keys are in order; zones is the number of zones, by level, that have
// members which accept flows.
//
// A level takes enough times the share of its weight that accepts flows, and at most all; the next
// level gets what remains. What remains after the last one is spread over the levels in proportion.
// Backups only get flows when no other member accepts any.
//
// Of the flows of a level, its tier of the own zone takes at most enough times what it would get if
// flows were spread over all of the level's members evenly, assuming that as many come to the relays
// of each zone: all of them, if it has at least 1/enough of its even part of the weight. The others
// get what remains.
func shares(keys []tierKey, loads []load, zones []int) []float64 {
	out := make([]float64, len(keys))
	rest := 1.0
	for i := 0; i < len(keys); {
		var level load
		n := 0
		for ; i+n < len(keys) && keys[i].sameLevel(keys[i+n]); n++ {
			level.all += loads[i+n].all
			level.accepting += loads[i+n].accepting
		}
		if keys[i].backup || level.accepting == 0 {
			i += n
			continue
		}
		all := min(rest, enough*float64(level.accepting)/float64(max(level.all, level.accepting)))
		rest -= all
		if n == 1 {
			out[i] = all
		} else {
			own := min(1, enough*float64(loads[i].accepting*zones[i])/float64(level.accepting))
			if loads[i+1].accepting == 0 {
				own = 1
			}
			out[i], out[i+1] = all*own, all*(1-own)
		}
		i += n
	}
	if taken := 1 - rest; taken > 0 {
		for i := range out {
			out[i] /= taken
		}
	}
	return out
}

// maxLevels bounds the levels of a group. Further priorities are as the last one.
const maxLevels = 16

// A sorter puts the members of a group into tiers. It is used once for each table.
type sorter struct {
	keys    []tierKey
	members [][]weightedMember
	loads   []load
	zones   []map[string]bool // that have members which accept flows
}

// sortMembers puts the members of a group into tiers, in their order. There is at least one tier. The
// caller holds the Set's lock.
func (g *Group) sortMembers() *sorter {
	s := &sorter{}
	zone := ""
	if g.cfg.PreferZone {
		zone = g.set.opt.Zone
	}
	// The tiers first, so that they are in order whatever the order of the members is.
	var seen map[tierKey]bool
	for i, m := range g.members {
		if k := m.tierKey(zone); i == 0 || k != s.keys[len(s.keys)-1] && !seen[k] {
			s.keys = append(s.keys, k)
			setIn(&seen, k, true)
		}
	}
	slices.SortFunc(s.keys, tierKey.compare)
	s.keys = limitLevels(s.keys, maxLevels)
	if len(s.keys) == 0 {
		s.keys = []tierKey{{}}
	}
	n := len(s.keys)
	s.members, s.loads, s.zones = make([][]weightedMember, n), make([]load, n), make([]map[string]bool, n)
	if n == 1 {
		s.members[0] = make([]weightedMember, 0, len(g.members))
	}
	at := 0
	for _, m := range g.members {
		if k := m.tierKey(zone); k != s.keys[at] {
			at = s.find(k)
		}
		w := weightedMember{m, m.weight()}
		s.members[at] = append(s.members[at], w)
		if m.counted.all {
			s.loads[at].all += w.weight
		}
		if m.acceptsFlows.Load() {
			s.loads[at].accepting += w.weight
			if zone != "" && !s.zones[at][m.zone] {
				setIn(&s.zones[at], m.zone, true)
			}
		}
	}
	return s
}

// find returns the index of a member's tier: that of its key, or else the last one before it.
func (s *sorter) find(k tierKey) int {
	at, ok := slices.BinarySearchFunc(s.keys, k, tierKey.compare)
	if !ok {
		at = max(0, at-1)
	}
	return at
}

// limitLevels leaves out the tiers of levels that are too many. Those of backups stay.
func limitLevels(keys []tierKey, most int) (out []tierKey) {
	levels := 0
	for i, k := range keys {
		if i == 0 || !k.sameLevel(keys[i-1]) {
			levels++
		}
		if levels <= most || k.backup {
			out = append(out, k)
		}
	}
	return out
}

func (m *Member) tierKey(zone string) tierKey {
	k := tierKey{backup: m.backup, foreign: zone != "" && m.zone != zone}
	if !m.backup {
		k.priority = m.priority
	}
	return k
}

// zoneCounts returns the number of zones of each tier's level.
func (s *sorter) zoneCounts() []int {
	out := make([]int, len(s.keys))
	for i, k := range s.keys {
		for j, other := range s.keys {
			if k.sameLevel(other) {
				out[i] += len(s.zones[j])
			}
		}
	}
	return out
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

// at returns what was found at a count, if there was a look.
func (f *fullness) at(freed uint64) (known, full bool) {
	n := f.found.Load()
	return n&1 != 0 && n>>2 == freed&(1<<62-1), n&2 != 0
}
