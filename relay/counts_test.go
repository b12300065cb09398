package relay

import (
	"fmt"
	"testing"
)

func TestCounts(t *testing.T) {
	var c Counts[Cause]
	if c.String() != "" || c.Total() != 0 {
		t.Errorf("nothing is %q, %d", c, c.Total())
	}
	c[CauseIdle], c[CauseEnd], c[CauseUpstreamTruncated] = 1, 12, 3
	if got := fmt.Sprint(LoopStats{Ended: c}.Ended); got != "end 12, idle 1, upstream-truncated 3" || c.Total() != 16 {
		t.Errorf("%q, %d", got, c.Total())
	}
	var all []Cause
	for cause, n := range c.All() {
		if n != c[cause] {
			t.Errorf("%v: %d", cause, n)
		}
		all = append(all, cause)
	}
	if len(all) != NumCauses || all[0] != CauseNone || all[NumCauses-1] != causes-1 {
		t.Errorf("%v", all)
	}
	for cause := range c.All() {
		if cause == CauseEnd {
			break // and All does not go on
		}
	}
	var d, e Counts[Drop]
	d[DropFull], e[DropFull], e[DropCrashed] = 1, 2, 3
	if d.add(&e); d != (Counts[Drop]{DropFull: 3, DropCrashed: 3}) {
		t.Errorf("%v", d)
	}
}

// There is room for as many values again, before the type has to change.
func TestCountsHaveRoom(t *testing.T) {
	for name, n := range map[string]int{"Cause": NumCauses, "Drop": NumDrops, "Loss": NumLosses} {
		if room := len(Counts[Cause]{}); n > room*3/4 {
			t.Errorf("%d values of %s, and room for %d", n, name, room)
		}
	}
}
