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
	if !d.loop.Armed(f.slot) && d.deadline(f).cause != CauseNone {
		return &loop.Violation{Number: 9, What: "a deadline, and no timer"}
	}
	return nil
}
