package pool

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// A pool with Drop or Max always has the same shards, each with a lock. A lock costs a few
// nanoseconds, and makes each object available to each CPU at any time: to Get, Drain,
// ageing and the count.
//
//	Put -> young --(a collection ended)--> old --(the next one ended)--> leaving -> Drop
//
// Objects move from one slice to another under the lock, or with the whole slice.
type lockedShard[T any] struct {
	mu         sync.Mutex // locked after coldState.mu
	young, old []T
	tally      tally
	calls      uint
	_          [2*cacheLine - 2*unsafe.Sizeof([]T(nil)) - unsafe.Sizeof(sync.Mutex{}) - unsafe.Sizeof(tally{}) - unsafe.Sizeof(uint(0))]byte
}

// locked is the part of coldState for a pool with Drop or Max.
type locked[T any] struct {
	shards []lockedShard[T]
	size   atomic.Int64 // objects, if there is a Max
	gone   atomic.Uint64

	dropping sync.Mutex // held while objects are dropped; locked before coldState.mu

	leaving [][]T // to be dropped; under coldState.mu
}

// noticeEvery is how many calls of a shard there are for each check whether a collection
// has ended.
const noticeEvery = 16

// getLocked is getSlow of a pool with locks.
func (p *Pool[T]) getLocked(id int) (x T, found bool) {
	l := &p.state().locked
	id %= len(l.shards)
	if x, found = l.get(p, id); found {
		if p.Max > 0 {
			l.size.Add(-1)
		}
		return x, true
	}
	s := &l.shards[id]
	s.mu.Lock()
	s.tally.misses++
	if p.New != nil {
		s.tally.news++
	}
	s.mu.Unlock()
	return x, false
}

// get takes an object from shard id or one of the others, an old one only if
// there is no young one.
func (l *locked[T]) get(p *Pool[T], id int) (x T, found bool) {
	for _, old := range [...]bool{false, true} {
		for i := range l.shards {
			s := &l.shards[(id+i)%len(l.shards)]
			if i == 0 && !old {
				p.lock(s)
			} else {
				s.mu.Lock()
			}
			if x, found = s.take(old); found {
				if i > 0 {
					s.tally.steals++
				}
				s.mu.Unlock()
				return x, true
			}
			s.mu.Unlock()
		}
	}
	return x, false
}

// lock locks s, the caller's own shard, and sometimes checks whether a collection has
// ended.
func (p *Pool[T]) lock(s *lockedShard[T]) {
	s.mu.Lock()
	if s.calls++; s.calls%noticeEvery == 1 {
		s.mu.Unlock()
		p.notice()
		s.mu.Lock()
	}
}

// take takes the youngest object, or the youngest old one. s.mu is held.
func (s *lockedShard[T]) take(old bool) (x T, found bool) {
	from := &s.young
	if old {
		from = &s.old
	}
	n := len(*from) - 1
	if n < 0 {
		return x, false
	}
	x, (*from)[n] = (*from)[n], x
	*from = (*from)[:n]
	s.tally.hits++
	if old {
		s.tally.victimHits++
	}
	return x, true
}

// putLocked is putSlow of a pool with locks.
func (p *Pool[T]) putLocked(id int, x T) {
	cold := p.state()
	l := &cold.locked
	if p.Max > 0 && !l.takeRoom(int64(p.Max)) {
		p.refuse(x)
		return
	}
	s := &l.shards[id%len(l.shards)]
	p.lock(s)
	s.young = append(s.young, x)
	s.tally.puts++
	s.mu.Unlock()
	// Arm after the object has been added, because ageing disarms a pool that is empty.
	if cold.notifier.Load() == nil {
		cold.mu.Lock()
		p.arm(cold)
		cold.mu.Unlock()
	}
}

// takeRoom counts one more object, unless there are already as many as most.
func (l *locked[T]) takeRoom(most int64) bool {
	for {
		n := l.size.Load()
		if n >= most {
			return false
		}
		if l.size.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// kept returns the number of objects.
func (l *locked[T]) kept() int {
	n := 0
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		n += len(s.young) + len(s.old)
		s.mu.Unlock()
	}
	return n
}

// age lets the old objects leave, makes the young ones old, and returns how many leave.
// coldState.mu is held.
func (l *locked[T]) age() int {
	n := 0
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		n += l.leave(s.old)
		s.old, s.young = s.young, nil
		s.mu.Unlock()
	}
	return n
}

// leave adds xs to the objects to be dropped and returns how many they are.
// coldState.mu is held.
func (l *locked[T]) leave(xs []T) int {
	if len(xs) > 0 {
		l.leaving = append(l.leaving, xs)
	}
	return len(xs)
}

// drainLocked is Drain of a pool with locks.
func (p *Pool[T]) drainLocked(cold *coldState[T]) int {
	l := &cold.locked
	l.dropping.Lock()
	defer l.dropping.Unlock()
	cold.mu.Lock()
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		l.leave(s.old)
		l.leave(s.young)
		s.old, s.young = nil, nil
		s.mu.Unlock()
	}
	cold.mu.Unlock()
	return p.drop(cold)
}

// dropLeaving drops the objects that leave, and returns when all of them are dropped.
func (p *Pool[T]) dropLeaving(cold *coldState[T]) {
	cold.locked.dropping.Lock()
	defer cold.locked.dropping.Unlock()
	p.drop(cold)
}

// dropSlice is how long the pool drops objects without yielding. Stopping the world may
// take that much longer.
const dropSlice = 50 * time.Microsecond

// drop drops the objects that leave and returns how many they were. locked.dropping is
// held.
func (p *Pool[T]) drop(cold *coldState[T]) int {
	l := &cold.locked
	n := 0
	start := time.Now()
	for {
		cold.mu.Lock()
		all := l.leaving
		l.leaving = nil
		cold.mu.Unlock()
		if len(all) == 0 {
			return n
		}
		for _, xs := range all {
			for i := range xs {
				p.dropOne(l, &xs[i])
				if time.Since(start) > dropSlice {
					runtime.Gosched()
					start = time.Now()
				}
			}
			n += len(xs)
		}
	}
}

// dropOne drops *x and clears it.
func (p *Pool[T]) dropOne(l *locked[T], x *T) {
	if p.Max > 0 {
		l.size.Add(-1)
	}
	l.gone.Add(1)
	if debugging {
		p.tracker.left(*x)
	}
	if p.Drop != nil {
		p.Drop(*x)
	}
	var zero T
	*x = zero
}
