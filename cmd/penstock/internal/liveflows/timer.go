package liveflows

import (
	"container/heap"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
)

// A schedule ends flows at given times. Use newSchedule to make one.
type schedule struct {
	end   func(deadline)
	mu    sync.Mutex
	due   deadlines
	known map[occasion]bool // those of due
	wake  chan struct{}
	stop  chan struct{}
	done  chan struct{}
}

// A deadline is when a flow is to end, and why. Flows that have ended by then are ignored: ids are never
// reused.
type deadline struct {
	at     time.Time
	id     uint64
	end    *upstream.End
	member *upstream.Member // that has the end; nil: the end holds for ever
	idle   time.Duration    // only if it has moved no data for this long
}

// An occasion identifies a deadline.
type occasion struct {
	id  uint64
	end *upstream.End
}

func (d *deadline) occasion() occasion { return occasion{d.id, d.end} }

// holds reports whether the occasion has not passed: the member has not come up again, and the configuration still wants its flows to end.
func (d *deadline) holds() bool {
	if d.member == nil {
		return true
	}
	now, _ := d.member.End()
	return now == d.end
}

// newSchedule returns a running schedule that ends flows by calling end.
func newSchedule(end func(deadline)) *schedule {
	s := &schedule{end: end, known: map[occasion]bool{}, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	go s.run()
	return s
}

// add schedules the end of a flow, unless it is already scheduled on the same occasion. The time may have passed.
func (s *schedule) add(d deadline) {
	s.mu.Lock()
	if s.known[d.occasion()] {
		s.mu.Unlock()
		return
	}
	s.known[d.occasion()] = true
	heap.Push(&s.due, d)
	first := s.due[0].id == d.id
	s.mu.Unlock()
	if first {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// close stops the schedule. Flows that are not due yet continue.
func (s *schedule) close() {
	close(s.stop)
	<-s.done
}

func (s *schedule) run() {
	defer close(s.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := time.Hour
		for {
			d, until, ok := s.next(time.Now())
			if !ok {
				wait = until
				break
			}
			if d.holds() {
				s.end(d)
			}
		}
		timer.Reset(wait)
		select {
		case <-s.stop:
			return
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// next removes and returns the first flow that is due, or returns the time until one is.
func (s *schedule) next(now time.Time) (d deadline, until time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.due) == 0 {
		return deadline{}, time.Hour, false
	}
	if until = s.due[0].at.Sub(now); until > 0 {
		return deadline{}, until, false
	}
	d = heap.Pop(&s.due).(deadline)
	delete(s.known, d.occasion())
	return d, 0, true
}

// deadlines implements heap.Interface.
type deadlines []deadline

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].at.Before(d[j].at) }
func (d deadlines) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *deadlines) Push(x any)        { *d = append(*d, x.(deadline)) }
func (d *deadlines) Pop() any {
	last := len(*d) - 1
	x := (*d)[last]
	(*d)[last] = deadline{}
	*d = (*d)[:last]
	return x
}
