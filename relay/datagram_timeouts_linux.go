package relay

// deadline returns when the flow has been idle for too long, or has lived for too
// long, or its client has not said enough in time.
func (d *datagrams) deadline(f *datagramFlow) deadline {
	dl := noDeadline
	dl.sooner(f.active, orDefault(f.timeouts.Idle, DefaultDatagramIdle), CauseIdle)
	dl.sooner(f.start, f.timeouts.Life, CauseLife)
	if f.sniffed {
		if s := d.sniffs[f.slot]; s.until < dl.at {
			dl = deadline{s.until, CauseRefused}
		}
	}
	return dl
}

func (d *datagrams) rearm(f *datagramFlow) { d.loop.Arm(f.slot, d.deadline(f).at) }

func (d *datagrams) timeoutsChanged(f *Flow) { d.rearm(d.of(f)) }
