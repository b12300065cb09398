package ledger

import "github.com/penstock/penstock/internal/sys"

// What a half moved before the system call that its phase stands for. While the phase is not PhaseNone,
// this counts, and not what the record says.

// SetCounts stores what the half has taken from its source, and what its destination has accepted. It is
// called before Set.
func (t Turn) SetCounts(in, out int64) {
	sys.Store64(t.p[16:], uint64(in))
	sys.Store64(t.p[24:], uint64(out))
}

// Counts returns what SetCounts has stored.
func (t Turn) Counts() (in, out int64) {
	return int64(sys.Load64(t.p[16:])), int64(sys.Load64(t.p[24:]))
}

// SetSpliced stores what a half has spliced before a call for which PhaseEmptying stands. It is called before
// Set.
func (t Turn) SetSpliced(v int64) { sys.Store64(t.p[splicedAt:], uint64(v)) }

// Spliced returns what SetSpliced has stored.
func (t Turn) Spliced() int64 { return int64(sys.Load64(t.p[splicedAt:])) }

// SetCounted stores which bytes of a half of the flow the loop's counters include. Begin forgets that.
func (t Turn) SetCounted(half uint8, in, out, spliced int64) {
	sys.Store64(t.p[32:], uint64(in))
	sys.Store64(t.p[40:], uint64(out))
	sys.Store64(t.p[48:], uint64(spliced))
	sys.Store32(t.p[60:], uint32(half)+1)
}

// Counted returns what SetCounted has stored. It reports false if that was not about this half.
func (t Turn) Counted(half uint8) (in, out, spliced int64, ok bool) {
	return int64(sys.Load64(t.p[32:])), int64(sys.Load64(t.p[40:])), int64(sys.Load64(t.p[48:])), sys.Load32(t.p[60:]) == uint32(half)+1
}

// Newest returns what SetNewest has stored.
func (t Turn) Newest() uint32 { return sys.Load32(t.p[56:]) }

// SetNewest stores the highest generation that a slot of the loop has had, of flows without a record too,
// so that the next process gives none of them to another flow.
func (t Turn) SetNewest(v uint32) { sys.Store32(t.p[56:], v) }
