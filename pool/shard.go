package pool

import (
	"unsafe"
)

// A pool without Drop and Max has shards that need no lock, in generations. A
// generation is what the pool took in between two collections:
//
//	primary --(a collection ended)--> victim --(the next one ends)--> gone
//
// The primary generation is reached through Pool.local. The victim is only
// weakly referred to: objects are taken out of it, and the next collection frees
// what is left, with all that the pool had to keep it. Nothing is cleared or
// walked, and nobody has to know when the last user has left a generation.
//
// A shard is one CPU's part of a generation: a magazine that only its CPU
// touches, with plain loads and stores, and behind it a chain from which the
// other CPUs take. Objects move between the two several at a time, so that many
// Gets and Puts share the chain's atomic operations.
//
//	Put -> [ magazine ] -> half of it when full  -> [ chain ] -> other CPUs
//	Get <- [ magazine ] <- some of it when empty <- [ chain ]
//
// What is in a magazine no other CPU can take. So a CPU has one only after
// coldCalls calls in this generation. Until then objects go to the chain one by
// one, where everybody finds them.
type shard[T any] struct {
	// items[:n] are the magazine's objects. It is nil while the shard is cold.
	items  []T
	n      uint
	counts *counts
	calls  uint // until there is a magazine
	_      [cacheLine - 6*unsafe.Sizeof(uintptr(0))]byte

	// What other CPUs read is on another cache line than what this one writes.
	chain chain[T]
	_     [shardSize - cacheLine - 2*unsafe.Sizeof(uintptr(0))]byte
}

const (
	cacheLine = 64
	shardSize = 2 * cacheLine // whatever the objects are

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

// shardAt returns the shard i places after first. It is not generic: a generic
// function needs its dictionary, and that shows in Get and Put.
func shardAt(first unsafe.Pointer, i int) unsafe.Pointer {
	return unsafe.Add(first, i*shardSize)
}

// at returns the shard i places after s, which is the first of its generation.
func (s *shard[T]) at(i int) *shard[T] {
	return (*shard[T])(shardAt(unsafe.Pointer(s), i))
}

// visit takes the caller, who has entered the gate at id, into its shard; it
// opens the pool first if it must. It returns the shard and its number, which may
// be another one then, and the shards of its generation. Those are a slice, because
// size may grow meanwhile, with a wider generation.
func (p *Pool[T]) visit(id int) (_ int, all []shard[T], s *shard[T]) {
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
	id, _, s := p.visit(id)
	if s.cold() {
		// What is put after a collection must not go where the next one will
		// free it, so a cold shard looks at each call whether there was one.
		p.leave(id, s)
		p.notice()
		id, _, s = p.visit(p.gate.enter())
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

// warm counts a call, and gives a cold shard its magazine when it is time.
func (s *shard[T]) warm() {
	if s.cold() {
		if s.calls++; s.calls > coldCalls {
			s.items = make([]T, magazineCap[T]())
		}
	}
}

// getShared is getSlow of a pool without locks.
func (p *Pool[T]) getShared(id int) (x T, found bool) {
	// The victim is looked at only when it is needed.
	var victim *past[T]
	var s, old *shard[T]
	for {
		var all []shard[T]
		id, all, s = p.visit(id)
		if x, found = s.get(); !found {
			x, found = s.steal(all, id)
		}
		if !found && old != nil {
			x, found = victim.take(id, s, old)
		}
		// If the generations moved on meanwhile, there is another place to look.
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
func (g *past[T]) take(id int, s, old *shard[T]) (x T, found bool) {
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

// counts are what one CPU did in one generation. They outlive the generation's
// shards. Only the CPU writes them.
type counts struct {
	hits, puts         counter
	misses, news       counter
	steals, victimHits counter
	taken              counter // objects that it took out of this generation when that was the victim

	_ [2*cacheLine - 7*unsafe.Sizeof(uintptr(0))]byte
}

// left returns how many objects are left of a generation with these counts.
func left(cs []counts) int {
	var in, out uint64
	for i := range cs {
		c := &cs[i]
		out += c.hits.load() - c.victimHits.load() + c.taken.load()
		in += c.puts.load()
	}
	return int(in - out)
}
