package fleet

import (
	"fmt"
	"maps"
	"slices"
)

// A selection is what is compared of a report: one listener, several that are counted together, or all.
type selection struct {
	listeners []string // nil: all of them
	changed   bool     // those that only the version, or only the one before, has: one may be another one's new name
	gone      bool     // of these, there are only those that the version does not have
}

// of returns what a relay has counted of a selection.
func (s selection) of(r *Report) (sum Served) {
	switch {
	case s.listeners == nil && r.Served != nil:
		return *r.Served
	case s.listeners == nil: // a relay of an older version says this much
		return Served{Begun: r.Begun, ConnectFailures: r.ConnectFailures, BytesDown: r.BytesDown, Ends: map[string]int64{"refused": r.Refusals}}
	}
	for _, name := range s.listeners {
		if l, ok := r.Listeners[name]; ok {
			sum.add(&l)
		}
	}
	return sum
}

// where returns what a sentence about a selection begins with.
func (s selection) where() string {
	switch {
	case s.gone:
		return fmt.Sprintf("listeners that are gone, %s: ", shorten(fmt.Sprintf("%q", s.listeners)))
	case s.changed:
		return fmt.Sprintf("listeners that are new or gone, %s: ", shorten(fmt.Sprintf("%q", s.listeners)))
	case s.listeners != nil:
		return fmt.Sprintf("listener %q: ", s.listeners[0])
	}
	return ""
}

// between returns what a relay has counted between two of its reports.
func (s selection) between(before, now *Report) tally {
	a, b := s.of(before), s.of(now)
	return tally{b.since(&a), max(0, now.At.Sub(before.At).Seconds()), 1}
}

// known returns what a relay has counted since its service began.
func (s selection) known(r *Report) *tally {
	return &tally{s.of(r), max(0, r.At.Sub(r.Since).Seconds()), 1}
}

// comparisons returns that of all flows, and those of each listener.
func (j *judge) comparisons() (all *comparison, each []*comparison) {
	before, now := map[string]bool{}, map[string]bool{}
	whole := true // all listeners are listed
	for name := range j.canaries {
		t := j.tracks[name]
		if t == nil || !t.counts {
			continue
		}
		for l := range t.before.Listeners {
			before[l] = true
		}
		for l := range t.now.Listeners {
			now[l] = true
		}
		whole = whole && t.before.Unlisted == 0 && t.now.Unlisted == 0 && t.before.Served != nil && t.now.Served != nil
	}
	changed := selection{changed: true, gone: true}
	for _, name := range slices.Sorted(maps.Keys(union(before, now))) {
		if before[name] && now[name] {
			each = append(each, j.compare(selection{listeners: []string{name}}))
		} else {
			changed.listeners = append(changed.listeners, name)
			changed.gone = changed.gone && before[name]
		}
	}
	if whole && changed.listeners != nil {
		each = append(each, j.compare(changed))
	}
	all = j.compare(selection{})
	all.parts = whole && len(each) > 0
	return all, each
}

func union(a, b map[string]bool) map[string]bool {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// compare compares what the reports say of a selection.
func (j *judge) compare(s selection) *comparison {
	c := &comparison{selection: s}
	var ratios []float64
	for name, t := range j.tracks {
		if !t.counts {
			continue
		}
		before, now := s.between(&t.first, &t.before), s.between(&t.start, &t.now)
		if j.canaries[name] {
			c.before.add(&before)
			c.now.add(&now)
			c.known.add(s.known(&t.before))
			continue
		}
		c.elsewhere.add(&now)
		c.elsewhereKnown.add(s.known(&t.before))
		if before.Begun >= leastKnown && before.seconds > 0 && now.seconds > 0 {
			ratios = append(ratios, float64(now.Begun)/now.seconds/(float64(before.Begun)/before.seconds))
		}
	}
	c.expect(ratios)
	return c
}
