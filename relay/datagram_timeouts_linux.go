package relay

// deadline returns when the flow has been idle for too long, or has lived for too
// long.
func (f *datagramFlow) deadline() deadline {
	d := noDeadline
	d.sooner(f.active, orDefault(f.timeouts.Idle, DefaultDatagramIdle), CauseIdle)
	d.sooner(f.start, f.timeouts.Life, CauseLife)
	return d
}

func (d *datagrams) rearm(f *datagramFlow) { d.loop.arm(f.slot, f.deadline().at) }

func (d *datagrams) timeoutsChanged(f *Flow) { d.rearm(d.of(f)) }

// due looks at a flow whose timer came up, which may be early.
func (d *datagrams) due(slot uint32) {
	f := d.slab.at(slot)
	if dl := f.deadline(); dl.cause != CauseNone && dl.at <= d.loop.seen {
		d.end(f, dl.cause, nil)
		return
	}
	if f.verified {
		d.knows(f) // still
	}
	d.rearm(f)
}
