package flood

import (
	"time"

	"github.com/penstock/penstock/internal/sys"
)

const (
	// Depth is how much time a half of the budget can hold.
	Depth = 3 * time.Millisecond
	// turnMost bounds how long flows begin in one turn, while the budget does not.
	turnMost = time.Millisecond
	// Parts of the time that is left, which are for new flows: while the loop has flows to
	// protect, and if it has none; and the part of all time that is for them at least.
	shareProtecting, shareAlone, shareLeast = 1.0 / 3, 0.9, 0.1
	// measureWindow is for how long the loop's other work is measured.
	measureWindow = 64 * time.Millisecond
	// firstCost is taken for the cost of beginning a flow until some have begun.
	firstCost = 40 * time.Microsecond
	// Datagrams have to wait once every batch has been full for crowdedAfter and there were crowdedLeast
	// of these, and count as doing so for crowdedTime after a batch was full, or after more clients asked
	// than there was time for.
	// Time alone is no sign: a process that did not run for a while finds some full batches.
	crowdedAfter, crowdedLeast, crowdedTime = 20 * time.Millisecond, 8, time.Second
	// calmTime is how long after the last refusal an answer is a sign of an honest
	// client.
	calmTime = 10 * time.Second
	// equalUse is how many flows a network may have begun lately when half of a half is left.
	equalUse = 4
)

// Control decides which new clients of a loop begin flows. It belongs to the loop's goroutine.
type Control struct {
	networks networks
	off      bool // nobody is refused
	// Budget has what is left for new clients of unknown networks, and for those of known ones.
	Budget [2]time.Duration
	Filled time.Duration // when it was filled up
	rate   float64       // how much of the time is for new flows
	cost   time.Duration // of beginning one
	begun  [2]int        // flows that have taken the cost from the budget, and not what it was yet
	// Batches have been full since, or 0, and how many of them were; and until when datagrams count as waiting.
	fullSince time.Duration
	full      int
	Crowded   time.Duration
	Refused   time.Duration // when somebody was refused last; 0: never
	// The window in which the loop's other work is measured.
	began, busy, spent time.Duration
	missed             time.Duration // how long it would have taken to begin those that were refused
	other              float64       // part of the time that the other work took lately
}

// New returns the control of a loop that has no flows yet. If off is true, nobody is refused.
func New(off bool) Control {
	return Control{off: off, cost: firstCost, rate: shareProtecting, Budget: [2]time.Duration{Depth, Depth}}
}

// Place returns where to find a client, whose address is as the kernel wrote it. It is valid as long as the Control.
func (f *Control) Place(family sys.Family, name []byte) Place { return f.networks.of(family, name) }

// Know notes that honest clients are in the networks of a client: it has shown that it does not forge its address, or had
// an answer while nobody was refused.
func (f *Control) Know(c Place, now time.Duration) { f.networks.know(c, now) }

// Received notes that a batch of messages was received, and whether it was full.
func (f *Control) Received(now time.Duration, full bool) {
	if !full {
		f.fullSince, f.full = 0, 0
		return
	}
	if f.fullSince == 0 {
		f.fullSince = max(1, now)
	}
	f.full = min(f.full+1, crowdedLeast)
	if now < f.Crowded || now-f.fullSince >= crowdedAfter && f.full >= crowdedLeast {
		f.Crowded = now + crowdedTime
	}
}

// Fill fills the budget up, at the time now of a loop that was busy for a time since it began. protect
// says that it has flows to protect from new ones.
func (f *Control) Fill(now, busy time.Duration, protect bool) {
	if window := now - f.began; window >= measureWindow {
		other := float64(busy-f.busy-f.spent) / float64(window)
		f.other += (min(max(other, 0), 1) - f.other) / 4
		share := shareAlone
		if protect {
			share = shareProtecting
		}
		left := 1 - f.other
		f.rate = max(left*share, shareLeast)
		if now < f.Crowded && float64(f.spent+f.missed) > left*shareAlone*float64(window) {
			f.Crowded = now + crowdedTime
		}
		f.began, f.busy, f.spent, f.missed = now, busy, 0, 0
	}
	more := time.Duration(float64(min(now-f.Filled, time.Second)) * f.rate)
	f.Filled = now
	for i, part := range [...]time.Duration{more / 2, more - more/2} {
		f.Budget[i] += part
		if over := f.Budget[i] - Depth; over > 0 {
			f.Budget[i] = Depth
			f.Budget[1-i] = min(f.Budget[1-i]+over, Depth)
		}
	}
}

// TryBegin reports whether a new client may begin a flow, and takes its cost from the budget.
func (f *Control) TryBegin(c Place, now time.Duration) bool {
	use, known := f.networks.look(c, now)
	half := 0
	if known {
		half = 1
	}
	if !f.off && now < f.Crowded && !affords(f.Budget[half], use) {
		f.missed += f.cost
		f.Refused = max(1, now)
		f.networks.countRefused(c, now)
		return false
	}
	f.Budget[half] = max(f.Budget[half]-f.cost, -Depth)
	f.begun[half]++
	f.networks.count(c, now)
	return true
}

// More reports whether flows may go on to begin in a turn in which that has taken some time.
func (f *Control) More(now, beginning time.Duration) bool {
	return beginning < turnMost || !f.off && now < f.Crowded
}

// affords reports whether so much of a half of the budget allows a flow of a network that has begun
// others.
func affords(budget time.Duration, use float32) bool {
	switch {
	case budget >= Depth:
		return true
	case budget <= 0:
		return false
	}
	return use*float32(Depth-budget) < equalUse*float32(budget)
}

// Took notes how long it took to begin the flows that have begun since the last call. If that is far
// from the usual, the process did not run for a part of it: then time is short for everybody, and so
// the flows take more from the budget. But they leave no debt that would take long to fill up.
func (f *Control) Took(d time.Duration) {
	n := f.begun[0] + f.begun[1]
	if n == 0 {
		return
	}
	each := d / time.Duration(n)
	more := min(each, 8*f.cost) - f.cost
	for i := range f.Budget {
		f.Budget[i] = max(f.Budget[i]-more*time.Duration(f.begun[i]), -Depth)
	}
	f.spent += d
	f.begun = [2]int{}
	f.cost += (min(each, 2*f.cost+time.Microsecond) - f.cost) / 16
}

// Pressed reports whether new clients were refused lately.
func (f *Control) Pressed(now time.Duration) bool {
	return f.Refused != 0 && now-f.Refused < calmTime
}
