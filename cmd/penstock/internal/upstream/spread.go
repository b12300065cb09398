package upstream

import "math"

// Members of one priority are a level. How flows are spread over levels follows from how many of their members are
// healthy; it is computed here, from numbers alone.

// enough is how much more than its even share of flows a zone, or a level, takes before any spill
// over, in percent: Envoy's overprovisioning factor. Members that are asked to take more would be
// overloaded when the relays run at about 70% of what they can carry.
const enough = 140

// A tally counts members, or what they weigh.
type tally struct {
	all      int // in whatever state; those that are drained by the configuration or by operators do not exist here
	excluded int // of all: the registry says that they are draining
	healthy  int
	degraded int
}

func (t *tally) add(o tally, times int) {
	t.all += times * o.all
	t.excluded += times * o.excluded
	t.healthy += times * o.healthy
	t.degraded += times * o.degraded
}

// A levelTally is what is counted of a level.
type levelTally struct{ members, weights tally }

func (t *levelTally) add(o levelTally, times int) {
	t.members.add(o.members, times)
	t.weights.add(o.weights, times)
}

// A levelShare is what a level gets: shares of the flows that begin with its healthy and its degraded members. A level
// that panics has one share, which is of all its members.
type levelShare struct {
	healthy, degraded float64
	panics            bool
}

// A spreadRule says how flows are spread over levels, and when their members are used whatever their health.
type spreadRule struct {
	// parts is how many parts flows are divided into; shares are whole numbers of parts. Envoy has percent.
	parts float64
	// factor is the overprovisioning factor, in percent.
	factor int
	// weigh says that members count by their weights.
	weigh bool
	// panic is the panic threshold: the share of the members that is healthy or degraded; 0: none.
	panic float64
	// whole says that the group panics as a whole, and that backups are members of it as others. Otherwise each level
	// panics by itself, and none as long as all of them together, or a backup, can take all flows.
	whole bool
}

// spread returns the shares of levels, in their order, and whether backups panic. Shares are 1 together, or 0 if no
// member can be used; then backups get the flows.
//
// A level takes factor times the share of its members that are healthy, and at most all flows; the next level gets
// what remains, and so on. What the healthy ones leave goes to the degraded ones in the same way. If all levels
// together cannot take everything, they share it in proportion; if all of them panic, by their numbers of members.
func (r *spreadRule) spread(levels []levelTally, backups tally) (out []levelShare, panics bool) {
	out = make([]levelShare, len(levels))
	healthy, degraded := make([]float64, len(levels)), make([]float64, len(levels))
	all := backups
	for i := range levels {
		all.add(levels[i].members, 1)
	}
	panics = r.whole && r.panics(&all)
	total := 0.0
	for i := range levels {
		t := levels[i].members
		if r.weigh {
			t = levels[i].weights
		}
		if out[i].panics = panics; panics {
			t = tally{all: t.all, healthy: t.all}
		}
		healthy[i], degraded[i] = r.availability(t.healthy, &t), r.availability(t.degraded, &t)
		total += healthy[i] + degraded[i]
	}
	if total = min(total, r.parts); total > 0 {
		r.share(out, healthy, degraded, total)
	}
	if total < r.parts && backups.healthy == 0 && !r.whole {
		r.panicByLevel(out, levels, all.all-backups.all)
	}
	return out, panics
}

// panics reports whether too few members are healthy or degraded.
func (r *spreadRule) panics(t *tally) bool {
	counted := t.all - t.excluded
	return float64(t.healthy+t.degraded) < r.panic*float64(counted) || counted == 0 && t.all > 0 && r.panic > 0
}

// panicByLevel makes those levels panic that have too few members. If all do, flows are spread by their numbers of
// members, of which there are so many.
func (r *spreadRule) panicByLevel(out []levelShare, levels []levelTally, members int) {
	rest, first := r.parts, -1
	for i := range levels {
		t := &levels[i].members
		if t.all == 0 {
			continue
		}
		if out[i].panics = r.panics(t); !out[i].panics {
			members = 0
		}
	}
	if members == 0 {
		return
	}
	for i := range levels {
		n := levels[i].members.all
		if n > 0 && first < 0 {
			first = i
		}
		parts := math.Floor(r.parts * float64(n) / float64(members))
		out[i].healthy, out[i].degraded = parts/r.parts, 0
		rest -= parts
	}
	out[first].healthy += rest / r.parts
}

// availability returns how many parts of the flows n members of a level can take.
func (r *spreadRule) availability(n int, t *tally) float64 {
	counted := t.all - t.excluded
	if counted <= 0 {
		return 0
	}
	return min(r.parts, math.Floor(r.parts*float64(r.factor)*float64(n)/(100*float64(counted))))
}

// share gives levels what they can take, of all that can be taken together. What rounding leaves goes to the first
// level that can take anything.
func (r *spreadRule) share(out []levelShare, healthy, degraded []float64, total float64) {
	rest := r.parts
	var first *float64
	give := func(available float64, to *float64) {
		if available > 0 && first == nil {
			first = to
		}
		parts := min(rest, math.Floor(available*r.parts/total))
		*to = parts / r.parts
		rest -= parts
	}
	for i := range out {
		give(healthy[i], &out[i].healthy)
	}
	for i := range out {
		give(degraded[i], &out[i].degraded)
	}
	*first += rest / r.parts
}
