package loop

// Ref identifies a flow of a loop for as long as its slot is not used again.
type Ref struct{ Slot, Gen uint32 }

// Slots is a loop's table of flows. Chunks of slots belong to one handler each,
// which keeps in its slab what the slots stand for. Slots do not move.
type Slots struct {
	chunks []*slotChunk
	Live   int    // slots in use
	Base   uint32 // the generation that new slots begin with: even, and above that of all flows of an earlier process
}

// ChunkSize is how many slots a chunk has.
const ChunkSize = 64

// slotChunk has the generations of its slots, which tell the flows of one slot
// apart: whoever still refers to one that has ended finds nothing. A generation
// begins with each flow, which has an odd one, and with its end.
type slotChunk struct {
	owner Handler
	gens  [ChunkSize]uint32
}

// add makes a chunk of free slots for owner and returns its number.
func (t *Slots) add(owner Handler) int {
	c := &slotChunk{owner: owner}
	for i := range c.gens {
		c.gens[i] = t.Base
	}
	t.chunks = append(t.chunks, c)
	return len(t.chunks) - 1
}

// gen is the generation of slot i.
func (t *Slots) gen(i uint32) *uint32 { return &t.chunks[i/ChunkSize].gens[i%ChunkSize] }

// InUse reports whether a generation is that of a flow, rather than of a free slot.
func InUse(gen uint32) bool { return gen%2 == 1 }

// Len returns the number of slots, free ones included.
func (t *Slots) Len() uint32 { return uint32(len(t.chunks) * ChunkSize) }

// Owner returns whose flow is in slot i, or nil if the slot is free.
func (t *Slots) Owner(i uint32) Handler {
	if c := t.chunks[i/ChunkSize]; InUse(c.gens[i%ChunkSize]) {
		return c.owner
	}
	return nil
}

// Find returns the owner of the flow that r identifies, or nil if it has ended.
func (t *Slots) Find(r Ref) Handler {
	if r.Slot >= t.Len() {
		return nil
	}
	c := t.chunks[r.Slot/ChunkSize]
	if c.gens[r.Slot%ChunkSize] != r.Gen || !InUse(r.Gen) {
		return nil
	}
	return c.owner
}
