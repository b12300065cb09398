package ledger

import "github.com/penstock/penstock/internal/sys"

// Turn is the note of what a loop does now. It names the flow whose code runs, and, of a stream, the half
// and what it has in its hands.
type Turn struct{ p *[turnSize]byte }

// Phase is what a half does in its turn.
type Phase uint8

// The phases. n is that of [Turn.Set].
const (
	PhaseNone Phase = iota
	// PhaseReading: the scratch buffer is being read into. Of the read that goes on, nothing was sent.
	PhaseReading
	// PhaseRead: n bytes were read into the scratch buffer, and are being sent.
	PhaseRead
	// PhaseDraining: up to n bytes are being moved from the pipe to the scratch buffer.
	PhaseDraining
	// PhaseFlushing: the record's block is being sent.
	PhaseFlushing
	// PhaseFilling: bytes are being moved from the source to the pipe.
	PhaseFilling
	// PhaseEmptying: bytes are being moved from the pipe to the destination.
	PhaseEmptying
)

// Note is what a turn note says.
type Note struct {
	Slot, Generation uint32 // of the flow whose code runs; generation 0: none
	Half             uint8
	Phase            Phase
	N                int
}

// Begin names the flow whose code runs now, which has nothing in its hands. Generation 0 means none.
//
// Neither Begin nor Set may be inlined: of two stores to the same word the compiler drops the first, if
// there is no call between them, and moves what was between them out of its protection.
//
//go:noinline
func (t Turn) Begin(slot, generation uint32) {
	sys.Store64(t.p[8:], 0)
	sys.Store32(t.p[60:], 0) // see SetCounted
	sys.Store64(t.p[0:], uint64(generation)<<32|uint64(slot))
}

// End says that no flow's code runs.
func (t Turn) End() { t.Begin(0, 0) }

// Set notes what a half has in its hands; it is one store. The flow stays that of Begin.
//
//go:noinline
func (t Turn) Set(half uint8, phase Phase, n int) {
	sys.Store64(t.p[8:], uint64(uint32(n))<<32|uint64(phase)<<8|uint64(half))
}

// Note returns what the note says.
func (t Turn) Note() Note {
	flow, hands := sys.Load64(t.p[0:]), sys.Load64(t.p[8:])
	return Note{
		Slot: uint32(flow), Generation: uint32(flow >> 32),
		Half: uint8(hands) & 1, Phase: Phase(hands >> 8), N: int(int32(hands >> 32)),
	}
}

// The places of the messages in the note, and of what SetSpliced stores.
const (
	readAt    = 64
	writeAt   = 192
	splicedAt = 320
)

// ReadMessage returns the header for receives of a flow whose progress the kernel notes, and WriteMessage
// that for its sends. Both are valid until Close; a caller keeps them, because each call checks anew.
func (t Turn) ReadMessage() *sys.Message { return sys.Cast[sys.Message](t.p[readAt:writeAt]) }

// WriteMessage is described at ReadMessage.
func (t Turn) WriteMessage() *sys.Message { return sys.Cast[sys.Message](t.p[writeAt : writeAt+128]) }
