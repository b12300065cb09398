package loop

import "slices"

// Slab holds the flows of one handler, each at its slot of the loop's table, in
// chunks that never move. A slot is used again when its flow has ended.
type Slab[T any] struct {
	slots  *Slots
	owner  Handler
	chunks [][]T    // by the chunk's number in slots; nil: another handler's
	free   []uint32 // slots, of which the last is the next to be used
	Live   int      // flows
}

// Init makes the slab of a handler that has slots in a table.
func (s *Slab[T]) Init(slots *Slots, owner Handler) { s.slots, s.owner = slots, owner }

// Take returns an unused flow, which is zero, and what identifies it from now on.
func (s *Slab[T]) Take() (*T, Ref) {
	if len(s.free) == 0 {
		s.Grow()
	}
	last := len(s.free) - 1
	i := s.free[last]
	s.free = s.free[:last]
	gen := s.slots.gen(i)
	*gen++
	s.Live++
	s.slots.Live++
	return s.At(i), Ref{i, *gen}
}

// Reserve takes free slots, in ascending order, out of those that Take gives away, for a later TakeAt.
func (s *Slab[T]) Reserve(slots []uint32) {
	s.free = slices.DeleteFunc(s.free, func(i uint32) bool {
		_, found := slices.BinarySearch(slots, i)
		return found
	})
}

// TakeAt takes the flow of a reserved slot, with a given generation, which is odd. It returns nil if the
// slot is not the owner's, or in use.
func (s *Slab[T]) TakeAt(r Ref) *T {
	if r.Slot >= s.slots.Len() || s.slots.chunks[r.Slot/ChunkSize].owner != s.owner || InUse(*s.slots.gen(r.Slot)) {
		return nil
	}
	*s.slots.gen(r.Slot) = r.Gen
	s.Live++
	s.slots.Live++
	return s.At(r.Slot)
}

// Grow adds a chunk.
func (s *Slab[T]) Grow() {
	n := s.slots.add(s.owner)
	for len(s.chunks) < n {
		s.chunks = append(s.chunks, nil)
	}
	s.chunks = append(s.chunks, make([]T, ChunkSize))
	for i := range uint32(ChunkSize) {
		s.free = append(s.free, uint32(n+1)*ChunkSize-1-i)
	}
}

// Put takes the flow of a slot back. Refs to it find nothing from now on.
func (s *Slab[T]) Put(i uint32) {
	var zero T
	*s.At(i) = zero
	*s.slots.gen(i)++
	s.free = append(s.free, i)
	s.Live--
	s.slots.Live--
}

// At returns the flow of a slot, which is in use.
func (s *Slab[T]) At(i uint32) *T { return &s.chunks[i/ChunkSize][i%ChunkSize] }

// Find returns the flow that r identifies, or nil if it has ended.
func (s *Slab[T]) Find(r Ref) *T {
	if s.slots.Find(r) != s.owner {
		return nil
	}
	return s.At(r.Slot)
}

// Each calls do with every flow. do may end the flow.
func (s *Slab[T]) Each(do func(f *T)) {
	for n, c := range s.chunks {
		for k := range c {
			if InUse(*s.slots.gen(uint32(n*ChunkSize + k))) {
				do(&c[k])
			}
		}
	}
}
