package relay

// deadline returns when the flow has been idle for too long, or has lived for too
// long.
func (f *datagramFlow) deadline() deadline {
	d := noDeadline
	d.sooner(f.active, orDefault(f.timeouts.Idle, DefaultDatagramIdle), CauseIdle)
	d.sooner(f.start, f.timeouts.Life, CauseLife)
	if f.sniff != nil {
		d.sooner(f.start, f.sniff.patience, CauseRefused)
	}
	return d
}

func (d *datagrams) rearm(f *datagramFlow) { d.loop.Arm(f.slot, f.deadline().at) }

func (d *datagrams) timeoutsChanged(f *Flow) { d.rearm(d.of(f)) }
