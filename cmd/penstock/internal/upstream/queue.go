package upstream

import (
	"sync"
	"sync/atomic"
)

// A queue has the flows that wait for a slot of a group, in the order of arrival. Leaving it takes
// constant time.
//
// No wake-up is lost: a flow counts itself in the queue before it looks for a free slot, and a
// slot is freed before the count is read. So at least one of the two sees the other.
type queue struct {
	n           atomic.Int32
	total       *atomic.Int64 // flows that were ever queued
	mu          sync.Mutex
	first, last *queuePlace
	closed      bool // no flow may be queued
}

// queuePlace is a lease in the queue. The queue's lock guards it.
type queuePlace struct {
	lease      *Lease
	resume     Resumer
	prev, next *queuePlace
	state      placeState
}

type placeState uint8

const (
	notQueued placeState = iota
	queued
	reserved // resumed: the lease's member is set, and Pick has not returned it yet
)

func (q *queue) len() int { return int(q.n.Load()) }

// enter appends l, or reports that the queue is full. If l is the only one, pick is called once
// more first.
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
	w := &queuePlace{lease: l, resume: r, state: queued, prev: q.last}
	if q.last != nil {
		q.last.next = w
	} else {
		q.first = w
	}
	q.last, l.place = w, w
	return nil, false
}

// next reserves a member for the first flow that can use one, removes its lease from the queue and
// returns its Resumer; nil if no flow can continue.
func (q *queue) next(pick func(*Lease) *Member) Resumer {
	q.mu.Lock()
	defer q.mu.Unlock()
	for w := q.first; w != nil; w = w.next {
		if m := pick(w.lease); m != nil {
			r := w.resume
			q.remove(w)
			w.lease.member, w.state = m, reserved
			return r
		}
		if len(w.lease.tried()) == 0 {
			return nil // if this one, which has tried none, finds no member, none of them does
		}
	}
	return nil
}

// resumed returns what was reserved for l. again reports that it is still queued.
func (q *queue) resumed(l *Lease) (m *Member, again bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch l.place.state {
	case queued:
		return nil, true
	case reserved:
		m = l.member
	}
	l.place = nil
	return m, false
}

// open lets flows be queued again after close.
func (q *queue) open() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = false
}

// close empties the queue until open, and returns the flows to resume, without a member.
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

// leave removes l from the queue, if it is in it. What was reserved for it stays in l.member.
func (q *queue) leave(l *Lease) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.place.state == queued {
		q.remove(l.place)
	}
	l.place = nil
}

func (q *queue) remove(w *queuePlace) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		q.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		q.last = w.prev
	}
	w.prev, w.next, w.resume, w.state = nil, nil, nil, notQueued
	q.n.Add(-1)
}
