package pool

import (
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
	"weak"
)

// coldState is the part of a pool that a hit does not use.
type coldState[T any] struct {
	mu        sync.Mutex
	retention retention
	skipped   int // collections since the last step of ageing

	timeNew  atomic.Bool  // New is timed
	newTime  atomic.Int64 // of New while timeNew is set, in nanoseconds
	refused  atomic.Uint64
	failed   atomic.Uint64            // calls of New that did not return
	steps    atomic.Uint64            // of ageing
	notifier atomic.Pointer[notifier] // of the end of the next collection; nil if the pool is empty

	// For collections that follow each other too fast for the notifier; under mu. See onIdle.
	cyclesAtArm  uint64        // collections when the notifier was set
	missedCycle  bool          // more than one ended between the last two notifications
	idleTimer    *time.Timer   // calls onIdle
	idleDelay    time.Duration // of idleTimer
	callsAtTimer uint64        // calls of the pool when idleTimer was set

	// For a pool without locks; under mu.
	primary        *generation[T]      // Pool.local points to its first shard
	retained       *generation[T]      // the victim, while a step of ageing takes more than one collection
	old            []*oldGeneration[T] // the victim and older ones, until they are freed
	cyclesAtDemote uint64              // collections when the victim was demoted
	total          tally               // of the generations that were freed
	freed          uint64              // objects that were freed with them

	locked locked[T] // for a pool with Drop or Max
}

// A generation has the shards of all CPUs between two collections.
type generation[T any] struct {
	shards []shard[T]
	counts []counts
}

// An oldGeneration is a generation that is no longer the primary one. It refers to its
// shards weakly: the collector frees them unless a goroutine is using one.
type oldGeneration[T any] struct {
	shards weak.Pointer[shard[T]]
	counts []counts
	taken  atomic.Int64 // by CPUs that had no shard in it
}

// left returns the number of objects that are left in g.
func (g *oldGeneration[T]) left() int { return left(g.counts) - int(g.taken.Load()) }

// first returns the first of the shards, or nil if they have been freed. It must not be
// called in a section, because it may wait for the collector.
func (g *oldGeneration[T]) first() *shard[T] {
	if g == nil {
		return nil
	}
	return g.shards.Value()
}

// state returns the pool's coldState, which it makes at the first call.
func (p *Pool[T]) state() *coldState[T] {
	if cold := p.cold.Load(); cold != nil {
		return cold
	}
	cold := &coldState[T]{}
	if p.exact() {
		cold.locked.shards = make([]lockedShard[T], p.gate.width())
	}
	p.cold.CompareAndSwap(nil, cold)
	return p.cold.Load()
}

// open makes a primary generation with a shard of number id.
func (p *Pool[T]) open(id int) {
	cold := p.state()
	cold.mu.Lock()
	defer cold.mu.Unlock()
	if cold.primary != nil && id < len(cold.primary.shards) {
		return
	}
	p.demote(cold) // there may be more CPUs than there were
	width := max(p.gate.width(), int(p.size.Load()))
	g := &generation[T]{shards: make([]shard[T], width), counts: make([]counts, width)}
	for i := range g.shards {
		g.shards[i].counts = &g.counts[i]
	}
	cold.primary = g
	p.local.Store(&g.shards[0])
	p.size.Store(uintptr(width))
	p.arm(cold)
}

// demote makes the primary generation the victim. cold.mu is held.
func (p *Pool[T]) demote(cold *coldState[T]) {
	g := cold.primary
	if g == nil {
		return
	}
	old := &oldGeneration[T]{shards: weak.Make(&g.shards[0]), counts: g.counts}
	cold.old = append(cold.old, old)
	cold.primary = nil
	// victim before local: a Get that finds nothing in the primary generation checks
	// for a new victim.
	p.victim.Store(old)
	p.local.Store(nil)
}

// A notifier reports, once, that a collection has ended: a cleanup is called, which may
// take a while, and weak is cleared, which happens at once.
type notifier struct {
	weak weak.Pointer[sentinel]
}

// A sentinel is an object that nothing refers to, and that the next collection frees. It
// is too large for the tiny allocator, which would free it together with its neighbours.
// A sentinel made while the collector marks survives that collection.
type sentinel [4]uintptr

// arm sets a notifier for the end of the next collection, unless there is one. The cleanup
// refers to p, so p is not freed before that. cold.mu is held.
func (p *Pool[T]) arm(cold *coldState[T]) {
	if cold.notifier.Load() != nil {
		return
	}
	a := &notifier{weak.Make(new(sentinel))}
	cold.notifier.Store(a)
	// This is a second sentinel, because reading a weak pointer while the collector marks
	// keeps the object alive.
	runtime.AddCleanup(new(sentinel), func(a *notifier) { p.collected(a) }, a)
	cold.cyclesAtArm = collections()
	if p.exact() {
		p.startIdleTimer(cold)
	}
}

// collected is called by the cleanup of a, when a collection has ended.
func (p *Pool[T]) collected(a *notifier) {
	cold := p.cold.Load()
	p.age(cold, a)
	p.dropLeaving(cold)
}

// notice ages the pool if a collection has ended and the cleanup has not run yet. It must
// not be called in a section.
func (p *Pool[T]) notice() {
	if cold := p.cold.Load(); cold != nil {
		if a := cold.notifier.Load(); a != nil && a.weak.Value() == nil {
			p.age(cold, a)
		}
	}
}

// age makes one step of ageing for each notifier.
func (p *Pool[T]) age(cold *coldState[T], a *notifier) {
	cold.mu.Lock()
	defer cold.mu.Unlock()
	if cold.notifier.Load() == a {
		p.ageLocked(cold)
	}
}

// ageLocked is age with cold.mu held.
func (p *Pool[T]) ageLocked(cold *coldState[T]) {
	p.fold(cold)
	wanted := cold.retention.cyclesPerStep(cold.sum(), cold.newTime.Swap(0), time.Now())
	now := collections()
	cold.missedCycle = now > cold.cyclesAtArm+1
	if cold.skipped++; cold.skipped >= wanted {
		cold.skipped = 0
		if p.exact() {
			cold.retention.aged(cold.locked.age())
		} else {
			cold.retained = nil
			if wanted > 1 {
				cold.retained = cold.primary
			}
			p.demote(cold)
			cold.cyclesAtDemote = now
			p.startIdleTimer(cold)
		}
	}
	cold.timeNew.Store(cold.retention.needsNewTime())
	cold.steps.Add(1)
	// The old notifier stays until here, so that notice waits for this step. It is removed
	// before the pool is checked for objects, so that a later Put arms again.
	cold.notifier.Store(nil)
	if cold.primary != nil || cold.retained != nil || cold.locked.kept() > 0 {
		p.arm(cold)
		cold.missedCycle = cold.missedCycle || cold.cyclesAtArm > now
	}
}

// idleAfter is how long a pool must be unused before onIdle ages it.
const idleAfter = 20 * time.Millisecond

// startIdleTimer has onIdle called after idleAfter. cold.mu is held.
func (p *Pool[T]) startIdleTimer(cold *coldState[T]) {
	cold.callsAtTimer = cold.sum().calls()
	cold.idleDelay = idleAfter
	if cold.idleTimer == nil {
		cold.idleTimer = time.AfterFunc(cold.idleDelay, p.onIdle)
	} else {
		cold.idleTimer.Reset(cold.idleDelay)
	}
}

// onIdle makes up for a collection that the pool has missed, if the pool is not in use.
// The pool misses collections that follow each other closely: a notifier's cleanup may run
// during the next collection, and objects that are made while the collector marks survive
// that collection. This applies to the next notifier, and to a victim that is read
// meanwhile. For a pool in use it is better that a missed collection does not count. While
// it is not known whether a collection was missed, onIdle is called again after twice the
// time.
func (p *Pool[T]) onIdle() {
	cold := p.cold.Load()
	cold.mu.Lock()
	calls := cold.sum().calls()
	unused := calls == cold.callsAtTimer
	cold.callsAtTimer = calls
	now := collections()
	again := false
	switch {
	case p.exact():
		again = cold.notifier.Load() != nil
		if again && unused && (cold.missedCycle || now > cold.cyclesAtArm) {
			p.ageLocked(cold) // starts the timer
			again = false
		}
	case cold.retained == nil && p.victim.Load() != nil:
		again = now == cold.cyclesAtDemote && !(unused && cold.missedCycle)
		if !again {
			p.victim.Store(nil)
		}
	}
	if again {
		cold.idleDelay *= 2
		cold.idleTimer.Reset(cold.idleDelay)
	}
	cold.mu.Unlock()
	p.dropLeaving(cold)
}

// fold adds the statistics of the generations that have been freed to those of the pool.
// cold.mu is held.
func (p *Pool[T]) fold(cold *coldState[T]) {
	rest := cold.old[:0]
	for _, g := range cold.old {
		if g.first() != nil {
			rest = append(rest, g)
			continue
		}
		p.victim.CompareAndSwap(g, nil)
		cold.total.add(g.counts)
		n := g.left()
		cold.freed += uint64(n)
		cold.retention.aged(n)
	}
	clear(cold.old[len(rest):])
	cold.old = rest
}

// Drain drops all objects in the pool and returns how many there were. When it returns,
// Drop has returned for each of them, and for each that aged before. Objects that are put
// while Drain runs may stay in the pool.
func (p *Pool[T]) Drain() int {
	cold := p.cold.Load()
	if cold == nil {
		return 0
	}
	if p.exact() {
		return p.drainLocked(cold)
	}
	cold.mu.Lock()
	defer cold.mu.Unlock()
	n := 0
	p.fold(cold)
	for _, g := range cold.old {
		if g == p.victim.Load() {
			n += g.left()
		}
	}
	if cold.primary != nil {
		n += left(cold.primary.counts)
	}
	p.demote(cold)
	p.victim.Store(nil)
	cold.retained = nil
	return n
}

// collections returns the number of collections that have ended. It changes while the
// world is stopped.
func collections() uint64 {
	s := [1]metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(s[:])
	return s[0].Value.Uint64()
}
