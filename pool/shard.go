package pool

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// A shard is one CPU's part of a generation: a magazine that only its CPU
// touches, with plain loads and stores, and behind it a chain from which the
// other CPUs steal. Objects move between the two several at a time, so that many
// Gets and Puts share the chain's atomic operations.
//
//	Put -> [ magazine ] -> half of it when full  -> [ chain ] -> thieves
//	Get <- [ magazine ] <- some of it when empty <- [ chain ]
//
// In the victim generation nobody puts any more, and objects leave one by one.
// There thieves may take from the magazine too, under its latch.
type shard[T any] struct {
	// items[:n] are the magazine's objects. len(items) is how many it may hold
	// now: in a bounded pool, as many as it has room reserved for. It is 0 until
	// the CPU first touches the shard.
	items []T
	n     uint

	hits, puts counter
	chain      chain[T]

	latch   latch
	touched atomic.Bool // the CPU was here in this generation

	misses, news, steals, victimHits counter

	// A shard fills two cache lines: what its CPU writes on each call is in the
	// first, what thieves read is in the second.
	_ [shardSize - 12*unsafe.Sizeof(uintptr(0)) - 8]byte
}

// Capacity of a magazine: depth objects, less if they are large.
const (
	depth      = 16
	depthBytes = 512
)

func magazineCap[T any]() int {
	var x T
	return max(1, min(depth, depthBytes/int(max(1, unsafe.Sizeof(x)))))
}

// shardSize is the size of a shard, whatever its objects are.
const shardSize = 128

// shardAt returns the shard i places after first. It is not generic: a generic
// function needs its dictionary, and that shows in Get and Put.
func shardAt(first unsafe.Pointer, i int) unsafe.Pointer {
	return unsafe.Add(first, i*shardSize)
}

// at returns the shard i places after s, which is the first of its generation.
func (s *shard[T]) at(i int) *shard[T] {
	return (*shard[T])(shardAt(unsafe.Pointer(s), i))
}

// shard returns the primary shard number id, or nil if there is none. The caller
// has entered the gate and is in that shard from now on.
func (p *Pool[T]) shard(id int) *shard[T] {
	size, first := p.size.Load(), p.local.Load()
	if uintptr(id) >= size || first == nil {
		return nil
	}
	s := first.at(id)
	raceEnter(unsafe.Pointer(s))
	return s
}

// leave ends the caller's section in s.
func (p *Pool[T]) leave(id int, s *shard[T]) {
	raceLeave(unsafe.Pointer(s))
	p.gate.leave(id)
}

// touch makes s, the caller's primary shard, ready at the first visit in this
// generation.
func (p *Pool[T]) touch(id int, s *shard[T]) {
	s.touched.Store(true)
	n := magazineCap[T]()
	if p.Max > 0 {
		n = min(n, p.Max/(4*int(p.size.Load())))
	}
	if cap(s.items) != n {
		s.items = make([]T, n)
	}
	s.items = s.items[:n]
	if p.Max > 0 {
		s.items = s.items[:0]
	}
	// Being here, the CPU has left its shards of older generations, so that
	// others may look into the magazines there.
	for g := p.victim.Load(); g != nil && id < len(g.shards); g = g.older.Load() {
		if v := &g.shards[id]; v != s && v.latch.holdFirst() {
			raceEnter(unsafe.Pointer(v))
			p.giveRoom(len(v.items) - int(v.n))
			v.items = v.items[:v.n]
			v.latch.release()
		}
	}
}

// visit returns the shard that the caller is in, touched; it opens the pool
// first if it must. It returns the number anew, because opening means leaving.
func (p *Pool[T]) visit(id int) (int, *shard[T]) {
	s := p.shard(id)
	for s == nil {
		p.gate.leave(id)
		p.open(id)
		id = p.gate.enter()
		s = p.shard(id)
	}
	if !s.touched.Load() {
		p.touch(id, s)
	}
	return id, s
}

// putSlow is Put when the magazine has no room. The caller is in shard id.
func (p *Pool[T]) putSlow(id int, x T) {
	id, s := p.visit(id)
	if p.place(s, x) {
		s.puts.inc()
		p.leave(id, s)
		return
	}
	p.leave(id, s)
	p.refuse(x)
}

// place puts x into s. It reports false if the pool is full.
func (p *Pool[T]) place(s *shard[T], x T) bool {
	if n := int(s.n); n > 0 && n == cap(s.items) {
		// Spill the older half. Its room goes with it.
		half := (n + 1) / 2
		s.chain.push(s.items[:half])
		copy(s.items, s.items[half:])
		clear(s.items[n-half:])
		s.n = uint(n - half)
		if p.Max > 0 {
			s.items = s.items[:s.n]
		}
	}
	if want := cap(s.items) - len(s.items); want > 0 && int(s.n) == len(s.items) {
		// Only a bounded pool's magazine is shorter than it might be.
		s.items = s.items[:len(s.items)+p.takeRoom(want)]
	}
	if s.n < uint(len(s.items)) {
		s.items[s.n] = x
		s.n++
		return true
	}
	if cap(s.items) > 0 || p.takeRoom(1) == 0 {
		return false
	}
	// So tight a bound that no CPU may reserve any of it.
	one := [1]T{x}
	s.chain.push(one[:])
	return true
}

// getSlow is Get when the magazine is empty. The caller is in shard id.
func (p *Pool[T]) getSlow(id int) T {
	id, s := p.visit(id)
	var zero T
	if n := s.n; n > 0 { // another shard than the one Get saw
		x := s.items[n-1]
		s.items[n-1] = zero
		s.n = n - 1
		s.hits.inc()
		p.leave(id, s)
		return x
	}
	var one [1]T
	to := s.items[:cap(s.items)]
	if len(to) == 0 {
		to = one[:]
	}
	if n := p.find(id, s, to); n > 0 {
		x := to[n-1]
		to[n-1] = zero
		s.n = uint(n - 1)
		if p.Max > 0 {
			// Keep room for x to come back, as far as a magazine may.
			room := len(s.items) + n
			s.items = s.items[:min(room, cap(s.items))]
			p.giveRoom(room - len(s.items))
		}
		s.hits.inc()
		p.leave(id, s)
		return x
	}
	s.misses.inc()
	if p.New == nil {
		p.leave(id, s)
		return zero
	}
	s.news.inc()
	p.leave(id, s)
	if b := p.book.Load(); b.watch.Load() {
		start := time.Now()
		x := p.New()
		b.newTime.Add(int64(time.Since(start)))
		return x
	}
	return p.New()
}

// find moves one or more objects to to, from where the caller, who is in shard
// number id, may take them: its own chain, the other CPUs' chains, the victims.
// The magazine of s is empty, and to may be its memory.
func (p *Pool[T]) find(id int, s *shard[T], to []T) int {
	some := to[:(len(to)+1)/2]
	if n := s.chain.popHead(some); n > 0 {
		return n
	}
	// size before local, as everywhere. By now local may be another generation
	// than that of s, or nil; its chains are as good.
	if size, first := int(p.size.Load()), p.local.Load(); first != nil {
		for i := 1; i < size; i++ {
			if n := first.at((id + i) % size).chain.popTail(some); n > 0 {
				s.steals.inc()
				return n
			}
		}
	}
	// The victims last, and one at a time, so that what is not needed ages out.
	for g := p.victim.Load(); g != nil; g = g.older.Load() {
		for i := range g.shards {
			v := &g.shards[(id+i)%len(g.shards)]
			if v == s {
				continue // caught in the change of generations: still the primary
			}
			if v.popMagazine(to) || v.chain.popTail(to[:1]) > 0 {
				s.victimHits.inc()
				if i > 0 {
					s.steals.inc()
				}
				return 1
			}
		}
	}
	return 0
}

// popMagazine moves the youngest object of a victim's magazine to to[0].
func (v *shard[T]) popMagazine(to []T) bool {
	if !v.latch.hold() {
		return false
	}
	n := v.n
	if n > 0 {
		var zero T
		to[0] = v.items[n-1]
		v.items[n-1] = zero
		v.n = n - 1
		v.items = v.items[:n-1] // the room goes with the object
	}
	v.latch.release()
	return n > 0
}

// takeRoom takes room for up to want objects from what is left of Max.
func (p *Pool[T]) takeRoom(want int) int {
	room := &p.book.Load().room
	for {
		left := room.Load()
		n := min(left, int64(want))
		if n <= 0 {
			return 0
		}
		if room.CompareAndSwap(left, left-n) {
			return int(n)
		}
	}
}

// giveRoom gives room for n objects back.
func (p *Pool[T]) giveRoom(n int) {
	if n > 0 && p.Max > 0 {
		p.book.Load().room.Add(int64(n))
	}
}
