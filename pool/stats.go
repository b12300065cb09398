package pool

// Stats are the numbers of a [Pool]. Counters count from the first use. They are
// read one after another while the pool is at work, so sums across them may be
// off by what happened meanwhile.
type Stats struct {
	Gets       uint64 // calls of Get
	Hits       uint64 // Gets served with a pooled object, from wherever
	VictimHits uint64 // Hits that found the object among the victims, one collection old
	Steals     uint64 // Hits that found the object with another CPU
	News       uint64 // calls of New
	Puts       uint64 // calls of Put
	Drops      uint64 // objects that left for good
	Kept       int    // objects in the pool now
	Live       int    // News - Drops: objects that exist, kept or with a user, if all came from New
}

// Stats returns the pool's numbers. It is meant for a metrics page and for
// tests, not for a hot path.
func (p *Pool[T]) Stats() Stats {
	b := p.book.Load()
	if b == nil {
		return Stats{}
	}
	// The counters go on while they are added up. Puts are counted before what
	// takes away from them, so that Kept is never told too high.
	b.mu.Lock()
	puts := b.sum().puts
	t := b.sum()
	b.mu.Unlock()

	dropped, refused := b.dropped.Load(), b.refused.Load()
	return Stats{
		Gets:       t.hits + t.misses,
		Hits:       t.hits,
		VictimHits: t.victimHits,
		Steals:     t.steals,
		News:       t.news,
		Puts:       t.puts + refused,
		Drops:      dropped + refused,
		Kept:       max(0, int(puts-t.hits-dropped)),
		Live:       int(t.news - dropped - refused),
	}
}

// A tally is the sum of many shards' counters.
type tally struct {
	hits, misses, news, puts, steals, victimHits uint64
}

// sum returns the pool's counters. b.mu is held.
func (b *book[T]) sum() tally {
	t := b.total
	for _, g := range b.retired {
		g.tally(&t)
	}
	for g := b.victim; g != nil; g = g.older.Load() {
		g.tally(&t)
	}
	if b.primary != nil {
		b.primary.tally(&t)
	}
	return t
}

// calls returns how often the pool was used.
func (t tally) calls() uint64 { return t.hits + t.misses + t.puts }

// tally adds g's counters to t.
func (g *generation[T]) tally(t *tally) {
	for i := range g.shards {
		s := &g.shards[i]
		t.hits += s.hits.load()
		t.misses += s.misses.load()
		t.news += s.news.load()
		t.puts += s.puts.load()
		t.steals += s.steals.load()
		t.victimHits += s.victimHits.load()
	}
}
