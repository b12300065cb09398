package pool

import "sync/atomic"

// A ring is a bounded queue of objects with one producer and many consumers.
//
// The producer, which is the goroutine in the shard of the ring, pushes and pops at the
// head. Consumers, which may be any goroutine, pop at the tail. Both move several objects
// at once:
//
//	        tail            head
//	         v               v
//	... gone | o  o  o  o  o | free ...
//	 popTail ->             <- popHead, push ->
//
// Objects between tail and head belong to the ring. A goroutine that has moved an index
// owns the slots that the index has passed: it copies the objects out and clears the
// slots.
//
// The producer may write a slot again only when the consumer has cleared it. Therefore
// consumers add the number of slots that they have cleared to done. When done is equal to
// tail, every slot before tail is free, and the producer notes that in freeBefore. A slot
// has no mark of its own, so it is exactly a T.
type ring[T any] struct {
	headTail   atomic.Uint64 // head in the upper half, tail in the lower; both wrap
	done       atomic.Uint32 // objects that consumers have taken and cleared
	freeBefore uint32        // producer only: all slots before it are free

	slots []T // length is a power of two

	// next is set once, by the producer; prev is cleared by the consumer that
	// unlinks the ring before this one.
	next, prev atomic.Pointer[ring[T]]
}

func newRing[T any](size int) *ring[T] {
	return &ring[T]{slots: make([]T, size)}
}

func unpack(ht uint64) (head, tail uint32) { return uint32(ht >> 32), uint32(ht) }

// len returns how many objects the ring holds, as of some moment during the call.
func (r *ring[T]) len() int {
	head, tail := unpack(r.headTail.Load())
	return int(head - tail)
}

// push adds as many of xs as there is room for and returns how many.
// Producer only.
func (r *ring[T]) push(xs []T) int {
	// done before tail: done is never beyond tail, so if a tail read later is equal to it,
	// no consumer was clearing slots when done was read.
	done := r.done.Load()
	head, tail := unpack(r.headTail.Load())
	if done == tail {
		r.freeBefore = tail
	}
	size := uint32(len(r.slots))
	n := min(size-(head-r.freeBefore), uint32(len(xs)))
	if n == 0 {
		return 0
	}
	at := head & (size - 1)
	if m := copy(r.slots[at:], xs[:n]); m < int(n) {
		copy(r.slots, xs[m:n])
	}
	r.headTail.Add(uint64(n) << 32)
	return int(n)
}

// popHead moves up to len(to) of the youngest objects to to, oldest first, and
// returns how many. Producer only.
func (r *ring[T]) popHead(to []T) int {
	for {
		ht := r.headTail.Load()
		head, tail := unpack(ht)
		n := min(head-tail, uint32(len(to)))
		if n == 0 {
			return 0
		}
		head -= n
		if r.headTail.CompareAndSwap(ht, uint64(head)<<32|uint64(tail)) {
			r.take(to[:n], head)
			return int(n)
		}
	}
}

// popTail moves up to len(to) of the oldest objects to to, oldest first, and
// returns how many. It takes at most half of what is there, rounded up.
func (r *ring[T]) popTail(to []T) int {
	for {
		ht := r.headTail.Load()
		head, tail := unpack(ht)
		n := min((head-tail+1)/2, uint32(len(to)))
		if n == 0 {
			return 0
		}
		if r.headTail.CompareAndSwap(ht, uint64(head)<<32|uint64(tail+n)) {
			r.take(to[:n], tail)
			r.done.Add(n)
			return int(n)
		}
	}
}

// take copies the slots from index at to to and clears them.
func (r *ring[T]) take(to []T, at uint32) {
	at &= uint32(len(r.slots) - 1)
	first := r.slots[at:min(int(at)+len(to), len(r.slots))]
	m := copy(to, first)
	clear(first)
	if m < len(to) {
		rest := r.slots[:len(to)-m]
		copy(to[m:], rest)
		clear(rest)
	}
}

// A chain is an unbounded queue: a list of rings, each usually twice as long as the one
// before. The producer pushes to the youngest ring, and pops from it first;
// consumers pop from the oldest and unlink it when it is empty for good.
type chain[T any] struct {
	head *ring[T] // producer only
	tail atomic.Pointer[ring[T]]
}

// minRing is the length of a chain's first ring.
const minRing = 32

// push adds xs. Producer only.
func (c *chain[T]) push(xs []T) {
	r := c.head
	if r == nil {
		r = newRing[T](minRing)
		c.head = r
		c.tail.Store(r)
	}
	for {
		xs = xs[r.push(xs):]
		if len(xs) == 0 {
			return
		}
		// A ring may only seem full, while consumers clear slots.
		size := len(r.slots)
		if r.len() > size/2 {
			size *= 2
		}
		next := newRing[T](size)
		next.prev.Store(r)
		c.head = next
		r.next.Store(next)
		r = next
	}
}

// popHead moves up to len(to) objects to to and returns how many.
// Producer only.
func (c *chain[T]) popHead(to []T) int {
	for r := c.head; r != nil; r = r.prev.Load() {
		if n := r.popHead(to); n > 0 {
			return n
		}
	}
	return 0
}

// popTail moves up to len(to) objects to to and returns how many.
func (c *chain[T]) popTail(to []T) int {
	r := c.tail.Load()
	for r != nil {
		// next before the pop: nothing is pushed to a ring that has a successor, so if it
		// is empty after that, it stays empty and may be unlinked.
		next := r.next.Load()
		if n := r.popTail(to); n > 0 {
			return n
		}
		if next != nil && c.tail.CompareAndSwap(r, next) {
			next.prev.Store(nil)
		}
		r = next
	}
	return 0
}
