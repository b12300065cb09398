package upstream

import "sync"

// leastConnections chooses the member with the fewest flows for its weight, from a heap.
type leastConnections struct {
	*heap // of the members that it was built for; only read unless it is state.current
	state *heapState
}

// heapState is shared with the balancers before and after. Critical sections take a few
// comparisons.
type heapState struct {
	mu          sync.Mutex
	current     *heap
	virtualTime uint64 // breaks ties
}

func newLeastConnections(c *candidates) balancer {
	b := &leastConnections{heap: &heap{}, state: &heapState{}}
	if old, ok := c.old.(*leastConnections); ok {
		b.state = old.state
	}
	b.state.mu.Lock()
	defer b.state.mu.Unlock()
	b.heap.fill(b.state.virtualTime, c.accepting())
	b.state.current = b.heap
	return b
}

func (b *leastConnections) seed(Client) uint64 { return 0 }

// pick reserves the top member or, if the lease cannot use it, the best one that it can.
func (b *leastConnections) pick(l *Lease) (m *Member, full bool) {
	if len(b.members) == 0 {
		return nil, false
	}
	b.state.mu.Lock()
	defer b.state.mu.Unlock()
	best := -1
	for i := range b.members {
		a := &b.members[i]
		if l.canUse(a.m) {
			if !a.m.full() && (best < 0 || a.before(&b.members[best])) {
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
	m = b.members[best].m
	if !m.reserve() {
		return nil, true
	}
	if h := b.state.current; h.has(m) {
		a := &h.members[m.heapIndex.Load()]
		b.state.virtualTime = max(b.state.virtualTime, a.virtualTime)
		a.virtualTime = b.state.virtualTime + stride/uint64(a.weight)
		h.fix(m)
	}
	return m, false
}

// released moves m to its new place in the heap.
func (b *leastConnections) released(m *Member) {
	b.state.mu.Lock()
	defer b.state.mu.Unlock()
	if b.state.current.has(m) {
		b.state.current.fix(m)
	}
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

// fill builds the heap from members, whose virtual times are in order from the given one.
func (h *heap) fill(virtualTime uint64, members []weightedMember) {
	h.members = make([]heapMember, len(members))
	for i, w := range members {
		w.m.heapIndex.Store(int32(i))
		h.members[i] = heapMember{weightedMember: w, active: int64(w.m.active.Load()), full: w.m.full(), virtualTime: virtualTime + uint64(i)}
	}
	for i := len(members)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

// has reports whether m is in the heap. Its heapIndex may be that of another heap.
func (h *heap) has(m *Member) bool {
	i := int(m.heapIndex.Load())
	return i < len(h.members) && h.members[i].m == m
}

// fix rereads the flows of m, which is in the heap, and restores the order.
func (h *heap) fix(m *Member) {
	i := int(m.heapIndex.Load())
	a := &h.members[i]
	a.active, a.full = int64(m.active.Load()), m.full()
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
	h.members[i].m.heapIndex.Store(int32(i))
	h.members[j].m.heapIndex.Store(int32(j))
}
