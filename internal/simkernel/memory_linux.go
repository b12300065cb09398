package simkernel

import "sync"

// memory lends blocks for bytes that are queued. One world has it after the other: new memory for each byte that moves took a third of the time.
type memory struct {
	all, free [memoryClasses][][]byte
}

const (
	blockSize     = 16 << 10
	memoryClasses = 2 // blocks, and what a piece of a Unix socket needs at most
)

var memories = sync.Pool{New: func() any { return new(memory) }}

// End ends a world, of which nothing may be used any more: the next one uses its memory.
func (w *World) End() {
	for _, f := range w.regions {
		if f.shared != nil {
			w.freeRegion(f.shared)
			f.shared = nil
		}
	}
	m := w.memory
	for class := range m.all {
		m.free[class] = append(m.free[class][:0], m.all[class]...)
	}
	w.memory = nil
	memories.Put(m)
}

func classOf(n int) int {
	if n <= blockSize {
		return 0
	}
	return 1
}

// get returns n bytes, with arbitrary contents.
func (m *memory) get(n int) (b []byte) {
	class := classOf(n)
	switch free := m.free[class]; {
	case n > unixPieceMost:
		return make([]byte, n)
	case len(free) > 0:
		b, m.free[class] = free[len(free)-1], free[:len(free)-1]
	default:
		b = make([]byte, max(blockSize, class*unixPieceMost))
		m.all[class] = append(m.all[class], b)
	}
	return b[:n]
}

// put takes back what get has returned.
func (m *memory) put(b []byte) {
	if cap(b) <= unixPieceMost {
		class := classOf(cap(b))
		m.free[class] = append(m.free[class], b)
	}
}

// queue is bytes in blocks of a memory.
type queue struct {
	m      *memory
	blocks [][]byte // of full capacity
	taken  int      // bytes of the first one
	n      int
}

func (q *queue) len() int { return q.n }

func (q *queue) put(p []byte) {
	q.n += len(p)
	for len(p) > 0 {
		last := len(q.blocks) - 1
		if last < 0 || len(q.blocks[last]) == blockSize {
			q.blocks = append(q.blocks, q.m.get(blockSize)[:0])
			last++
		}
		b := q.blocks[last]
		n := min(len(p), blockSize-len(b))
		q.blocks[last] = append(b, p[:n]...)
		p = p[n:]
	}
}

// take gives put the first n bytes, which are there, part by part.
func (q *queue) take(n int, put func([]byte)) {
	q.n -= n
	used := 0
	for n > 0 {
		b := q.blocks[used][q.taken:]
		b = b[:min(n, len(b))]
		put(b)
		n -= len(b)
		if q.taken += len(b); q.taken == len(q.blocks[used]) {
			q.m.put(q.blocks[used])
			q.taken = 0
			used++
		}
	}
	q.blocks = q.blocks[:copy(q.blocks, q.blocks[used:])]
}

func (q *queue) clear() { q.take(q.n, func([]byte) {}) }
