package relay

import (
	"math"
	"os"
	"time"
)

// Timeouts returns the flow's timeouts: those given to SetTimeouts, or else the
// listener's.
func (f *Flow) Timeouts() Timeouts {
	if s := f.session; s != nil {
		return Timeouts{Idle: s.idle, Life: s.life}
	}
	if f.timeouts == nil {
		return Timeouts{}
	}
	return *f.timeouts
}

// SetTimeouts sets the flow's timeouts. It may be called in every hook. A timeout that
// is already running counts from when it began, not from the call.
func (f *Flow) SetTimeouts(t Timeouts) {
	if s := f.session; s != nil {
		s.idle, s.life = t.Idle, t.Life
		f.loop.dgrams.rearm(s)
		return
	}
	if *f.timeouts != t {
		f.timeouts = f.loop.share(&t)
	}
	f.loop.rearm(f)
}

// share returns t for a flow to point to. Flows that come one after the other
// mostly have the same.
func (l *loop) share(t *Timeouts) *Timeouts {
	if l.shared == nil || *l.shared != *t {
		l.shared = new(Timeouts)
		*l.shared = *t
	}
	return l.shared
}

// due tells when the flow times out and of what; CauseNone: never.
func (f *Flow) due() (at time.Duration, c Cause) {
	t := f.timeouts
	at = math.MaxInt64
	sooner := func(since, d time.Duration, cause Cause) {
		if end := after(since, d); d > 0 && end < at {
			at, c = end, cause
		}
	}
	if f.cause != CauseNone {
		return f.active + lastWords, f.cause
	}
	sooner(f.start, t.Life, CauseLife)
	switch f.state {
	case flowSniffing:
		sooner(f.since, f.extra.patience, CauseRefused)
	case flowConnecting:
		sooner(f.since, or(max(t.Connect, 0), DefaultConnectTimeout), CauseConnectTimeout)
	case flowParked:
		sooner(f.since-f.queued, or(t.Queue, DefaultQueueTimeout), CauseQueueTimeout)
	case flowRelaying:
		sooner(f.active, t.Idle, CauseIdle)
		// A built-in upstream has no half that could speak or close.
		if f.fd[sideB] < 0 {
			break
		}
		if f.firstByte == 0 && !f.over(sideB) {
			sooner(f.start+f.connect, t.FirstByte, CauseFirstByte)
		}
		if f.over(sideA) || f.over(sideB) {
			sooner(f.active, or(t.HalfClosed, DefaultHalfClosedTimeout), CauseHalfClosed)
		}
	}
	return at, c
}

// or gives d, or what stands for it if it is 0.
func or(d, zero time.Duration) time.Duration {
	if d == 0 {
		return zero
	}
	return d
}

// rearm sets the flow's timer to when it is due now, or has something to do
// before.
func (l *loop) rearm(f *Flow) {
	at, c := f.due()
	switch {
	case f.resting:
		at = l.now
	case f.again:
		at = min(at, l.now+tick)
	case f.state == flowRetrying:
		at = min(at, f.retryAt())
	case c == CauseNone:
		l.wheel.remove(f.index)
		return
	}
	l.wheel.add(f.index, tickAt(at))
}

// expire looks at a flow whose timer came up, which may be early.
func (l *loop) expire(f *Flow) {
	gen := f.gen
	if f.resting {
		l.rested(f) // which may be what keeps it from being idle
		if !f.alive(gen) {
			return
		}
	}
	at, c := f.due()
	due := c != CauseNone && at <= l.seen
	switch {
	case !due && f.again:
		l.redial(f)
	case !due && f.state == flowRetrying && f.retryAt() <= l.now:
		l.retry(f)
	case !due:
		l.rearm(f)
	case f.cause != CauseNone:
		l.end(f, f.cause, f.err)
	case c == CauseRefused:
		l.show(f, true)
	case c == CauseConnectTimeout:
		l.connectFailed(f, os.ErrDeadlineExceeded)
	default:
		l.end(f, c, nil)
	}
}
