package upstream

import (
	"sync"
	"sync/atomic"
)

// A heapLock guards the order of a group's heaps, including those of older tables, and the virtual
// time that breaks ties. Critical sections take a few comparisons.
type heapLock struct {
	mu          sync.Mutex
	inUse       atomic.Bool // the group's table has heaps
	virtualTime uint64
}

// A heap has the member with the fewest flows for its weight on top. Equal ones, such as idle
// ones, are picked in turn, in proportion to their weights: being picked advances a member's
// virtual time by stride over its weight (stride scheduling). Full ones are at the bottom.
type heap struct{ members []heapMember }

// A heapMember is a member's state in the heap.
type heapMember struct {
	weightedMember
	active      int64
	full        bool
	virtualTime uint64
}

// stride is greater than the number of members, so that they can begin in their order.
const stride = 1 << 40

func (a *heapMember) before(b *heapMember) bool {
	if a.full != b.full {
		return b.full
	}
	x, y := a.active*int64(b.weight), b.active*int64(a.weight)
	return x < y || x == y && a.virtualTime < b.virtualTime
}

// pick reserves the top member or, if the lease cannot use it, the best one that it can. The heap
// may belong to an older table: then it is only read.
func (h *heap) pick(g *Group, l *Lease) (m *Member, full bool) {
	g.heap.mu.Lock()
	defer g.heap.mu.Unlock()
	best := -1
	for i := range h.members {
		a := &h.members[i]
		if l.canUse(a.m) {
			if !a.m.full() && (best < 0 || a.before(&h.members[best])) {
				best = i
			}
			full = true
		}
		if i == 0 && (best == 0 || full) {
			break // no other is better
		}
	}
	if best < 0 {
		return nil, full
	}
	m = h.members[best].m
	if !m.reserve() {
		return nil, true
	}
	if h, i := g.findInHeap(m); h != nil {
		a := &h.members[i]
		g.heap.virtualTime = max(g.heap.virtualTime, a.virtualTime)
		a.virtualTime = g.heap.virtualTime + stride/uint64(a.weight)
		h.fix(i)
	}
	return m, false
}

// findInHeap returns m's place in the table's heaps; nil if it is in none. The caller holds the
// heap's lock.
func (g *Group) findInHeap(m *Member) (*heap, int) {
	t := g.table.Load()
	for _, h := range [2]*heap{t.primary.heap, t.backup.heap} {
		if h != nil && m.heapIndex < len(h.members) && h.members[m.heapIndex].m == m {
			return h, m.heapIndex
		}
	}
	return nil, 0
}

// release returns a slot of m and moves m to its new place in the heap.
func (k *heapLock) release(g *Group, m *Member) {
	if !k.inUse.Load() {
		m.active.Add(-1)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	m.active.Add(-1)
	if h, i := g.findInHeap(m); h != nil {
		h.fix(i)
	}
}

// fill builds the heap from shares, whose virtual times are in order. The caller holds k.mu.
func (h *heap) fill(k *heapLock, shares []weightedMember) {
	h.members = make([]heapMember, len(shares))
	for i, s := range shares {
		s.m.heapIndex = i
		h.members[i] = heapMember{weightedMember: s, active: int64(s.m.active.Load()), full: s.m.full(), virtualTime: k.virtualTime + uint64(i)}
	}
	for i := len(shares)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

// fix rereads the flows of the i-th member and restores the order.
func (h *heap) fix(i int) {
	a := &h.members[i]
	a.active, a.full = int64(a.m.active.Load()), a.m.full()
	h.down(h.up(i))
}

func (h *heap) up(i int) int {
	for i > 0 && h.members[i].before(&h.members[(i-1)/2]) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	return i
}

func (h *heap) down(i int) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(h.members); c++ {
			if h.members[c].before(&h.members[least]) {
				least = c
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}

func (h *heap) swap(i, j int) {
	h.members[i], h.members[j] = h.members[j], h.members[i]
	h.members[i].m.heapIndex, h.members[j].m.heapIndex = i, j
}
