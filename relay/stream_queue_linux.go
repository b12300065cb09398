package relay

import (
	"errors"
	"fmt"
)

// enqueue queues the flow until Resume is called.
func (s *streams) enqueue(f *streamFlow) {
	f.state, f.since = streamQueued, s.loop.Now
	if f.hungUp {
		s.end(f, CauseClientGone, nil)
		return
	}
	s.rearm(f)
}

// Queue, called in Hooks.Upstream of a stream, which then returns nil, queues the
// flow: nothing is read from its client, and [FlowRef.Resume] calls the hook
// again with the same attempt. The flow ends with [CauseQueueTimeout] when it has
// been queued for Timeouts.Queue in all, and with [CauseClientGone] when its client
// resets the connection. If the hook returns an address, Queue has no effect.
//
// Queue returns [ErrStage] in another hook and [errors.ErrUnsupported] for a
// datagram flow.
func (f *Flow) Queue() error {
	s, ok := f.owner.(*streams)
	if !ok {
		return errNoQueue
	}
	sf := s.of(f)
	if sf.state != streamChoosing && sf.state != streamQueued {
		return sf.stage("Queue", "Hooks.Upstream")
	}
	sf.state = streamQueued
	return nil
}

var errNoQueue = fmt.Errorf("relay: Queue of a datagram flow: %w", errors.ErrUnsupported)

// resume calls the hook of a queued flow again.
func (s *streams) resume(r ref) {
	f := s.slab.Find(r)
	if f == nil || f.state != streamQueued {
		return
	}
	f.state = streamConnecting
	f.queued += s.loop.Now - f.since
	s.connect(f)
}
