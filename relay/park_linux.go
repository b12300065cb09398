package relay

// FlowRef names a flow for as long as that lasts, and no other one ever. It can
// be kept and compared.
type FlowRef struct {
	loop *loop
	ref  ref
}

// Ref gives the flow's name.
func (f *Flow) Ref() FlowRef {
	if s := f.session; s != nil {
		return FlowRef{f.loop, ref{s.index | sessionBit, s.gen}}
	}
	return FlowRef{f.loop, f.ref()}
}

// Resume has Hooks.Upstream asked again for a flow that it told to [Wait], soon
// and on the flow's loop. Any goroutine and any hook may call it. It does
// nothing for a flow that does not wait.
func (r FlowRef) Resume() {
	if r.loop != nil && r.ref.index&sessionBit == 0 {
		r.loop.post(letter{kind: letterResume, ref: r.ref})
	}
}

// park has the flow wait for Resume.
func (l *loop) park(f *Flow) {
	f.state, f.since = flowParked, l.now
	if f.hungUp {
		l.end(f, CauseClientGone, nil)
		return
	}
	l.rearm(f)
}

// resume asks the hook of a parked flow again.
func (l *loop) resume(r ref) {
	f := l.slab.find(r)
	if f == nil || f.state != flowParked {
		return
	}
	f.state = flowConnecting
	f.queued += l.now - f.since
	l.connect(f)
}
