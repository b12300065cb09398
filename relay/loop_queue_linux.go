package relay

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
