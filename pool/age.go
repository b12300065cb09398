package pool

import (
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// A generation is what the pool took in during one cycle of the garbage
// collector, one shard a CPU. It lives through four phases, and moves on at the
// end of each collection:
//
//	primary --> victim --> retired --> memory for the next primary
//
// While it is primary, objects come and go. As the victim it only gives. When
// it retires it is unreachable for Get, and what is left in it is dropped. One
// collection later nobody can be at work in it any more, and it is used again.
//
// Nothing of this happens while the world is stopped. The collector's stops are
// only what ends the sections that may still work on a generation that moved on:
// a section is pinned, and the world does not stop while anybody is pinned.
type generation[T any] struct {
	shards []shard[T]

	older atomic.Pointer[generation[T]] // the victim before this one

	// Under book.mu.
	seen    int  // collections that it has seen
	drained bool // what was left in it is dropped

	bare bool // nothing is left in it; under book.dropping
}

// A book is the part of a pool that hits do not touch.
type book[T any] struct {
	dropping sync.Mutex // held while objects leave; before mu

	mu      sync.Mutex
	primary *generation[T] // what Pool.local points into
	victim  *generation[T] // what Pool.victim points to
	retired []*generation[T]
	armed   bool   // a sentinel is out; true while there is any generation
	cycles  int    // how often age did its work
	seen    uint64 // collections, as of the last time
	missed  bool   // there was more than one since the time before
	total   tally
	regret  regret
	nap     *time.Timer   // calls idle; not nil once armed
	delay   time.Duration // what nap waits for
	calls   uint64        // calls of the pool when nap was set

	room    atomic.Int64 // what is left of Max
	refused atomic.Uint64
	dropped atomic.Uint64

	watch   atomic.Bool  // New is to be timed
	newTime atomic.Int64 // what New took meanwhile, in nanoseconds
}

// ledger returns the pool's book, a new one at the first call.
func (p *Pool[T]) ledger() *book[T] {
	if b := p.book.Load(); b != nil {
		return b
	}
	b := &book[T]{}
	b.room.Store(int64(p.Max))
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
	if b.primary != nil {
		// There are more CPUs than there were. This is between collections, so
		// the next one does not count.
		p.demote(b)
		b.victim.seen = 0
	}
	b.primary = p.newGeneration(nil)
	p.publish(b.primary)
	if !b.armed {
		b.seen = collections()
	}
	p.arm(b)
}

// newGeneration returns an empty generation with a shard for each CPU. It is
// old, if that is one and large enough.
func (p *Pool[T]) newGeneration(old *generation[T]) *generation[T] {
	width := max(p.gate.width(), int(p.size.Load()))
	if old != nil && len(old.shards) >= width {
		return old
	}
	return &generation[T]{shards: make([]shard[T], width)}
}

// publish makes g, which may be nil, the primary generation. b.mu is held.
func (p *Pool[T]) publish(g *generation[T]) {
	if g == nil {
		p.local.Store(nil)
		return
	}
	p.local.Store(&g.shards[0])
	p.size.Store(max(p.size.Load(), uintptr(len(g.shards))))
}

// A sentinel is garbage from birth: its cleanup runs when a collection has
// ended. It is too large for the tiny allocator, which would tie its life to
// that of its neighbours.
type sentinel [4]uintptr

// arm asks for age after the next collection. The cleanup refers to p, so p
// lives on, reachable or not, until it has aged to nothing. b.mu is held.
func (p *Pool[T]) arm(b *book[T]) {
	if b.armed {
		return
	}
	b.armed = true
	runtime.AddCleanup(new(sentinel), func(p *Pool[T]) { p.age(true, false) }, p)
	if b.nap == nil {
		b.nap = time.AfterFunc(idleAfter, p.idle)
	} else {
		b.nap.Reset(idleAfter)
	}
	b.delay = idleAfter
	b.calls = b.sum().calls()
}

// idleAfter is how long a pool must be unused before idle acts.
const idleAfter = 20 * time.Millisecond

// idle catches up with a collection that an idle pool missed. That happens where
// collections follow each other closely: the sentinel's cleanup may run when the
// next one is on its way, and what is made while the collector marks outlives
// that collection, the next sentinel too. A pool in use is better off when such
// a collection does not count. While a sentinel is out, idle comes back after
// twice the time, for that collection may take long to end.
func (p *Pool[T]) idle() {
	b := p.book.Load()
	b.mu.Lock()
	if !b.armed {
		b.mu.Unlock()
		return
	}
	calls := b.sum().calls()
	unused := calls == b.calls
	missed := b.missed
	b.calls = calls
	b.delay *= 2
	b.nap.Reset(b.delay)
	b.mu.Unlock()
	if unused {
		if missed {
			p.gate.barrier()
		}
		p.age(false, missed)
	}
}

// collections returns how many collections ended so far. The number changes
// while the world is stopped.
func collections() uint64 {
	s := [1]metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(s[:])
	return s[0].Value.Uint64()
}

// demote makes the primary generation a victim. b.mu is held.
func (p *Pool[T]) demote(b *book[T]) {
	if b.primary == nil {
		return
	}
	// victim before local: a section that finds one generation as both treats
	// its own shard as primary only.
	b.primary.older.Store(b.victim)
	b.primary.seen = 1
	b.victim, b.primary = b.primary, nil
	p.victim.Store(b.victim)
}

// age moves every generation on, once for each collection while there is any
// generation. It does nothing if there was no collection since it last did,
// unless one was missed. It is told if the sentinel is gone that was armed.
func (p *Pool[T]) age(disarmed, missed bool) {
	b := p.book.Load()
	b.dropping.Lock()
	defer b.dropping.Unlock()

	b.mu.Lock()
	if disarmed {
		b.armed = false
	}
	now := collections()
	if now == b.seen && !missed {
		b.rest(p)
		b.mu.Unlock()
		return
	}
	b.cycles++
	b.missed = now > b.seen+1
	old := b.fold()
	stay := p.retire(b, b.regret.patience(b.sum(), b.newTime.Swap(0), time.Now()))
	leaving := b.leaving()
	b.mu.Unlock()

	p.gate.settle()
	for _, g := range stay {
		g.open()
	}
	n := p.empty(leaving)

	b.mu.Lock()
	defer b.mu.Unlock()
	b.regret.dropped(n)
	b.watch.Store(b.regret.watch())
	inUse := b.primary != nil && b.primary.touched()
	p.demote(b)
	if inUse {
		b.primary = p.newGeneration(old)
		b.primary.inherit(leaving)
	}
	p.publish(b.primary)
	// Not before publish: when the number is another one, the world was stopped
	// since, and nobody works any more on what was primary until now.
	b.seen = collections()
	b.missed = b.missed || b.seen > now
	b.rest(p)
}

// rest sees to the next call of age, if one is needed. b.mu is held.
func (b *book[T]) rest(p *Pool[T]) {
	if b.primary != nil || b.victim != nil || len(b.retired) > 0 {
		p.arm(b)
	} else if b.nap != nil {
		b.nap.Stop()
	}
}

// retire takes the victims that have seen more than patience collections, or
// have nothing left, out of reach. It returns the other victims.
// b.mu is held.
func (p *Pool[T]) retire(b *book[T], patience int) (stay []*generation[T]) {
	link := &p.victim
	for g := b.victim; g != nil; g = g.older.Load() {
		g.seen++
		if g.seen > patience || g.bare {
			link.Store(g.older.Load())
			b.retired = append(b.retired, g)
			continue
		}
		if g.seen > 1 {
			stay = append(stay, g)
		}
		link = &g.older
	}
	b.victim = p.victim.Load()
	return stay
}

// open opens all magazines of a victim that has seen two collections or more,
// for their CPUs have long left them, and notes whether nothing is left in it.
// b.dropping is held.
func (g *generation[T]) open() {
	left := 0
	for i := range g.shards {
		s := &g.shards[i]
		for !s.latch.holdFirst() && !s.latch.hold() {
			runtime.Gosched()
		}
		raceEnter(unsafe.Pointer(s))
		left += int(s.n)
		s.latch.release()
		for r := s.chain.tail.Load(); r != nil; r = r.next.Load() {
			left += r.len()
		}
	}
	g.bare = left == 0
}

// Drain drops all that is pooled and returns how many objects that were. When
// it returns, Drop has returned for each of them, and for each that was ageing
// out meanwhile; what is put while Drain runs may stay. It stops the world for
// a moment and is not for a hot path.
func (p *Pool[T]) Drain() int {
	b := p.book.Load()
	if b == nil {
		return 0
	}
	b.dropping.Lock()
	defer b.dropping.Unlock()

	b.mu.Lock()
	p.demote(b)
	p.publish(nil)
	p.retire(b, 0)
	leaving := b.leaving()
	b.mu.Unlock()

	p.gate.barrier()
	return p.empty(leaving)
}

// leaving returns the retired generations that are not empty yet. b.mu is held.
func (b *book[T]) leaving() []*generation[T] {
	var gs []*generation[T]
	for _, g := range b.retired {
		if !g.drained {
			gs = append(gs, g)
		}
	}
	return gs
}

// empty drops what is left in gs and returns how many objects that were. Nobody
// can reach gs any more but sections that began before the last collection
// or barrier, and those only to pop. b.dropping is held.
func (p *Pool[T]) empty(gs []*generation[T]) int {
	b := p.book.Load()
	some := make([]T, 4*magazineCap[T]())
	sum := 0
	for _, g := range gs {
		for i := range g.shards {
			s := &g.shards[i]
			s.latch.kill()
			raceEnter(unsafe.Pointer(s))
			p.giveRoom(len(s.items))
			sum += p.dropAll(s.items[:s.n])
			s.n, s.items = 0, s.items[:0]
			if p.Drop == nil && !debugging {
				n := s.chain.discard()
				b.dropped.Add(uint64(n))
				p.giveRoom(n)
				sum += n
				continue
			}
			for n := s.chain.popTail(some); n > 0; n = s.chain.popTail(some) {
				p.giveRoom(n)
				sum += p.dropAll(some[:n])
			}
		}
		b.mu.Lock()
		g.drained = true
		b.mu.Unlock()
	}
	return sum
}

// dropAll drops xs, clears them and returns how many they are.
func (p *Pool[T]) dropAll(xs []T) int {
	p.book.Load().dropped.Add(uint64(len(xs)))
	if debugging {
		for _, x := range xs {
			p.witness.left(x)
		}
	}
	if p.Drop != nil {
		for _, x := range xs {
			p.Drop(x)
		}
	}
	clear(xs)
	return len(xs)
}

// refuse drops x, which Put did not keep.
func (p *Pool[T]) refuse(x T) {
	p.ledger().refused.Add(1)
	if debugging {
		p.witness.left(x)
	}
	if p.Drop != nil {
		p.Drop(x)
	}
}

// touched reports whether any CPU used g.
func (g *generation[T]) touched() bool {
	for i := range g.shards {
		if g.shards[i].touched.Load() {
			return true
		}
	}
	return false
}

// fold adds the numbers of the retired generations up, forgets the generations,
// and returns one of them, as new, or nil. It is called after a collection that
// began after they retired, so nobody works in them. b.mu is held.
func (b *book[T]) fold() *generation[T] {
	var empty *generation[T]
	rest := b.retired[:0]
	for _, g := range b.retired {
		if !g.drained {
			rest = append(rest, g)
			continue
		}
		g.tally(&b.total)
		g.reset()
		empty = g
	}
	clear(b.retired[len(rest):])
	b.retired = rest
	return empty
}

// reset makes g as new.
func (g *generation[T]) reset() {
	g.older.Store(nil)
	g.seen, g.drained, g.bare = 0, false, false
	for i := range g.shards {
		s := &g.shards[i]
		raceEnter(unsafe.Pointer(s))
		*s = shard[T]{items: s.items[:0]}
	}
}

// inherit takes the chains' memory over from generations that are empty. Whoever
// still is at a ring there only pops, and will pop what is pushed here: a ring
// takes that as well as any thief. g is not published yet.
func (g *generation[T]) inherit(from []*generation[T]) {
	for _, old := range from {
		for i := range min(len(g.shards), len(old.shards)) {
			s, o := &g.shards[i], &old.shards[i]
			if r := o.chain.reuse(); r != nil && s.chain.head == nil {
				s.chain.head = r
				s.chain.tail.Store(r)
			}
			o.chain.head = nil
			o.chain.tail.Store(nil)
		}
	}
}
