package relay

import "os"

// deadline returns when the flow times out.
func (f *streamFlow) deadline() deadline {
	if f.cause != CauseNone {
		return deadline{f.active + failedDrain, f.cause}
	}
	d, t := noDeadline, f.timeouts
	d.sooner(f.start, t.Life, CauseLife)
	switch f.state {
	case streamSniffing:
		d.sooner(f.since, f.early.patience, CauseRefused)
	case streamSecuring:
		d.sooner(f.since, orDefault(max(t.Handshake, 0), DefaultHandshakeTimeout), f.tls.failure())
	case streamReplying:
		d.sooner(f.since, orDefault(max(t.Connect, 0), DefaultConnectTimeout), CauseClientGone)
	case streamConnecting, streamAsking:
		d.sooner(f.since, orDefault(max(t.Connect, 0), DefaultConnectTimeout), CauseConnectTimeout)
	case streamQueued:
		d.sooner(f.since-f.queued, orDefault(t.Queue, DefaultQueueTimeout), CauseQueueTimeout)
	case streamRelaying:
		d.sooner(f.active, t.Idle, CauseIdle)
		// A built-in upstream has no half that could speak or close.
		if f.fd[sideUpstream] < 0 {
			break
		}
		if f.firstByte == 0 && !f.over(down) {
			d.sooner(f.start+f.connect, t.FirstByte, CauseFirstByte)
		}
		if f.over(up) || f.over(down) {
			d.sooner(f.active, orDefault(t.HalfClosed, DefaultHalfClosedTimeout), CauseHalfClosed)
		}
	}
	return d
}

// rearm sets the flow's timer to when it is due now, or has something to do
// before.
func (s *streams) rearm(f *streamFlow) {
	at := f.deadline().at
	switch {
	case f.throttled:
		at = s.loop.now
	case f.backlogFull:
		at = min(at, s.loop.now+tick)
	case f.state == streamRetrying:
		at = min(at, f.retryAt())
	case f.tls != nil && f.tls.undelivered > 0:
		at = min(at, s.loop.now+tick)
	}
	s.loop.arm(f.slot, at)
}

func (s *streams) timeoutsChanged(f *Flow) { s.rearm(s.of(f)) }

// due looks at a flow whose timer came up, which may be early.
func (s *streams) due(slot uint32) {
	f := s.slab.at(slot)
	gen := f.gen
	if f.throttled {
		s.unthrottle(f) // which may be what keeps it from being idle
		if !f.alive(gen) {
			return
		}
	}
	d := f.deadline()
	due := d.cause != CauseNone && d.at <= s.loop.seen
	switch {
	case f.tls != nil && f.tls.undelivered > 0:
		s.delivering(f, due)
	case !due && f.backlogFull:
		s.redial(f)
	case !due && f.state == streamRetrying && f.retryAt() <= s.loop.now:
		s.retry(f)
	case !due:
		s.rearm(f)
	case f.cause != CauseNone:
		s.end(f, f.cause, f.err)
	case f.state == streamSecuring && d.cause == f.tls.failure():
		s.handshakeFailed(f, os.ErrDeadlineExceeded)
	case d.cause == CauseClientGone:
		s.end(f, d.cause, os.ErrDeadlineExceeded) // it does not take its reply
	case d.cause == CauseRefused:
		s.show(f, true)
	case f.state == streamAsking && d.cause == CauseConnectTimeout:
		s.answerFailed(f, os.ErrDeadlineExceeded)
	case d.cause == CauseConnectTimeout:
		s.connectFailed(f, os.ErrDeadlineExceeded)
	default:
		s.end(f, d.cause, nil)
	}
}
