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
	known map[occasion]*deadline // those of due
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
	index  int              // in deadlines
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
	s := &schedule{end: end, known: map[occasion]*deadline{}, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	go s.run()
	return s
}

// add schedules the end of a flow. The time may have passed. If the flow is already scheduled on the same occasion, an end that holds for ever
// stays when it was, because it was counted from then; that of a member moves, because its group may say something else by now.
func (s *schedule) add(d deadline) {
	s.mu.Lock()
	known := s.known[d.occasion()]
	switch {
	case known == nil:
		known = &d
		s.known[d.occasion()] = known
		heap.Push(&s.due, known)
	case d.member != nil && !known.at.Equal(d.at):
		known.at = d.at
		heap.Fix(&s.due, known.index)
	}
	first := s.due[0] == known
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
	first := heap.Pop(&s.due).(*deadline)
	delete(s.known, first.occasion())
	return *first, 0, true
}

// deadlines implements heap.Interface.
type deadlines []*deadline

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].at.Before(d[j].at) }
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}
func (d *deadlines) Push(x any) {
	x.(*deadline).index = len(*d)
	*d = append(*d, x.(*deadline))
}
func (d *deadlines) Pop() any {
	last := len(*d) - 1
	x := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	return x
}
