package upstream

import (
	"sync"
	"sync/atomic"
)

// queue is who waits for a slot of a group, in the order of arrival. Who leaves
// takes constant time.
//
// No wake-up is lost: who enters counts itself before it looks for a free slot,
// and who gives a slot back does so before it looks at the count. One of the two
// sees the other.
type queue struct {
	n           atomic.Int32
	total       atomic.Uint64 // flows that came to wait
	mu          sync.Mutex
	first, last *Lease
	closed      bool // nobody may wait any more
}

func (q *queue) len() int { return int(q.n.Load()) }

// enter puts l last, or says that size flows wait already. If l is the only one,
// it is first asked once more whether there is a member.
func (q *queue) enter(l *Lease, r Resumer, size int, pick func() *Member) (m *Member, full bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := int(q.n.Load())
	if n >= size || q.closed {
		return nil, true
	}
	q.n.Add(1)
	q.total.Add(1)
	if n == 0 {
		if m = pick(); m != nil {
			q.n.Add(-1)
			l.member = m
			return m, false
		}
	}
	l.everQueued, l.state, l.resume = true, queued, r
	l.prev, l.next = q.last, nil
	if q.last != nil {
		q.last.next = l
	} else {
		q.first = l
	}
	q.last = l
	return nil, false
}

// next reserves a member for the first who can use one, takes that lease out
// and returns whom to resume; nil if nobody can go on.
func (q *queue) next(pick func(*Lease) *Member) Resumer {
	q.mu.Lock()
	defer q.mu.Unlock()
	for l := q.first; l != nil; l = l.next {
		if m := pick(l); m != nil {
			r := l.resume
			q.remove(l)
			l.member, l.state = m, reserved
			return r
		}
		if len(l.tried) == 0 {
			return nil // what this one cannot use nobody can
		}
	}
	return nil
}

// resumed gives out what was reserved for l. again says that it still waits.
func (q *queue) resumed(l *Lease) (m *Member, again bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch l.state {
	case queued:
		return nil, true
	case reserved:
		m = l.member
		l.state = notQueued
	}
	l.everQueued = false
	return m, false
}

// dismiss ends the queue. It takes everybody out, and returns whom to resume, without a member.
func (q *queue) close() (all []Resumer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for q.first != nil {
		all = append(all, q.first.resume)
		q.remove(q.first)
	}
	return all
}

// leave takes l out, wherever it is. What was reserved for it stays in l.member.
func (q *queue) leave(l *Lease) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.state == queued {
		q.remove(l)
	}
	l.everQueued, l.state = false, notQueued
}

func (q *queue) remove(l *Lease) {
	if l.prev != nil {
		l.prev.next = l.next
	} else {
		q.first = l.next
	}
	if l.next != nil {
		l.next.prev = l.prev
	} else {
		q.last = l.prev
	}
	l.prev, l.next, l.resume, l.state = nil, nil, nil, notQueued
	q.n.Add(-1)
}
