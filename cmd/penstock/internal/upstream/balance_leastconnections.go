package upstream

import (
	"math/rand/v2"
	"sync"
)

// leastConnections chooses the member with the fewest flows for its weight, from a heap.
type leastConnections struct {
	list  []weightedMember // that it was built for
	gone  []weightedMember // those of the balancer before that are not in list
	state *heapState
}

// heapState is shared with the balancers of the tier before and after: the heap has the members of the
// last one. Critical sections take a few comparisons, unless many members change at once.
type heapState struct {
	mu sync.Mutex
	heap
	virtualTime uint64 // breaks ties
}

func newLeastConnections(c *candidates) balancer {
	b := &leastConnections{state: c.state.heap}
	// Weights are always in the units of slow start, so that none changes when one begins.
	b.list = make([]weightedMember, 0, len(c.all))
	for _, w := range c.all {
		if w.m.acceptsFlows.Load() {
			b.list = append(b.list, weightedMember{w.m, w.weight * w.m.step()})
		}
	}
	old, _ := c.old.(*leastConnections)
	if b.state == nil {
		b.state = &heapState{}
		c.state.heap, old = b.state, nil
	}
	var was []weightedMember
	if old != nil {
		was = old.list
	}
	gone, changed := differenceOf(was, b.list, b.state)
	b.gone = gone
	b.state.mu.Lock()
	defer b.state.mu.Unlock()
	if old == nil || b.many(len(changed)) {
		b.state.fill(b.state.virtualTime, append(b.list[:len(b.list):len(b.list)], gone...))
		return b
	}
	for i, w := range changed {
		b.state.put(w, b.state.virtualTime+uint64(i))
	}
	return b
}

// many reports whether so many changes are made faster by building the heap anew.
func (b *leastConnections) many(changes int) bool { return changes > len(b.list)/4 }

// begin removes those members from the heap that the balancer before had: as long as its table was the group's,
// flows might have found them nowhere else.
func (b *leastConnections) begin() {
	b.state.mu.Lock()
	defer b.state.mu.Unlock()
	if b.many(len(b.gone)) {
		b.state.fill(b.state.virtualTime, b.list)
	} else {
		for _, w := range b.gone {
			b.state.remove(w.m)
		}
	}
	for _, w := range b.gone {
		if w.m.heaped == nil { // it is in no heap
			w.m.moved.Store(false)
		}
	}
	b.gone = nil
}

// differenceOf returns what a heap that has the members of one list needs to have those of another.
// The caller holds the Set's lock.
func differenceOf(was, list []weightedMember, h *heapState) (gone, changed []weightedMember) {
	for _, w := range was {
		w.m.marked = false
	}
	for _, w := range list {
		w.m.marked = true
		if w.m.heaped != h || w.m.heapWeight != w.weight {
			if w.m.heaped != nil && w.m.heaped != h {
				w.m.moved.Store(true)
			}
			w.m.heaped, w.m.heapWeight = h, w.weight
			changed = append(changed, w)
		}
	}
	for _, w := range was {
		if !w.m.marked {
			gone = append(gone, w)
			w.m.moved.Store(true) // until begin it may be in two heaps
			if w.m.heaped == h {
				w.m.heaped = nil
			}
		}
	}
	return gone, changed
}

func (b *leastConnections) seed(Client) uint64 { return rand.Uint64() }

// pick reserves the top member or, if the lease cannot use it, the best one that it can.
func (b *leastConnections) pick(l *Lease) (m *Member, full bool) {
	s := b.state
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		best := s.best(l, 0, -1)
		if best < 0 {
			return nil, false
		}
		a := &s.members[best]
		m = a.m
		switch {
		case a.full:
			return nil, true // as all that are not better
		case m.reserve():
			s.virtualTime = max(s.virtualTime, a.virtualTime)
			a.virtualTime = s.virtualTime + stride/uint64(a.weight)
			s.fix(best)
			if s.virtualTime >= 2*epoch {
				s.rewind()
			}
			return m, false
		}
		s.fix(best) // it is full by now
	}
}

// epoch is what rewind subtracts.
const epoch = 1 << 62

// rewind sets all virtual times back before they overflow, which keeps the order of the members.
func (s *heapState) rewind() {
	s.virtualTime -= epoch
	for i := range s.members {
		a := &s.members[i]
		a.virtualTime -= min(a.virtualTime, epoch)
	}
}

// released moves m to its new place in the heap.
func (s *heapState) released(m *Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.find(m); i >= 0 {
		s.fix(i)
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

// best returns the index of the best member that a lease can use, at or below i, if it is better than
// the one at index than; otherwise than. It looks only below members that the lease cannot use.
func (h *heap) best(l *Lease, i, than int) int {
	switch {
	case i >= len(h.members) || than >= 0 && !h.members[i].before(&h.members[than]):
		return than
	case l.canUse(h.members[i].m):
		return i
	}
	return h.best(l, 2*i+2, h.best(l, 2*i+1, than))
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

// put adds a member, or gives it another weight.
func (h *heap) put(w weightedMember, virtualTime uint64) {
	i := h.find(w.m)
	if i < 0 {
		i = len(h.members)
		w.m.heapIndex.Store(int32(i))
		h.members = append(h.members, heapMember{virtualTime: virtualTime})
	}
	h.members[i].weightedMember = w
	h.fix(i)
}

// remove removes a member, if the heap has it.
func (h *heap) remove(m *Member) {
	i := h.find(m)
	if i < 0 {
		return
	}
	last := len(h.members) - 1
	h.swap(i, last)
	h.members[last] = heapMember{}
	h.members = h.members[:last]
	if i < last {
		h.down(h.up(i))
	}
}

// find returns the index of m, or -1 if m is not in the heap. The heapIndex of a member that was moved
// from one tier to another may be that of the other heap.
func (h *heap) find(m *Member) int {
	if i := int(m.heapIndex.Load()); i < len(h.members) && h.members[i].m == m {
		return i
	}
	if !m.moved.Load() {
		return -1
	}
	for i := range h.members {
		if h.members[i].m == m {
			m.heapIndex.Store(int32(i))
			return i
		}
	}
	return -1
}

// fix rereads the flows of the member at an index, and restores the order.
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
	h.members[i].m.heapIndex.Store(int32(i))
	h.members[j].m.heapIndex.Store(int32(j))
}
