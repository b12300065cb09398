package pool

import "time"

// A regret tells how many collections make one step of ageing: objects leave with
// the second step.
//
// One is the rule. But where collections follow each other within a millisecond,
// a goroutine that waits for a CPU meanwhile finds its objects gone, and makes
// them all anew, again and again. So a pool that spends a good part of the time
// in New, for what it let go just before, doubles its patience; while it does
// not, it loses patience one by one. A pool that nobody used since the last
// collection has none: there objects leave at the second collection, whatever
// was before.
type regret struct {
	more int // patience beyond the one collection
	calm int // collections since that changed

	let uint64 // objects that left of age lately

	// As of the last collection.
	calls uint64 // of Get and Put
	news  uint64
	at    time.Time
}

const (
	maxPatience = 16
	calmFor     = 8 // collections without regret that cost one of patience

	costlyNew   = 2 * time.Microsecond // New is not worth any patience below
	costlyShare = 8                    // of the time: an eighth
)

// patience returns how many collections make one step now, given the pool's
// numbers and how long New took since the last collection. It is called once a
// collection.
func (r *regret) patience(t tally, newTime int64, now time.Time) int {
	news, calls := t.news-r.news, t.calls()-r.calls
	passed := now.Sub(r.at)
	r.news, r.calls, r.at = t.news, r.calls+calls, now

	again := min(news, r.let)
	costly := time.Duration(newTime) > max(passed/costlyShare, time.Duration(news)*costlyNew)
	switch {
	case again > r.let/8 && costly:
		r.more, r.calm = min(2*r.more+1, maxPatience-1), 0
	case r.more > 0:
		if r.calm++; r.calm >= calmFor {
			r.more, r.calm = r.more-1, 0
		}
	}
	r.let -= again
	r.let -= (r.let + 7) / 8
	if calls == 0 {
		return 1
	}
	return 1 + r.more
}

// dropped notes that n objects left of age.
func (r *regret) dropped(n int) { r.let += uint64(n) }

// watch reports whether it matters how long New takes.
func (r *regret) watch() bool { return r.let > 0 }
