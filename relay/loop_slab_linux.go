package relay

import "slices"

// slab holds the flows of one handler, each at its slot of the loop's table, in
// chunks that never move. A slot is used again when its flow has ended.
type slab[T any] struct {
	slots  *slots
	owner  handler
	chunks [][]T    // by the chunk's number in slots; nil: another handler's
	free   []uint32 // slots, of which the last is the next to be used
	live   int
}

// take returns an unused flow, which is zero, and what identifies it from now on.
func (s *slab[T]) take() (*T, ref) {
	if len(s.free) == 0 {
		s.grow()
	}
	last := len(s.free) - 1
	i := s.free[last]
	s.free = s.free[:last]
	gen := s.slots.gen(i)
	*gen++
	s.live++
	s.slots.live++
	return s.at(i), ref{i, *gen}
}

// reserve takes free slots, in ascending order, out of those that take gives away, for a later takeAt.
func (s *slab[T]) reserve(slots []uint32) {
	s.free = slices.DeleteFunc(s.free, func(i uint32) bool {
		_, found := slices.BinarySearch(slots, i)
		return found
	})
}

// takeAt takes the flow of a reserved slot, with a given generation, which is odd. It returns nil if the
// slot is not the owner's, or in use.
func (s *slab[T]) takeAt(r ref) *T {
	if r.slot >= s.slots.len() || s.slots.chunks[r.slot/slotChunkSize].owner != s.owner || inUse(*s.slots.gen(r.slot)) {
		return nil
	}
	*s.slots.gen(r.slot) = r.gen
	s.live++
	s.slots.live++
	return s.at(r.slot)
}

// grow adds a chunk.
func (s *slab[T]) grow() {
	n := s.slots.add(s.owner)
	for len(s.chunks) < n {
		s.chunks = append(s.chunks, nil)
	}
	s.chunks = append(s.chunks, make([]T, slotChunkSize))
	for i := range uint32(slotChunkSize) {
		s.free = append(s.free, uint32(n+1)*slotChunkSize-1-i)
	}
}

// put takes the flow of a slot back. Refs to it find nothing from now on.
func (s *slab[T]) put(i uint32) {
	var zero T
	*s.at(i) = zero
	*s.slots.gen(i)++
	s.free = append(s.free, i)
	s.live--
	s.slots.live--
}

func (s *slab[T]) at(i uint32) *T { return &s.chunks[i/slotChunkSize][i%slotChunkSize] }

// find returns the flow that r identifies, or nil if it has ended.
func (s *slab[T]) find(r ref) *T {
	if s.slots.find(r) != s.owner {
		return nil
	}
	return s.at(r.slot)
}

// each calls do with every flow. do may end the flow.
func (s *slab[T]) each(do func(f *T)) {
	for n, c := range s.chunks {
		for k := range c {
			if inUse(*s.slots.gen(uint32(n*slotChunkSize + k))) {
				do(&c[k])
			}
		}
	}
}
