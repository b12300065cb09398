package pool

import (
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
	"weak"
)

// A book is the part of a pool that hits do not touch.
type book[T any] struct {
	mu     sync.Mutex
	regret regret
	waited int // collections that did not count, because the pool is patient

	watch   atomic.Bool  // New is to be timed
	newTime atomic.Int64 // what New took meanwhile, in nanoseconds
	refused atomic.Uint64
	cycles  atomic.Uint64         // how often the pool aged
	alarm   atomic.Pointer[alarm] // tells of the end of the next collection; nil at rest

	// For collections that come too fast for the alarm; under mu. See idle.
	seen   uint64        // collections, when the alarm was set
	missed bool          // there was more than one between the last two alarms
	nap    *time.Timer   // calls idle
	delay  time.Duration // what nap waits for
	calls  uint64        // calls of the pool when nap was set

	// Of a pool without locks, under mu.
	primary *generation[T] // what Pool.local points into
	held    *generation[T] // the victim, while the pool is patient
	past    []*past[T]     // the victim and older ones, until they are freed
	demoted uint64         // collections, when the victim became that
	total   tally          // what was counted in generations that are freed
	freed   uint64         // objects that were freed with them

	locked locked[T] // of a pool with Drop or Max
}

// A generation is the shards of all CPUs between two collections.
type generation[T any] struct {
	shards []shard[T]
	counts []counts
}

// A past is a generation that is not the primary one any more. It does not keep
// the shards: the collector frees them unless somebody is at work there.
type past[T any] struct {
	shards weak.Pointer[shard[T]]
	counts []counts
	taken  atomic.Int64 // by CPUs that came after it, and have no counts here
}

// left returns how many objects are left of it.
func (g *past[T]) left() int { return left(g.counts) - int(g.taken.Load()) }

// first returns the first of the shards, or nil if they are freed. It must not be
// called in a section, because it may wait for the collector.
func (g *past[T]) first() *shard[T] {
	if g == nil {
		return nil
	}
	return g.shards.Value()
}

// ledger returns the pool's book, a new one at the first call.
func (p *Pool[T]) ledger() *book[T] {
	if b := p.book.Load(); b != nil {
		return b
	}
	b := &book[T]{}
	if p.exact() {
		b.locked.shards = make([]lockedShard[T], p.gate.width())
	}
	p.book.CompareAndSwap(nil, b)
	return p.book.Load()
}

// open makes a primary generation that has shard number id.
func (p *Pool[T]) open(id int) {
	b := p.ledger()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.primary != nil && id < len(b.primary.shards) {
		return
	}
	p.demote(b) // there may be more CPUs than there were
	width := max(p.gate.width(), int(p.size.Load()))
	g := &generation[T]{shards: make([]shard[T], width), counts: make([]counts, width)}
	for i := range g.shards {
		g.shards[i].counts = &g.counts[i]
	}
	b.primary = g
	p.local.Store(&g.shards[0])
	p.size.Store(uintptr(width))
	p.arm(b)
}

// demote makes the primary generation the victim. b.mu is held.
func (p *Pool[T]) demote(b *book[T]) {
	g := b.primary
	if g == nil {
		return
	}
	old := &past[T]{shards: weak.Make(&g.shards[0]), counts: g.counts}
	b.past = append(b.past, old)
	b.primary = nil
	// victim before local: whoever finds nothing in the primary generation looks
	// whether there is a new victim.
	p.victim.Store(old)
	p.local.Store(nil)
}

// An alarm tells that a collection ended. There are two ways, both once: its
// cleanup runs, which may take a while, or somebody finds weak to be cleared,
// which it is at once.
type alarm struct {
	weak weak.Pointer[sentinel]
}

// A sentinel is garbage from birth. It is too large for the tiny allocator, which
// would tie its life to that of its neighbours. One that is born while the
// collector marks outlives that collection.
type sentinel [4]uintptr

// arm asks to be told of the end of the next collection, unless that is so
// already. The cleanup refers to p, so p lives on until then, reachable or not.
// b.mu is held.
func (p *Pool[T]) arm(b *book[T]) {
	if b.alarm.Load() != nil {
		return
	}
	a := &alarm{weak.Make(new(sentinel))}
	b.alarm.Store(a)
	// Another sentinel: to look at one through a weak pointer while the collector
	// marks keeps it alive.
	runtime.AddCleanup(new(sentinel), func(a *alarm) { p.collected(a) }, a)
	b.seen = collections()
	if p.exact() {
		p.wake(b)
	}
}

// collected is called when a collection ended, which a tells.
func (p *Pool[T]) collected(a *alarm) {
	b := p.book.Load()
	p.age(b, a)
	p.dropLeaving(b)
}

// notice ages the pool if a collection ended and the cleanup has not run yet. It
// must not be called in a section.
func (p *Pool[T]) notice() {
	if b := p.book.Load(); b != nil {
		if a := b.alarm.Load(); a != nil && a.weak.Value() == nil {
			p.age(b, a)
		}
	}
}

// age moves the generations on, once for each alarm.
func (p *Pool[T]) age(b *book[T], a *alarm) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.alarm.Load() == a {
		p.ageLocked(b)
	}
}

// ageLocked is age. b.mu is held.
func (p *Pool[T]) ageLocked(b *book[T]) {
	p.fold(b)
	patience := b.regret.patience(b.sum(), b.newTime.Swap(0), time.Now())
	now := collections()
	b.missed = now > b.seen+1
	if b.waited++; b.waited >= patience {
		b.waited = 0
		if p.exact() {
			b.regret.dropped(b.locked.age())
		} else {
			b.held = nil
			if patience > 1 {
				b.held = b.primary
			}
			p.demote(b)
			b.demoted = now
			p.wake(b)
		}
	}
	b.watch.Store(b.regret.watch())
	b.cycles.Add(1)
	// The old alarm stays until here, so that notice waits for what is under way;
	// and goes before the look at what is left, so that a later Put arms again.
	b.alarm.Store(nil)
	if b.primary != nil || b.held != nil || b.locked.kept() > 0 {
		p.arm(b)
		b.missed = b.missed || b.seen > now
	}
}

// idleAfter is how long a pool must be unused before idle acts.
const idleAfter = 20 * time.Millisecond

// wake has idle called. b.mu is held.
func (p *Pool[T]) wake(b *book[T]) {
	b.calls = b.sum().calls()
	b.delay = idleAfter
	if b.nap == nil {
		b.nap = time.AfterFunc(b.delay, p.idle)
	} else {
		b.nap.Reset(b.delay)
	}
}

// idle catches up with a collection that the pool missed. That happens where
// collections follow each other closely: an alarm's cleanup may run when the
// next one is on its way, and what is made while the collector marks outlives
// that collection, the next alarm too; and so does a victim that somebody looks
// at meanwhile. A pool in use is better off when a collection that it may have
// missed does not count. Until the next one is over, which may take long, idle
// comes back after twice the time.
func (p *Pool[T]) idle() {
	b := p.book.Load()
	b.mu.Lock()
	calls := b.sum().calls()
	unused := calls == b.calls
	b.calls = calls
	now := collections()
	again := false
	switch {
	case p.exact():
		again = b.alarm.Load() != nil
		if again && unused && (b.missed || now > b.seen) {
			p.ageLocked(b) // sets nap
			again = false
		}
	case b.held == nil && p.victim.Load() != nil:
		again = now == b.demoted && !(unused && b.missed)
		if !again {
			p.victim.Store(nil)
		}
	}
	if again {
		b.delay *= 2
		b.nap.Reset(b.delay)
	}
	b.mu.Unlock()
	p.dropLeaving(b)
}

// fold adds up the numbers of the generations that are freed. b.mu is held.
func (p *Pool[T]) fold(b *book[T]) {
	rest := b.past[:0]
	for _, g := range b.past {
		if g.first() != nil {
			rest = append(rest, g)
			continue
		}
		p.victim.CompareAndSwap(g, nil)
		b.total.add(g.counts)
		n := g.left()
		b.freed += uint64(n)
		b.regret.dropped(n)
	}
	clear(b.past[len(rest):])
	b.past = rest
}

// Drain drops all objects in the pool and returns how many there were. When it returns,
// Drop has returned for each of them, and for each that aged before. Objects that are put
// while Drain runs may stay in the pool.
func (p *Pool[T]) Drain() int {
	b := p.book.Load()
	if b == nil {
		return 0
	}
	if p.exact() {
		return p.drainLocked(b)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	p.fold(b)
	for _, g := range b.past {
		if g == p.victim.Load() {
			n += g.left()
		}
	}
	if b.primary != nil {
		n += left(b.primary.counts)
	}
	p.demote(b)
	p.victim.Store(nil)
	b.held = nil
	return n
}

// collections returns how many collections ended so far. The number changes
// while the world is stopped.
func collections() uint64 {
	s := [1]metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(s[:])
	return s[0].Value.Uint64()
}
