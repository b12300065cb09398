// Package pool keeps objects for reuse until the garbage collector shows that
// nobody wants them.
//
// [Pool] is sync.Pool's victim cache with a type, a bound, a hook for every
// object that leaves, and numbers. [Buffers] builds size-classed byte buffers on
// it.
package pool

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// A Pool keeps objects of type T that may be asked for again.
//
// An object that nobody takes out for two garbage collections leaves, also when
// nobody touches the pool. Each object that leaves for good is given to Drop,
// exactly once, so a pool can hold what must be closed: pipes, descriptors,
// mappings.
//
// One exception: a pool in use that spends more than an eighth of the time in
// New, for what it has let go just before, is patient, and keeps unused objects
// over up to 32 collections. A pool that nobody has touched since the last
// collection never is.
//
// There are two kinds of pools. One with Drop or Max takes a lock for each Get and
// Put, its CPU's own, and a Get finds whatever there is. One without takes none and
// costs nothing to age; there up to 16 objects of each busy CPU are out of the
// others' reach, until that CPU puts more or the objects age.
//
// A Pool is right for objects that cost more to make than to keep, that many
// goroutines need for a short while, and that are all alike. Which object Get
// returns is not specified. It is not a free list with a promise: what was Put
// may be gone at the next Get.
//
// The zero Pool works. The fields must not change after the first use, and a
// Pool must not be copied after it. All methods are safe for concurrent use. A
// Pool that nobody refers to any more ages until it is empty, and what it held
// is dropped; then it is collected.
//
// In the terms of the Go memory model, a call to Put(x) synchronizes before the
// call to Get that returns x, and before the call of Drop that x is given to; a
// call of New that returns x synchronizes before the call to Get that returns x.
//
// Built with the tag penstock_debug, a pool whose objects are pointers, slices,
// maps or channels panics when one is put twice, or was written to after it was
// put, and tells where that Put was; see also [Pool.Leaks]. It is much slower
// then.
type Pool[T any] struct {
	// New makes an object when Get finds none. If New is nil, Get returns the
	// zero T then. It runs on the goroutine of Get and may block.
	New func() T

	// Reset is called by Put, before anybody else can get the object. If it
	// reports false, the object is not kept but dropped.
	Reset func(T) bool

	// Drop is called exactly once for each object that leaves for good: aged
	// out, over Max, vetoed by Reset, or drained. It runs on the goroutine of
	// Put or Drain, or on one of the runtime's for objects that aged. It must
	// not block for long, and must not call Drain.
	Drop func(T)

	// Max is the most objects that the pool keeps; objects that users hold do
	// not count. 0 means no bound.
	Max int

	// local is the first of size shards: the primary generation, one shard per
	// CPU. It is nil while there is none. size never shrinks, is stored after
	// local and loaded before it, so local always has size shards or more.
	witness witness
	gate    gate
	size    atomic.Uintptr
	local   atomic.Pointer[shard[T]]
	victim  atomic.Pointer[past[T]] // the primary generation of the last cycle
	book    atomic.Pointer[book[T]] // all that is not needed on a hit
}

// exact reports whether the pool is of the kind with locked shards: whether
// somebody is told of each object that leaves, or counts on the bound.
func (p *Pool[T]) exact() bool { return p.Drop != nil || p.Max > 0 || debugging }

// Get takes an object out of the pool, or makes one with New. It never blocks,
// unless New does. The object belongs to the caller, who may Put it back.
func (p *Pool[T]) Get() T {
	if p == nil {
		panic("pool: Get of a nil Pool")
	}
	id := p.gate.enter()
	if size, first := p.size.Load(), p.local.Load(); uintptr(id) < size && first != nil {
		s := (*shard[T])(shardAt(unsafe.Pointer(first), id))
		raceEnter(unsafe.Pointer(s))
		// n wraps around if the magazine is empty: one comparison for both.
		if n := s.n - 1; n < uint(len(s.items)) {
			var zero T
			x := s.items[n]
			s.items[n] = zero
			s.n = n
			s.counts.hits.inc()
			raceLeave(unsafe.Pointer(s))
			p.gate.leave(id)
			return x
		}
		raceLeave(unsafe.Pointer(s))
	}
	return p.getSlow(id)
}

// Put gives x to the pool. After it x belongs to the pool, which hands it to a
// later Get or to Drop; the caller must not touch it again. It never blocks,
// unless Reset or Drop does.
func (p *Pool[T]) Put(x T) {
	if p == nil {
		panic("pool: Put to a nil Pool")
	}
	if p.Reset != nil && !p.Reset(x) {
		p.refuse(x)
		return
	}
	id := p.gate.enter()
	if size, first := p.size.Load(), p.local.Load(); uintptr(id) < size && first != nil {
		s := (*shard[T])(shardAt(unsafe.Pointer(first), id))
		raceEnter(unsafe.Pointer(s))
		if n := s.n; n < uint(len(s.items)) {
			s.items[n] = x
			s.n = n + 1
			s.counts.puts.inc()
			raceLeave(unsafe.Pointer(s))
			p.gate.leave(id)
			return
		}
		raceLeave(unsafe.Pointer(s))
	}
	p.putSlow(id, x)
}

// getSlow is Get when the magazine is empty, or there is none. The caller has
// entered the gate, and getSlow leaves it.
func (p *Pool[T]) getSlow(id int) T {
	var x T
	var found bool
	if p.exact() {
		p.gate.leave(id)
		x, found = p.getLocked(id)
	} else {
		x, found = p.getShared(id)
	}
	if !found && p.New != nil {
		x = p.make()
	}
	if debugging {
		p.witness.got(x)
	}
	return x
}

// make calls New, and times it if that matters.
func (p *Pool[T]) make() T {
	b := p.ledger()
	if !b.watch.Load() {
		return p.New()
	}
	start := time.Now()
	x := p.New()
	b.newTime.Add(int64(time.Since(start)))
	return x
}

// putSlow is Put when the magazine has no room, or there is none. The caller has
// entered the gate, and putSlow leaves it.
func (p *Pool[T]) putSlow(id int, x T) {
	if !p.exact() {
		p.putShared(id, x)
		return
	}
	p.gate.leave(id)
	if debugging {
		p.witness.put(x)
	}
	p.putLocked(id, x)
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

// Leaks returns, for each object that Get gave out and nobody put back, the stack
// of that Get. It is for tests of the pool's users, and returns nil unless the
// build has the tag penstock_debug.
func (p *Pool[T]) Leaks() []string { return p.witness.leaks() }
