package relay

// The ID of a flow has its loop, its slot and the slot's generation, in one of three sizes, which the lowest bits
// name:
//
//	generation | slot | loop | size
//
// In low slots of the first loops, where most flows are, it takes a few digits. The largest size has room for every flow. No ID
// is 0: of the size that is written as 0, loop or slot is not.
type idSize struct {
	size               uint64
	sizeBits           int
	loopBits, slotBits int
}

// idSizes is in the order in which they are tried. docs/design/2026-11-25-flow-ids.md says why these.
var idSizes = [...]idSize{
	{0b01, 2, 3, 6},
	{0b11, 2, 6, 14},
	{0b0, 1, 8, 24},
}

// flowID returns the ID of a flow. Its generation is odd, and the lowest bit is left out.
func flowID(loop int, r ref) uint64 {
	s := &idSizes[len(idSizes)-1]
	for i := range idSizes {
		if loop>>idSizes[i].loopBits == 0 && r.Slot>>idSizes[i].slotBits == 0 {
			s = &idSizes[i]
			break
		}
	}
	id := uint64(r.Gen >> 1)
	id = id<<s.slotBits | uint64(r.Slot)&(1<<s.slotBits-1)
	id = id<<s.loopBits | uint64(loop)
	return id<<s.sizeBits | s.size
}

// splitFlowID returns what a flow with the given ID has. It reports false if no flow can have it.
func splitFlowID(id uint64) (loop int, r ref, ok bool) {
	for i := range idSizes {
		s := &idSizes[i]
		if id&(1<<s.sizeBits-1) != s.size {
			continue
		}
		rest := id >> s.sizeBits
		loop = int(rest & (1<<s.loopBits - 1))
		rest >>= s.loopBits
		r = ref{Slot: uint32(rest & (1<<s.slotBits - 1)), Gen: uint32(rest>>s.slotBits)<<1 | 1}
		break
	}
	return loop, r, flowID(loop, r) == id
}
