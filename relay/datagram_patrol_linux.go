package relay

import "github.com/penstock/penstock/internal/loop"

// Inspect ends a flow that would never end. See the same of streams.
func (d *datagrams) Inspect(slot uint32) {
	f := d.slab.At(slot)
	if v := d.violation(f); v != nil {
		d.end(f, CauseInternal, v)
		d.noteAll()
	}
}

func (d *datagrams) violation(f *datagramFlow) *loop.Violation {
	if f.sniffed && d.sniffs[f.slot] == nil {
		return &loop.Violation{Number: 40, What: "it is sniffed, and nobody knows for how long"}
	}
	if !d.loop.Armed(f.slot) && d.deadline(f).cause != CauseNone {
		return &loop.Violation{Number: 9, What: "a deadline, and no timer"}
	}
	return nil
}
