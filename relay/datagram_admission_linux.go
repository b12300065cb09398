package relay

import (
	"time"
)

// A flood of datagrams from ever new addresses must not take the time that a loop
// needs for the flows that it has. Beginning a flow takes thirty times as long as
// dropping a datagram. So new clients get what is left of a loop's time, and no more:
//
//   - The datagrams of flows leave before any flow begins: those of a batch, before
//     its new clients are looked at.
//   - While datagrams have to wait, flows begin only as fast as a part of the time
//     allows that the loop's other work has left. That is a budget in time, which is filled
//     up as time passes, and from which flows that begin take what that has taken.
//   - Half of the budget is for new clients of networks that are known, because clients
//     there have shown that their addresses are not forged, or had answers before the
//     flood. What one half does not need is the other's.
//   - That goes on for as long as there would be no time to begin all that ask. A loop that keeps up
//     because it refuses most of them would else begin them all once a second, and fall behind.
//   - When little is left in a half, a network gets the less the more flows it has begun
//     lately, so that all networks that want more than their share get the same.
//
// Whoever gets nothing is dropped as DropLimited, which costs a look at two tables.
// While no datagrams have to wait, nobody is.

const (
	// admissionDepth is how much time a half of the budget can hold.
	admissionDepth = 3 * time.Millisecond
	// admissionTurn bounds how long flows begin in one turn, while the budget does not.
	admissionTurn = time.Millisecond
	// Parts of the time that is left, which are for new flows: while the loop has flows to
	// protect, and if it has none; and the part of all time that is for them at least.
	admissionShare, admissionAlone, admissionLeast = 1.0 / 3, 0.9, 0.1
	// firstCost is taken for the cost of beginning a flow until some have begun.
	firstCost = 40 * time.Microsecond
	// Datagrams have to wait once every batch has been full for crowdedAfter and so many of
	// them came with these, and count as doing so for crowdedTime after a batch was full, or after more
	// clients asked than there was time for.
	// Time alone is no sign: a process that did not run for a while finds some full batches.
	crowdedAfter, crowdedLeast, crowdedTime = 20 * time.Millisecond, 8 * dgramBatch, time.Second
	// calmTime is how long after the last refusal an answer is a sign of an honest
	// client.
	calmTime = 10 * time.Second
	// equalUse is how many flows a network may have begun lately when half of a half is left.
	equalUse = 4
)

// admission decides which new clients of a loop begin flows.
type admission struct {
	networks networks
	off      bool // nobody is refused
	// budget has what is left for new clients of unknown networks, and for those of known ones.
	budget [2]time.Duration
	filled time.Duration // when it was filled up
	rate   float64       // how much of the time is for new flows
	cost   time.Duration // of beginning one
	begun  [2]int        // flows that have taken the cost from the budget, and not what it was yet
	// Batches have been full since, or 0, and brought so many messages; and datagrams count as waiting until.
	fullSince, crowded time.Duration
	full               int
	refused            time.Duration // when somebody was refused last; 0: never
	// The window in which the loop's other work is measured.
	began, busy, spent time.Duration
	missed             time.Duration // how long it would have taken to begin those that were refused
	other              float64       // part of the time that the other work took lately
}

func (a *admission) init(off bool) {
	*a = admission{off: off, cost: firstCost, rate: admissionShare}
	a.budget = [2]time.Duration{admissionDepth, admissionDepth}
}

// received notes how many messages a batch had.
func (a *admission) received(now time.Duration, n int) {
	if n < dgramBatch {
		a.fullSince, a.full = 0, 0
		return
	}
	if a.fullSince == 0 {
		a.fullSince = max(1, now)
	}
	a.full = min(a.full+n, crowdedLeast)
	if now < a.crowded || now-a.fullSince >= crowdedAfter && a.full >= crowdedLeast {
		a.crowded = now + crowdedTime
	}
}

// fill fills the budget up, at the time now of a loop that was busy for a time since it began. protect
// says that it has flows to protect from new ones.
func (a *admission) fill(now, busy time.Duration, protect bool) {
	if window := now - a.began; window >= tick {
		other := float64(busy-a.busy-a.spent) / float64(window)
		a.other += (min(max(other, 0), 1) - a.other) / 4
		share := admissionAlone
		if protect {
			share = admissionShare
		}
		left := 1 - a.other
		a.rate = max(left*share, admissionLeast)
		if now < a.crowded && float64(a.spent+a.missed) > left*admissionAlone*float64(window) {
			a.crowded = now + crowdedTime
		}
		a.began, a.busy, a.spent, a.missed = now, busy, 0, 0
	}
	more := time.Duration(float64(min(now-a.filled, time.Second)) * a.rate)
	a.filled = now
	for i, part := range [...]time.Duration{more / 2, more - more/2} {
		a.budget[i] += part
		if over := a.budget[i] - admissionDepth; over > 0 {
			a.budget[i] = admissionDepth
			a.budget[1-i] = min(a.budget[1-i]+over, admissionDepth)
		}
	}
}

// admit reports whether a new client may begin a flow, and takes its cost from the budget.
func (a *admission) admit(c place, now time.Duration) bool {
	use, known := a.networks.look(c, now)
	half := 0
	if known {
		half = 1
	}
	if !a.off && now < a.crowded && !affords(a.budget[half], use) {
		a.missed += a.cost
		a.refused = max(1, now)
		a.networks.countRefused(c, now)
		return false
	}
	a.budget[half] = max(a.budget[half]-a.cost, -admissionDepth)
	a.begun[half]++
	a.networks.count(c, now)
	return true
}

// more reports whether flows may go on to begin in a turn in which that has taken some time.
func (a *admission) more(now, beginning time.Duration) bool {
	return beginning < admissionTurn || !a.off && now < a.crowded
}

// affords reports whether so much of a half of the budget allows a flow of a network that has begun
// others.
func affords(budget time.Duration, use float32) bool {
	switch {
	case budget >= admissionDepth:
		return true
	case budget <= 0:
		return false
	}
	return use*float32(admissionDepth-budget) < equalUse*float32(budget)
}

// took notes how long it took to begin the flows that were admitted since the last call. If that is far
// from the usual, the process did not run for a part of it: then time is short for everybody, and so
// the flows take more from the budget. But they leave no debt that would take long to fill up.
func (a *admission) took(d time.Duration) {
	n := a.begun[0] + a.begun[1]
	if n == 0 {
		return
	}
	each := d / time.Duration(n)
	more := min(each, 8*a.cost) - a.cost
	for i := range a.budget {
		a.budget[i] = max(a.budget[i]-more*time.Duration(a.begun[i]), -admissionDepth)
	}
	a.spent += d
	a.begun = [2]int{}
	a.cost += (min(each, 2*a.cost+time.Microsecond) - a.cost) / 16
}

// pressed reports whether new clients were refused lately.
func (a *admission) pressed(now time.Duration) bool {
	return a.refused != 0 && now-a.refused < calmTime
}
