package app

import (
	"container/heap"
	"sync"
	"time"
)

// An endSchedule ends flows at given times. Use newEndSchedule to make one.
type endSchedule struct {
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

// newEndSchedule returns a running endSchedule that ends flows by calling end.
func newEndSchedule(end func(id uint64)) *endSchedule {
	r := &endSchedule{end: end, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	go r.run()
	return r
}

// add schedules the end of a flow. The time may have passed.
func (r *endSchedule) add(at time.Time, id uint64) {
	r.mu.Lock()
	heap.Push(&r.due, deadline{at, id})
	first := r.due[0].id == id
	r.mu.Unlock()
	if first {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// close stops the schedule. Flows that are not due yet continue.
func (r *endSchedule) close() {
	close(r.stop)
	<-r.done
}

func (r *endSchedule) run() {
	defer close(r.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := time.Hour
		for {
			id, until, ok := r.next(time.Now())
			if !ok {
				wait = until
				break
			}
			r.end(id)
		}
		timer.Reset(wait)
		select {
		case <-r.stop:
			return
		case <-r.wake:
		case <-timer.C:
		}
	}
}

// next removes and returns the first flow that is due, or returns the time until one is.
func (r *endSchedule) next(now time.Time) (id uint64, until time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.due) == 0 {
		return 0, time.Hour, false
	}
	if until = r.due[0].at.Sub(now); until > 0 {
		return 0, until, false
	}
	return heap.Pop(&r.due).(deadline).id, 0, true
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
