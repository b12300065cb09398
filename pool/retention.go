package pool

import "time"

// retention decides how many collections make one step of ageing. Objects leave with the
// second step.
//
// Usually that is one collection. But if collections follow each other within a
// millisecond, a goroutine that waits for a CPU meanwhile finds its objects gone and makes
// all of them again, each time. So the number doubles while a pool spends a large part of
// its time in New to replace objects that have just left, and decreases by one now and
// then while it does not. For a pool that was not used since the last collection the
// number is one, whatever it was before.
type retention struct {
	moreCycles   int    // collections of a step beyond the first
	quietCycles  int    // collections since moreCycles has changed
	recentlyAged uint64 // objects that aged lately

	// As of the last collection.
	calls uint64 // of Get and Put
	news  uint64
	at    time.Time
}

const (
	maxCycles = 16
	quietFor  = 8 // collections after which moreCycles decreases

	minNewTime   = 2 * time.Microsecond // a faster New does not matter
	newTimeShare = 8                    // one eighth of the time
)

// cyclesPerStep returns how many collections make one step, given the pool's statistics
// and the time spent in New since the last collection. It is called after each collection.
func (r *retention) cyclesPerStep(t tally, newTime int64, now time.Time) int {
	news, calls := t.news-r.news, t.calls()-r.calls
	passed := now.Sub(r.at)
	r.news, r.calls, r.at = t.news, r.calls+calls, now

	again := min(news, r.recentlyAged)
	costly := time.Duration(newTime) > max(passed/newTimeShare, time.Duration(news)*minNewTime)
	switch {
	case again > r.recentlyAged/8 && costly:
		r.moreCycles, r.quietCycles = min(2*r.moreCycles+1, maxCycles-1), 0
	case r.moreCycles > 0:
		if r.quietCycles++; r.quietCycles >= quietFor {
			r.moreCycles, r.quietCycles = r.moreCycles-1, 0
		}
	}
	r.recentlyAged -= again
	r.recentlyAged -= (r.recentlyAged + 7) / 8
	if calls == 0 {
		return 1
	}
	return 1 + r.moreCycles
}

// aged notes that n objects have aged.
func (r *retention) aged(n int) { r.recentlyAged += uint64(n) }

// needsNewTime reports whether the time of New matters.
func (r *retention) needsNewTime() bool { return r.recentlyAged > 0 }
