// Package pool keeps objects for reuse, until garbage collections show that they are no
// longer needed.
//
// [Pool] works like [sync.Pool]. In addition it has a type parameter, can be limited,
// calls a function for each object that leaves it, and has statistics. [Buffers] is a
// pool of byte buffers by size class.
package pool

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// A Pool keeps objects of type T for reuse.
//
// An object that stays in the pool for two garbage collections leaves it, even if the
// pool is not used any more. Drop is called exactly once for each object that leaves the
// pool for good, so the objects may be things that have to be closed: pipes, files,
// memory mappings.
//
// There is one exception. If a pool in use spends more than an eighth of the time in New
// to replace objects that have just left, it keeps unused objects for up to 32
// collections. This never applies to a pool that was not used since the last collection.
//
// A Pool with Drop or Max takes a lock in Get and Put, usually one of the current CPU
// only, and Get returns an object whenever there is one. Any other Pool takes no locks
// and ages at no cost, but up to 16 objects of each busy CPU are not available to other
// CPUs until that CPU puts more of them or they age.
//
// Use a Pool for interchangeable objects that cost more to make than to keep and that
// many goroutines need for a short time. Which object Get returns is not specified, and
// an object that was put may be gone at the next Get.
//
// The zero Pool is ready to use. Its fields must not be changed, and it must not be
// copied, after first use. Multiple goroutines may call its methods simultaneously. The
// objects of a Pool that is no longer referenced age and leave as usual.
//
// In the terminology of the Go memory model, a call to Put(x) “synchronizes before” the
// call to Get that returns x and the call to Drop(x), and a call to New that returns x
// “synchronizes before” the call to Get that returns x.
//
// With the build tag penstock_debug, a Pool of pointers, slices, maps or channels panics
// if an object is put twice or was modified after Put, and the message contains the
// stack of that Put. See also [Pool.Leaks]. The Pool is then much slower.
type Pool[T any] struct {
	// New makes an object if Get finds none. If New is nil, Get then returns the zero T.
	// New is called by Get, on its goroutine, and may block.
	New func() T

	// Reset, if not nil, is called by Put before the object can be used again. If it
	// returns false, the object is dropped.
	Reset func(T) bool

	// Drop, if not nil, is called exactly once for each object that leaves the pool for
	// good, because it aged, because of Max, Reset or Drain. It is called by Put and
	// Drain, or for objects that aged on a goroutine of the runtime. It must not block
	// for long and must not call Drain.
	Drop func(T)

	// Max is the maximum number of objects in the pool, not counting those in use; 0
	// means no limit.
	Max int

	// local is the first of the shards of the primary generation, one per CPU, or nil if
	// there is no primary generation. size is their number. It never shrinks, is stored
	// after local and loaded before it, so local always has at least size shards.
	tracker tracker
	gate    gate
	size    atomic.Uintptr
	local   atomic.Pointer[shard[T]]
	victim  atomic.Pointer[oldGeneration[T]] // the primary generation of the last cycle
	cold    atomic.Pointer[coldState[T]]     // everything that a hit does not need
}

// exact reports whether the pool has locked shards, because it calls Drop, has a Max, or
// is debugged.
func (p *Pool[T]) exact() bool { return p.Drop != nil || p.Max > 0 || debugging }

// Get takes an object out of the pool, or makes one with New if there is none. It blocks
// only if New does. The object belongs to the caller, who may give it back with Put.
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

// Put puts x into the pool, for a later Get or for Drop. The caller must not use x any
// more. Put blocks only if Reset or Drop does.
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

// getSlow is Get if the magazine is empty or there is none. The caller has entered the
// gate, and getSlow leaves it.
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
		p.tracker.got(x)
	}
	return x
}

// make calls New, and measures the time if retention needs it. A call that panics, or ends its
// goroutine, has made nothing.
func (p *Pool[T]) make() (x T) {
	cold := p.state()
	made := false
	defer func() {
		if !made {
			cold.failed.Add(1)
		}
	}()
	if !cold.timeNew.Load() {
		x = p.New()
	} else {
		start := time.Now()
		x = p.New()
		cold.newTime.Add(int64(time.Since(start)))
	}
	made = true
	return x
}

// putSlow is Put if the magazine is full or there is none. The caller has entered the
// gate, and putSlow leaves it.
func (p *Pool[T]) putSlow(id int, x T) {
	if !p.exact() {
		p.putShared(id, x)
		return
	}
	p.gate.leave(id)
	if debugging {
		p.tracker.put(x)
	}
	p.putLocked(id, x)
}

// refuse drops x, which Put does not keep.
func (p *Pool[T]) refuse(x T) {
	p.state().refused.Add(1)
	if debugging {
		p.tracker.left(x)
	}
	if p.Drop != nil {
		p.Drop(x)
	}
}

// Leaks returns the stack of the Get call of each object that was not put back. It is for
// tests, and returns nil without the build tag penstock_debug.
func (p *Pool[T]) Leaks() []string { return p.tracker.leaks() }
