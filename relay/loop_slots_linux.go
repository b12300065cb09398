package relay

// ref identifies a flow of a loop for as long as its slot is not used again.
type ref struct{ slot, gen uint32 }

// slots is a loop's table of flows. Chunks of slots belong to one handler each,
// which keeps in its slab what the slots stand for. Slots do not move.
type slots struct {
	chunks []*slotChunk
	live   int    // slots in use
	base   uint32 // the generation that new slots begin with: even, and above that of all flows of an earlier process
}

const slotChunkSize = 64

// slotChunk has the generations of its slots, which tell the flows of one slot
// apart: whoever still refers to one that has ended finds nothing. A generation
// begins with each flow, which has an odd one, and with its end.
type slotChunk struct {
	owner handler
	gens  [slotChunkSize]uint32
}

// add makes a chunk of free slots for owner and returns its number.
func (t *slots) add(owner handler) int {
	c := &slotChunk{owner: owner}
	for i := range c.gens {
		c.gens[i] = t.base
	}
	t.chunks = append(t.chunks, c)
	return len(t.chunks) - 1
}

// gen is the generation of slot i.
func (t *slots) gen(i uint32) *uint32 { return &t.chunks[i/slotChunkSize].gens[i%slotChunkSize] }

func inUse(gen uint32) bool { return gen%2 == 1 }

// len returns the number of slots, free ones included.
func (t *slots) len() uint32 { return uint32(len(t.chunks) * slotChunkSize) }

// owner returns whose flow is in slot i, or nil if the slot is free.
func (t *slots) owner(i uint32) handler {
	if c := t.chunks[i/slotChunkSize]; inUse(c.gens[i%slotChunkSize]) {
		return c.owner
	}
	return nil
}

// find returns the owner of the flow that r identifies, or nil if it has ended.
func (t *slots) find(r ref) handler {
	if r.slot >= t.len() {
		return nil
	}
	c := t.chunks[r.slot/slotChunkSize]
	if c.gens[r.slot%slotChunkSize] != r.gen || !inUse(r.gen) {
		return nil
	}
	return c.owner
}
