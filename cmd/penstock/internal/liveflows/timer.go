package liveflows

import (
	"container/heap"
	"sync"
	"time"
)

// A schedule ends flows at given times. Use newSchedule to make one.
type schedule struct {
	end  func(id uint64)
	mu   sync.Mutex
	due  deadlines
	wake chan struct{}
	stop chan struct{}
	done chan struct{}
}

// A deadline is when a flow is to end. Flows that have ended by then are ignored: ids are never
// reused.
type deadline struct {
	at time.Time
	id uint64
}

// newSchedule returns a running schedule that ends flows by calling end.
func newSchedule(end func(id uint64)) *schedule {
	s := &schedule{end: end, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	go s.run()
	return s
}

// add schedules the end of a flow. The time may have passed.
func (s *schedule) add(at time.Time, id uint64) {
	s.mu.Lock()
	heap.Push(&s.due, deadline{at, id})
	first := s.due[0].id == id
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
			id, until, ok := s.next(time.Now())
			if !ok {
				wait = until
				break
			}
			s.end(id)
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
func (s *schedule) next(now time.Time) (id uint64, until time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.due) == 0 {
		return 0, time.Hour, false
	}
	if until = s.due[0].at.Sub(now); until > 0 {
		return 0, until, false
	}
	return heap.Pop(&s.due).(deadline).id, 0, true
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
	*d = (*d)[:last]
	return x
}
