package pool

import (
	"unsafe"
)

// A pool without Drop and Max has shards without locks, in generations. A generation has
// the objects that were put between two collections:
//
//	primary --(a collection ended)--> victim --(the next one ends)--> gone
//
// Pool.local refers to the primary generation. The reference to the victim is weak:
// objects are taken out of it, and the next collection frees the rest together with the
// shards. Nothing has to be cleared, and it does not matter when the last goroutine leaves
// a generation.
//
// A shard is the part of a generation for one CPU: a magazine, which only that CPU uses,
// with plain loads and stores, and a chain, from which other CPUs take objects. Objects
// move between the two several at a time, so that many Gets and Puts share the atomic
// operations of the chain.
//
//	Put -> [ magazine ] -> half of it when full  -> [ chain ] -> other CPUs
//	Get <- [ magazine ] <- some of it when empty <- [ chain ]
//
// Other CPUs cannot take objects from a magazine. So a shard has one only after coldCalls
// calls in its generation. Until then objects go to the chain one by one, where all CPUs
// find them.
type shard[T any] struct {
	// items[:n] are the magazine's objects. It is nil while the shard is cold.
	items  []T
	n      uint
	counts *counts
	calls  uint // until there is a magazine
	_      [cacheLine - 6*unsafe.Sizeof(uintptr(0))]byte

	// Other CPUs read the chain, which is on another cache line than the fields above.
	chain chain[T]
	_     [shardSize - cacheLine - 2*unsafe.Sizeof(uintptr(0))]byte
}

const (
	cacheLine = 64
	shardSize = 2 * cacheLine // for objects of any type

	coldCalls = 256
)

// Capacity of a magazine: depth objects, less if they are large.
const (
	depth      = 16
	depthBytes = 512
)

func magazineCap[T any]() int {
	var x T
	return max(1, min(depth, depthBytes/int(max(1, unsafe.Sizeof(x)))))
}

// shardAt returns the shard i places after first. It is not generic, because the
// dictionary of a generic function would make Get and Put slower.
func shardAt(first unsafe.Pointer, i int) unsafe.Pointer {
	return unsafe.Add(first, i*shardSize)
}

// at returns the shard i places after s, which is the first of its generation.
func (s *shard[T]) at(i int) *shard[T] {
	return (*shard[T])(shardAt(unsafe.Pointer(s), i))
}

// enterShard begins a section in the caller's shard, and opens the pool first if it has to.
// The caller has entered the gate at id. enterShard returns the shard's number, which may be
// another one, the shards of its generation, and the shard. The shards are a slice because
// size may grow meanwhile, with a larger generation.
func (p *Pool[T]) enterShard(id int) (_ int, all []shard[T], s *shard[T]) {
	for {
		size := p.size.Load()
		if first := p.local.Load(); uintptr(id) < size && first != nil {
			all = unsafe.Slice(first, size)
			s = &all[id]
			raceEnter(unsafe.Pointer(s))
			return id, all, s
		}
		p.gate.leave(id)
		p.open(id)
		id = p.gate.enter()
	}
}

// leave ends the caller's section in s.
func (p *Pool[T]) leave(id int, s *shard[T]) {
	raceLeave(unsafe.Pointer(s))
	p.gate.leave(id)
}

// putShared is putSlow of a pool without locks.
func (p *Pool[T]) putShared(id int, x T) {
	id, _, s := p.enterShard(id)
	if s.cold() {
		// An object that is put after a collection must not go to a generation that the
		// next one frees, so a cold shard checks for a collection at each call.
		p.leave(id, s)
		p.notice()
		id, _, s = p.enterShard(p.gate.enter())
	}
	s.put(x)
	s.counts.puts.inc()
	p.leave(id, s)
}

// put puts x into s. The caller is in s.
func (s *shard[T]) put(x T) {
	if s.warm(); s.cold() {
		one := [1]T{x}
		s.chain.push(one[:])
		return
	}
	if n := len(s.items); int(s.n) == n {
		half := (n + 1) / 2
		s.chain.push(s.items[:half]) // the older half
		copy(s.items, s.items[half:])
		clear(s.items[n-half:])
		s.n = uint(n - half)
	}
	s.items[s.n] = x
	s.n++
}

// cold reports whether the shard has no magazine yet.
func (s *shard[T]) cold() bool { return s.items == nil }

// warm counts a call, and gives a cold shard a magazine after coldCalls.
func (s *shard[T]) warm() {
	if s.cold() {
		if s.calls++; s.calls > coldCalls {
			s.items = make([]T, magazineCap[T]())
		}
	}
}

// getShared is getSlow of a pool without locks.
func (p *Pool[T]) getShared(id int) (x T, found bool) {
	// The victim is only read if it is needed.
	var victim *oldGeneration[T]
	var s, old *shard[T]
	for {
		var all []shard[T]
		id, all, s = p.enterShard(id)
		if x, found = s.get(); !found {
			x, found = s.steal(all, id)
		}
		if !found && old != nil {
			x, found = victim.take(id, s, old)
		}
		// If the pool has aged meanwhile, there is a new victim.
		if found || p.victim.Load() == victim {
			break
		}
		p.leave(id, s)
		// Not in a section: this may wait for the collector.
		victim = p.victim.Load()
		if old = victim.first(); old == nil && victim != nil {
			p.victim.CompareAndSwap(victim, nil)
			victim = nil
		}
		id = p.gate.enter()
	}
	if !found {
		s.counts.misses.inc()
		if p.New != nil {
			s.counts.news.inc()
		}
	}
	s.warm()
	p.leave(id, s)
	return x, found
}

// get takes an object from the magazine of s, or from its chain. The caller is
// in s.
func (s *shard[T]) get() (x T, found bool) {
	if s.n > 0 {
		s.counts.hits.inc()
		x, s.n = s.keep(s.items, int(s.n))
		return x, true
	}
	var one [1]T
	to := s.batch(one[:])
	n := s.chain.popHead(to)
	if n == 0 {
		return x, false
	}
	s.counts.hits.inc()
	x, s.n = s.keep(to, n)
	return x, true
}

// batch returns where objects from a chain go while the magazine is empty: the
// magazine's first half, or one if there is no magazine.
func (s *shard[T]) batch(one []T) []T {
	if s.cold() {
		return one
	}
	return s.items[:(len(s.items)+1)/2]
}

// keep takes the last of the n objects in from, and returns how many are left.
func (s *shard[T]) keep(from []T, n int) (x T, rest uint) {
	x, from[n-1] = from[n-1], x
	return x, uint(n - 1)
}

// steal takes an object from another CPU's chain. The caller is in s, number id of
// its generation's shards, which are all.
func (s *shard[T]) steal(all []shard[T], id int) (x T, found bool) {
	var one [1]T
	to := s.batch(one[:])
	for i := 1; i < len(all); i++ {
		if n := all[(id+i)%len(all)].chain.popTail(to); n > 0 {
			s.counts.hits.inc()
			s.counts.steals.inc()
			x, s.n = s.keep(to, n)
			return x, true
		}
	}
	return x, false
}

// take takes an object from the victim g, whose shards begin at old. The caller is
// in s, shard number id of the primary generation. Objects leave one by one, so
// that what is not needed ages out.
func (g *oldGeneration[T]) take(id int, s, old *shard[T]) (x T, found bool) {
	var one [1]T
	for i := range g.counts {
		v := old.at((id + i) % len(g.counts))
		if i == 0 && id < len(g.counts) {
			// The caller's own magazine: the only one that it may touch.
			raceEnter(unsafe.Pointer(v))
			if found = v.n > 0; found {
				x, v.n = v.keep(v.items, int(v.n))
			}
			raceLeave(unsafe.Pointer(v))
		}
		if !found && v.chain.popTail(one[:]) > 0 {
			x, found = one[0], true
		}
		if found {
			if id < len(g.counts) {
				g.counts[id].taken.inc()
			} else {
				g.taken.Add(1)
			}
			s.counts.hits.inc()
			s.counts.victimHits.inc()
			if i > 0 {
				s.counts.steals.inc()
			}
			return x, true
		}
	}
	return x, false
}

// counts are the counters of one CPU in one generation. They outlive the generation's
// shards. Only the CPU writes them.
type counts struct {
	hits, puts         counter
	misses, news       counter
	steals, victimHits counter
	taken              counter // objects that it took out of this generation while that was the victim

	_ [2*cacheLine - 7*unsafe.Sizeof(uintptr(0))]byte
}

// left returns the number of objects in a generation with these counts.
func left(cs []counts) int {
	var in, out uint64
	for i := range cs {
		c := &cs[i]
		out += c.hits.load() - c.victimHits.load() + c.taken.load()
		in += c.puts.load()
	}
	return int(in - out)
}
