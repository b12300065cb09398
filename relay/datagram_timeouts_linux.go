package relay

// deadline returns when the flow has been idle for too long, or has lived for too
// long, or its client has not said enough in time.
func (d *datagrams) deadline(f *datagramFlow) deadline {
	dl := noDeadline
	if f.sniffed { // the hook is asked once more when its time is over, however short Idle is
		dl = deadline{d.sniffs[f.slot].until, CauseRefused}
	} else {
		dl.sooner(f.active, orDefault(f.timeouts.Idle, datagramIdle), CauseIdle)
	}
	dl.sooner(f.start, f.timeouts.Life, CauseLife)
	return dl
}

func (d *datagrams) rearm(f *datagramFlow) { d.loop.Arm(f.slot, d.deadline(f).at) }

func (d *datagrams) timeoutsChanged(f *Flow) { d.rearm(d.of(f)) }
