package fleet

import (
	"fmt"
	"math"
)

// A tally is what one or several relays have counted for a while.
type tally struct {
	Served
	seconds float64 // of all these relays together
	relays  int
}

func (t *tally) add(o *tally) {
	t.Served.add(&o.Served)
	t.seconds += o.seconds
	t.relays += o.relays
}

// A comparison is of what the canaries have counted since they run a version with what they counted before, and what other
// relays count meanwhile.
type comparison struct {
	selection
	now, before, elsewhere tally
	known, elsewhereKnown  tally // the same relays before, for as long as their service ran
	// expected is the number of flows that would have begun if as many had come as before, but for how much fewer came to
	// any other relay; and below is by how many standard deviations fewer have begun.
	expected, below float64
	// parts says that each part is compared for itself: a share of all of them also changes when one part has more flows.
	parts bool
}

// The numbers by which the canaries' clients are served worse. docs/fleet.md has them, and TestJudgeUnderLoad shows what they do.
const (
	leastFlows      = 5    // flows of a share that is worse
	leastSuspicious = 2    // of one that seems to be
	leastKnown      = 20   // flows before: fewer say little
	leastSeconds    = 3    // of each canary: it and the others do not report at the same moment
	sigmas          = 4.5  // standard deviations by which a share differs from those before and elsewhere together
	sigmasEach      = 2.0  // half of the width of the intervals that may not overlap, in standard deviations
	dispersion      = 2.0  // flows that share their fate
	moreOften       = 1.5  // flows of a share that is worse also come more often than before, by this factor
	leastExpected   = 3    // flows: more must be expected for that none seems to be worse
	lostShare       = 0.15 // of the flows that were expected, if clients are lost
	lostTogether    = 4.0  // flows that begin together
)

// A certainty says how sure one must be that something is worse. It is a factor of sigmas and sigmasEach.
type certainty float64

const (
	sure       certainty = 1    // for a verdict at any time
	sureEnough certainty = 0.55 // at the end of a trial that has lasted as long as it may
	suspicious certainty = 0.35 // to have it last longer than was asked for
)

// short reports whether the canaries have run the version for too short a time to be judged.
func (c *comparison) short() bool { return c.now.seconds < leastSeconds*float64(c.now.relays) }

// worse says what is worse with the canaries' clients than before and than elsewhere; empty: nothing.
func (c *comparison) worse(how certainty) string {
	if c.short() {
		return ""
	}
	for i := range criteria {
		if c.parts {
			break
		}
		if text := c.worseBy(&criteria[i], how); text != "" {
			return text
		}
	}
	if n := c.before.Begun; c.gone && n >= leastFlows { // which takes no statistics
		return fmt.Sprintf("%d flows began there in the %.0f seconds before", n, c.before.seconds)
	}
	needed := float64(how) * sigmas
	switch {
	case how == sureEnough && c.now.Begun > 0:
		needed = sigmas // some come; there may be few clients, who come together
	case how == suspicious && c.now.Begun == 0 && c.expected >= leastExpected:
		needed = 0
	}
	if c.below > needed && float64(c.now.Begun) < lostShare*c.expected {
		return fmt.Sprintf("%d flows began on the canaries, where %.0f were to be expected from what came before and elsewhere", c.now.Begun, c.expected)
	}
	return ""
}

// worseBy says what is worse by one criterion. Something that is the case elsewhere, too, or was before, is not the version's
// doing.
func (c *comparison) worseBy(by *criterion, how certainty) string {
	now := by.share(&c.now.Served)
	if now.k < leastFlows && !(how == suspicious && now.k >= leastSuspicious) {
		return ""
	}
	if by.share(&c.elsewhere.Served).ratio() > by.share(&c.elsewhereKnown.Served).ratio()+by.margin/2 {
		// All are in trouble, and a relay that has more clients while that lasts seems to be worse.
		switch how {
		case sure:
			return ""
		case sureEnough:
			how = sure
		}
	}
	before := c.usual(by)
	text := fmt.Sprintf(by.text+", %.1f%%", now.k, max(now.k, now.n), 100*now.ratio())
	var both share
	low, _ := now.bounds(float64(how) * sigmasEach)
	for _, base := range []struct {
		*tally
		text string
	}{{before, "before"}, {&c.elsewhere, "elsewhere"}} {
		was := by.share(&base.Served)
		if was.n == 0 {
			continue
		}
		if _, high := was.bounds(float64(how) * sigmasEach); low <= high || now.ratio() <= was.ratio()+by.margin {
			return ""
		}
		both.k, both.n = both.k+was.k, both.n+max(was.k, was.n)
		text += fmt.Sprintf("; %s %.1f%%", base.text, 100*was.ratio())
	}
	if both.n > 0 && now.above(both) < float64(how)*sigmas || both.n == 0 && (!by.fault || now.ratio() <= by.margin) {
		return ""
	}
	// A share also grows when flows of another kind become fewer, up to a half.
	if was := by.share(&before.Served); now.ratio() < 0.5 && before.seconds > 0 && float64(now.k)/c.now.seconds <= moreOften*float64(was.k)/before.seconds {
		return ""
	}
	return text
}

// usual returns what the canaries' flows are compared with: all that they had before, unless those right before differ from
// that by more than chance.
func (c *comparison) usual(by *criterion) *tally {
	all, right := by.share(&c.known.Served), by.share(&c.before.Served)
	low, high := right.bounds(sigmasEach)
	if all.n > 0 && (right.n < leastKnown || low <= all.ratio() && all.ratio() <= high) {
		return &c.known
	}
	return &c.before
}

// expect works out how many flows were to be expected: as many in a second as on average, or as right before if those were
// fewer by more than chance, but for how much fewer came to any other relay. ratios are those of the others, of flows in a second
// now to those before.
func (c *comparison) expect(ratios []float64) {
	common := 1.0
	for _, r := range ratios {
		common = min(common, r)
	}
	if c.before.seconds <= 0 || c.known.seconds <= 0 || common <= 0 {
		return
	}
	was, rate := float64(c.known.Begun), float64(c.known.Begun)/c.known.seconds
	right, chance := float64(c.before.Begun), sigmasEach*math.Sqrt(lostTogether*float64(c.before.Begun+1))
	if rate > (right+chance)/c.before.seconds {
		was, rate = right, right/c.before.seconds
	}
	if c.expected = rate * c.now.seconds * common; c.expected > 0 {
		c.below = (c.expected - float64(c.now.Begun)) / math.Sqrt(lostTogether*c.expected*(1+c.expected/was))
	}
}
