package relay

import "time"

// ref names a flow for as long as its slot is not used again.
type ref struct{ index, gen uint32 }

// slab holds a loop's flows in chunks that never move, and uses slots again.
type slab struct {
	chunks [][]Flow
	free   uint32 // index+1 of the first free slot, linked by Flow.nextFree
	live   int
}

const slabChunk = 64

// take gives an unused flow, with its next generation.
func (s *slab) take() *Flow {
	if s.free == 0 {
		base := uint32(len(s.chunks) * slabChunk)
		c := make([]Flow, slabChunk)
		for i := range c {
			c[i].index = base + uint32(i)
			c[i].nextFree = base + uint32(i) + 2
		}
		c[slabChunk-1].nextFree = 0
		s.chunks = append(s.chunks, c)
		s.free = base + 1
	}
	f := s.at(s.free - 1)
	s.free = f.nextFree
	s.live++
	gen := f.gen + 1
	if gen == 0 {
		gen = 1
	}
	f.gen = gen
	return f
}

// put takes a flow back; refs to it find nothing from now on.
func (s *slab) put(f *Flow) {
	*f = Flow{index: f.index, gen: f.gen, nextFree: s.free}
	s.free = f.index + 1
	s.live--
}

func (s *slab) at(i uint32) *Flow { return &s.chunks[i/slabChunk][i%slabChunk] }

// find gives the flow that r names, nil if it has ended.
func (s *slab) find(r ref) *Flow {
	if int(r.index/slabChunk) >= len(s.chunks) {
		return nil
	}
	if f := s.at(r.index); f.gen == r.gen && f.state != flowFree {
		return f
	}
	return nil
}

func (s *slab) each(do func(*Flow)) {
	for _, c := range s.chunks {
		for i := range c {
			if c[i].state != flowFree {
				do(&c[i])
			}
		}
	}
}

// lagRef is a flow, and since when it may be held back.
type lagRef struct {
	ref
	at time.Duration
}

// queue is a first-in-first-out ring.
type queue[T any] struct {
	ring []T
	head int
	n    int
}

func (q *queue[T]) len() int  { return q.n }
func (q *queue[T]) first() *T { return &q.ring[q.head] }

func (q *queue[T]) push(v T) {
	if q.n == len(q.ring) {
		grown := make([]T, max(16, 2*q.n))
		for i := range q.n {
			grown[i] = q.ring[(q.head+i)%len(q.ring)]
		}
		q.ring, q.head = grown, 0
	}
	q.ring[(q.head+q.n)%len(q.ring)] = v
	q.n++
}

func (q *queue[T]) pop() T {
	v := q.ring[q.head]
	q.head = (q.head + 1) % len(q.ring)
	q.n--
	return v
}
