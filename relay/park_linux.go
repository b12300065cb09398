package relay

import (
	"errors"
	"fmt"
)

// FlowRef identifies one flow and is never reused. Unlike a *Flow it may be kept
// after a hook has returned, and it may be compared.
type FlowRef struct {
	loop *loop
	ref  ref
}

// Ref returns a reference to the flow.
func (f *Flow) Ref() FlowRef {
	if s := f.session; s != nil {
		return FlowRef{f.loop, ref{s.index | sessionBit, s.gen}}
	}
	return FlowRef{f.loop, f.ref()}
}

// Queue, called in Hooks.Upstream of a stream, which then returns nil, queues the
// flow: nothing is read from its client, and [FlowRef.Resume] has the hook called
// again with the same attempt. The flow ends with [CauseQueueTimeout] when it has
// been queued for Timeouts.Queue in all, and with [CauseClientGone] when its client
// resets the connection. If the hook returns an address, Queue has no effect.
//
// Queue returns [ErrStage] in another hook and [errors.ErrUnsupported] for a
// datagram flow.
func (f *Flow) Queue() error {
	switch {
	case f.session != nil:
		return errNoQueue
	case f.state != flowChoosing && f.state != flowParked:
		return ErrStage
	}
	f.state = flowParked
	return nil
}

var errNoQueue = fmt.Errorf("relay: Queue of a datagram flow: %w", errors.ErrUnsupported)

// Resume calls Hooks.Upstream again for a flow that [Flow.Queue] has queued, soon
// and on the flow's loop. It may be called from any goroutine and in any hook. It
// does nothing if the flow is not queued.
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
