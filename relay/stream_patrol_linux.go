package relay

import (
	"fmt"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/pump"
)

// Inspect ends a flow that nothing would look at again, which is an error of this package's: one flow less, and a record that tells
// which, are better than sockets that nobody ever closes. It is behind Turn as Due is.
func (s *streams) Inspect(slot uint32) {
	f := s.slab.At(slot)
	v := s.violation(f)
	if v == nil {
		return
	}
	s.end(f, CauseInternal, v)
	if s.keep != nil {
		s.keep.turn.End()
	}
}

// violation returns what makes a flow between two turns one that is never looked at again, or that has lost what it needs to go on; nil
// if nothing does. A flow that is kept and has no record is none of these: it goes on until the process ends, and only tests ask for it.
func (s *streams) violation(f *streamFlow) *loop.Violation {
	armed := s.loop.Armed(f.slot)
	switch {
	// What the deadline of a state is made of.
	case f.state == streamSecuring && f.tls == nil:
		return &loop.Violation{Number: 54, What: "a handshake without TLS"}
	case f.state == streamSniffing && f.early == nil:
		return &loop.Violation{Number: 12, What: "it is sniffed, and nobody knows for how long"}
	// One that begins again when all flows are restored has its timer from then on.
	case !armed && f.state != streamRestored && f.deadline().cause != CauseNone:
		return &loop.Violation{Number: 9, What: "a deadline, and no timer"}
	case !armed && (f.throttled || f.backlogFull || f.state == streamRetrying):
		return &loop.Violation{Number: 9, What: "it waits for a tick, and has no timer"}
	case f.inReady && s.ready.len() == 0 || f.inLagging && s.lagging.len() == 0:
		return &loop.Violation{Number: 9, What: "it waits in a queue that is empty"}
	}
	switch f.state {
	case streamAdmitting, streamChoosing:
		return &loop.Violation{Number: 12, What: "a hook is asked between two turns"}
	case streamRestored:
		if s.restored.len() == 0 {
			return &loop.Violation{Number: 9, What: "it was restored, and nobody begins it"}
		}
	case streamShort:
		if s.short.flows.len() == 0 {
			return &loop.Violation{Number: 9, What: "it waits for a descriptor, and nobody knows"}
		}
	case streamRelaying:
		return s.relayingViolation(f)
	}
	return nil
}

func (s *streams) relayingViolation(f *streamFlow) *loop.Violation {
	for h := range f.half {
		if f.wait[h] == pump.Again && !f.inReady && !f.throttled {
			return &loop.Violation{Number: 9, What: fmt.Sprintf("direction %d could go on, and is in no queue", h)}
		}
		if f.muted[h] && f.wait[h] == pump.WantRead {
			return &loop.Violation{Number: 9, What: fmt.Sprintf("direction %d waits for its source, which is not watched", h)}
		}
	}
	if f.over(up) && f.over(down) && f.cause == CauseNone && (f.tls == nil || f.tls.undelivered == 0) {
		return &loop.Violation{Number: 14, What: "both directions have ended, and the flow has not"}
	}
	return nil
}
