package relay

import "time"

const (
	// retryFirst is the pause before the first attempt to connect that does not follow at once. Each is
	// twice as long as the one before, up to retryMost.
	retryFirst = tick
	retryMost  = time.Second
)

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
		d.sooner(f.since, orDefault(max(t.Handshake, 0), defaultHandshake), f.tls.failure())
	case streamReplying:
		d.sooner(f.since, orDefault(max(t.Connect, 0), defaultConnect), CauseClientGone)
	case streamConnecting, streamAsking:
		d.sooner(f.since, orDefault(max(t.Connect, 0), defaultConnect), CauseConnectTimeout)
	case streamQueued:
		d.sooner(f.since-f.queued, orDefault(t.Queue, defaultQueue), CauseQueueTimeout)
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
			d.sooner(f.active, orDefault(t.HalfClosed, defaultHalfClosed), CauseHalfClosed)
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
		at = s.loop.Now
	case f.backlogFull:
		at = min(at, s.loop.Now+tick)
	case f.state == streamRetrying:
		at = min(at, f.retryAt())
	case s.delivers(f):
		at = min(at, s.loop.Now+tick)
	}
	s.loop.Arm(f.slot, at)
}

// retryAt returns when the pause before the next attempt is over.
func (f *streamFlow) retryAt() time.Duration {
	return f.since + min(retryFirst<<(f.attempts-attemptsAtOnce), retryMost)
}

func (s *streams) timeoutsChanged(f *Flow) { s.rearm(s.of(f)) }
