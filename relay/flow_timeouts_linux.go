package relay

import (
	"math"
	"time"
)

// Timeouts returns the flow's timeouts: those given to SetTimeouts, or else the
// listener's.
func (f *Flow) Timeouts() Timeouts {
	if f.timeouts == nil {
		return Timeouts{}
	}
	return *f.timeouts
}

// SetTimeouts sets the flow's timeouts. It may be called in every hook. A timeout that
// is already running counts from when it began, not from the call.
func (f *Flow) SetTimeouts(t Timeouts) {
	if *f.timeouts != t {
		f.timeouts = f.owner.base().shareTimeouts(&t)
	}
	f.owner.timeoutsChanged(f)
}

// shareTimeouts returns timeouts for a flow to point to. Flows that come one after the
// other mostly have the same.
func (t *tenant) shareTimeouts(want *Timeouts) *Timeouts {
	if t.timeouts == nil || *t.timeouts != *want {
		t.timeouts = new(Timeouts)
		*t.timeouts = *want
	}
	return t.timeouts
}

// after returns the time d after t, or the end of all time if that is sooner.
func after(t, d time.Duration) time.Duration {
	if t > 0 && d > math.MaxInt64-t {
		return math.MaxInt64
	}
	return t + d
}

// deadline is when a flow times out, and of what.
type deadline struct {
	at    time.Duration
	cause Cause // CauseNone: never
}

var noDeadline = deadline{at: never}

// sooner makes d the end of a timeout that runs since then, if that comes before d. A
// timeout of zero or less has no end.
func (d *deadline) sooner(since, timeout time.Duration, c Cause) {
	if end := after(since, timeout); timeout > 0 && end < d.at {
		d.at, d.cause = end, c
	}
}

// orDefault returns d, or def if d is 0.
func orDefault(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}
