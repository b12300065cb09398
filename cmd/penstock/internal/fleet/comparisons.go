package fleet

import (
	"fmt"
	"maps"
	"slices"
)

// A selection is what is compared of a report: listeners that are counted together, or all.
type selection struct {
	listeners []string // nil: all of them
	gone      bool     // the version has none of these
}

// counted returns what a relay has counted for the flows of a selection.
func (s selection) counted(r *Report) (sum Served) {
	switch {
	case s.listeners == nil && r.Served != nil:
		return *r.Served
	case s.listeners == nil: // a relay of an older version says this much
		return Served{Begun: r.Begun, ConnectFailures: r.ConnectFailures, BytesDown: r.BytesDown, Ends: map[string]int64{"refused": r.Refusals}}
	}
	for _, name := range s.listeners {
		if l, ok := r.Listeners[name]; ok {
			sum.add(&l.Served)
		}
	}
	return sum
}

// prefix returns what a sentence about a selection begins with.
func (s selection) prefix() string {
	switch {
	case s.listeners == nil:
		return ""
	case s.gone:
		return fmt.Sprintf("listeners that are gone, %s: ", shorten(fmt.Sprintf("%q", s.listeners)))
	case len(s.listeners) == 1:
		return fmt.Sprintf("listener %q: ", s.listeners[0])
	}
	return fmt.Sprintf("listeners %s together: ", shorten(fmt.Sprintf("%q", s.listeners)))
}

// between returns what a relay has counted between two of its reports.
func (s selection) between(before, now *Report) tally {
	a, b := s.counted(before), s.counted(now)
	return tally{b.since(&a), max(0, now.At.Sub(before.At).Seconds()), 1}
}

// known returns what a relay has counted since its service began.
func (s selection) known(r *Report) *tally {
	return &tally{s.counted(r), max(0, r.At.Sub(r.Since).Seconds()), 1}
}

// comparisons returns that of all flows, and those of listeners: of each one, together with those that may have its clients now,
// or had them before; and of those that are gone and have left their clients to nobody.
func (j *judge) comparisons() (all *comparison, each []*comparison) {
	names := nameSets{}
	before, now := map[string]bool{}, map[string]bool{}
	whole := true // all listeners are listed
	for name := range j.canaries {
		t := j.tracks[name]
		if t == nil || !t.counts {
			continue
		}
		for _, r := range []struct {
			*Report
			has map[string]bool
		}{{&t.before, before}, {&t.now, now}} {
			whole = whole && r.Served != nil && r.Unlisted == 0
			for l := range r.Listeners {
				r.has[l] = true
			}
		}
		names.joinOverlapping(t.before.Listeners, t.now.Listeners)
	}
	var gone []string
	for _, set := range names.sets(union(before, now)) {
		had := slices.ContainsFunc(set, func(l string) bool { return before[l] })
		has := slices.ContainsFunc(set, func(l string) bool { return now[l] })
		switch {
		case has && (whole || had && len(set) == 1): // of others, some may not be listed
			each = append(each, j.compare(selection{listeners: set}))
		case whole:
			gone = append(gone, set...)
		}
	}
	if gone != nil {
		each = append(each, j.compare(selection{listeners: gone, gone: true}))
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

// nameSets are disjoint sets of names of listeners. A name leads to another one of its set, and the least one to none.
type nameSets map[string]string

// leastOf returns the least name of a name's set.
func (n nameSets) leastOf(name string) string {
	for n[name] != "" {
		name = n[name]
	}
	return name
}

// join makes the sets of two names one.
func (n nameSets) join(a, b string) {
	if a, b = n.leastOf(a), n.leastOf(b); a != b {
		n[max(a, b)] = min(a, b)
	}
}

// joinOverlapping joins the listeners that a relay has now with those that it had before at overlapping addresses, unless neither
// has changed. If it is not known where one of them listens, each that is new may be one that is gone.
func (n nameSets) joinOverlapping(before, now map[string]Listener) {
	for a, was := range before {
		for b, is := range now {
			aNow, aStays := now[a]
			bBefore, bStays := before[b]
			switch {
			case was.Listen == "" || is.Listen == "":
				if !aStays && !bStays {
					n.join(a, b)
				}
			case aStays && bStays && aNow.Socket == was.Socket && bBefore.Socket == is.Socket:
			case was.overlaps(is.Socket):
				n.join(a, b)
			}
		}
	}
}

// sets returns names in their sets.
func (n nameSets) sets(names map[string]bool) (list [][]string) {
	at := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		least := n.leastOf(name)
		if least == name {
			at[name], list = len(list), append(list, nil)
		}
		list[at[least]] = append(list[at[least]], name)
	}
	return list
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
