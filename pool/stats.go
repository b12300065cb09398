package pool

// Stats are the statistics of a [Pool]. Counters count from the first use. They are read
// one after another while the pool is in use, so they may not be of the same moment.
type Stats struct {
	Gets       uint64 // calls of Get
	Hits       uint64 // of Gets, those that returned a pooled object
	VictimHits uint64 // of Hits, those of an object that was a collection old
	Steals     uint64 // of Hits, those of another CPU's object
	News       uint64 // calls of New
	Puts       uint64 // calls of Put
	Drops      uint64 // objects that left the pool for good
	Kept       int    // gauge: objects in the pool
	Live       int    // gauge: the objects in the pool or in use, if all came from New: News without those that panicked - Drops
}

// Stats returns the pool's statistics. It is too slow for a hot path.
func (p *Pool[T]) Stats() Stats {
	cold := p.cold.Load()
	if cold == nil {
		return Stats{}
	}
	cold.mu.Lock()
	defer cold.mu.Unlock()
	if p.exact() {
		gone, kept := cold.locked.gone.Load(), cold.locked.kept()
		return p.stats(cold, cold.sum(), gone, kept)
	}
	// The counters increase while they are added up. Puts are read before the counters
	// that are subtracted from them, so that Kept is never too high.
	p.fold(cold)
	puts := cold.sum().puts
	t := cold.sum()
	gone := cold.freed
	for _, g := range cold.old {
		if g != p.victim.Load() {
			gone += uint64(max(0, g.left()))
		}
	}
	return p.stats(cold, t, gone, int(puts-t.hits-gone))
}

// stats returns the statistics, given how many objects have left and how many are kept.
func (p *Pool[T]) stats(cold *coldState[T], t tally, gone uint64, kept int) Stats {
	refused := cold.refused.Load()
	return Stats{
		Gets:       t.hits + t.misses,
		Hits:       t.hits,
		VictimHits: t.victimHits,
		Steals:     t.steals,
		News:       t.news,
		Puts:       t.puts + refused,
		Drops:      gone + refused,
		Kept:       max(0, kept),
		Live:       int(t.news - cold.failed.Load() - gone - refused),
	}
}

// A tally is the sum of the counters of many shards.
type tally struct {
	hits, misses, news, puts, steals, victimHits uint64
}

// sum returns the pool's counters. cold.mu is held.
func (cold *coldState[T]) sum() tally {
	t := cold.total
	for _, g := range cold.old {
		t.add(g.counts)
	}
	if cold.primary != nil {
		t.add(cold.primary.counts)
	}
	cold.locked.sum(&t)
	return t
}

// sum adds the counters of all shards to t.
func (l *locked[T]) sum(t *tally) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		t.hits += s.tally.hits
		t.misses += s.tally.misses
		t.news += s.tally.news
		t.puts += s.tally.puts
		t.steals += s.tally.steals
		t.victimHits += s.tally.victimHits
		s.mu.Unlock()
	}
}

// calls returns the number of calls of Get and Put.
func (t tally) calls() uint64 { return t.hits + t.misses + t.puts }

// add adds the counters of a generation.
func (t *tally) add(cs []counts) {
	for i := range cs {
		c := &cs[i]
		t.hits += c.hits.load()
		t.misses += c.misses.load()
		t.news += c.news.load()
		t.puts += c.puts.load()
		t.steals += c.steals.load()
		t.victimHits += c.victimHits.load()
	}
}
