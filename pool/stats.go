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
	Live       int    // gauge: News - Drops, the objects in the pool or in use if all came from New
}

// Stats returns the pool's statistics. It is too slow for a hot path.
func (p *Pool[T]) Stats() Stats {
	b := p.book.Load()
	if b == nil {
		return Stats{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.exact() {
		gone, kept := b.locked.gone.Load(), b.locked.kept()
		return p.stats(b, b.sum(), gone, kept)
	}
	// The counters go on while they are added up. Puts are counted before what
	// takes away from them, so that Kept is never told too high.
	p.fold(b)
	puts := b.sum().puts
	t := b.sum()
	gone := b.freed
	for _, g := range b.past {
		if g != p.victim.Load() {
			gone += uint64(max(0, g.left()))
		}
	}
	return p.stats(b, t, gone, int(puts-t.hits-gone))
}

// stats returns the numbers, given how many objects are gone and are kept.
func (p *Pool[T]) stats(b *book[T], t tally, gone uint64, kept int) Stats {
	refused := b.refused.Load()
	return Stats{
		Gets:       t.hits + t.misses,
		Hits:       t.hits,
		VictimHits: t.victimHits,
		Steals:     t.steals,
		News:       t.news,
		Puts:       t.puts + refused,
		Drops:      gone + refused,
		Kept:       max(0, kept),
		Live:       int(t.news - gone - refused),
	}
}

// A tally is the sum of what many shards count.
type tally struct {
	hits, misses, news, puts, steals, victimHits uint64
}

// sum returns the pool's counters. b.mu is held.
func (b *book[T]) sum() tally {
	t := b.total
	for _, g := range b.past {
		t.add(g.counts)
	}
	if b.primary != nil {
		t.add(b.primary.counts)
	}
	b.locked.sum(&t)
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

// calls returns how often the pool was used.
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
