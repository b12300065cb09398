package loop

import (
	"math"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

const (
	eventsMost   = 256 // events taken from the kernel at once
	RequestBurst = 128 // requests handled before flows have their turn
	WalkBurst    = 256 // slots visited before flows have their turn
	TimerBurst   = 256 // timers that come up before flows have their turn
	// rawWait bounds a wait that keeps the P.
	rawWait = 5 * time.Millisecond
	// unseenMost is for how many turns in a row timers may wait for events that
	// one wait did not give, besides those that its flows need.
	unseenMost = 64
)

// Counters are where a loop counts: memory that may outlive the process.
type Counters struct {
	Waits   *int64         // epoll_wait calls
	Wakeups *int64         // of Waits, those that slept in the kernel
	Events  *int64         // events returned by epoll_wait
	Busy    *time.Duration // time spent outside of epoll_wait
}

// Loop is one event loop, a goroutine. It waits for events and timers, reads
// requests, and keeps the table of flows; what is to be done about any of these
// its handlers know. All its fields but the mailbox belong to its goroutine alone.
//
//	wait ─▶ events ─▶ requests ─▶ walks ─▶ turns of the handlers ─▶ patrol ─▶ timers ─▶ wait
//
// The process may stop anywhere for seconds: by SIGSTOP, with its machine, or
// for want of CPU. Timers therefore do not go by Now, but by Seen: what came
// before that has been handled, and no flow ends for a silence that was the
// loop's own.
type Loop struct {
	mailbox
	kernel      sys.Kernel
	Index       int       // among the loops
	Start       time.Time // of its clock
	dedicated   bool
	epoll       int
	events      [eventsMost]sys.Event
	handlers    []Handler
	sources     []Source // by number; nil: none has it
	Slots       Slots
	wheel       wheel     // of slots
	requests    []Request // the ones at hand
	nextRequest int       // which of them is next
	mail        bool      // there are more in the mailbox
	walks       []*walk
	patrolAt    time.Duration // when the next slots are looked at
	patrolNext  uint32        // the first of them
	Now         time.Duration // since Start, when this turn began
	waitBegan   time.Duration // when the last wait began
	Seen        time.Duration // events up to then have been handled
	unseen      int           // turns since then
	busy        bool          // the last wait gave events
	Draining    bool          // somebody wants to know when no flow is left
	drained     func()        // called when it is draining and no flow is left
	Closing     bool          // this turn is the last one
	Handing     bool          // closing: the flows are the next process's
	AtEnd       func()        // called last; may be nil
	Ended       chan struct{} // closed at the end
	counters    Counters
	stall       stall
}

// Handler does the work of a loop for the flows of one kind. It is called on the
// loop's goroutine only.
type Handler interface {
	// Event is called with the readiness of one of the two sockets of a flow.
	Event(slot uint32, side int, events uint32)
	// Turn is called once per turn of the loop, after its events. It reports
	// whether events that the kernel gave are still to be handled.
	Turn() (more bool)
	// Until returns when Turn has something to do even if there is no event:
	// at once if that is 0, never if it is [Never].
	Until() time.Duration
	// Inspect gives a flow up if it is in a state that cannot be: without this, it would wait for ever. See [Loop.patrol].
	Inspect(slot uint32)
	// Due is called when a flow's timer comes up.
	Due(slot uint32)
	// Request is called with what was asked of the handler.
	Request(r *Request)
	// Spare closes a descriptor that is dispensable, and reports whether there was one.
	Spare() bool
	// Freed is called when a descriptor has become free.
	Freed()
	// Close ends all flows and closes the sources.
	Close()
	// HandOver is called instead of Close if the next process is to go on with the flows.
	HandOver()
}

// Never is the end of all time.
const Never = time.Duration(math.MaxInt64)

// Source is a socket that is not of a flow, such as a listener's.
type Source interface {
	Event(events uint32)
}

// New makes a loop on a kernel, which counts from start and nowhere before [Loop.Count]. If it is dedicated, it keeps its thread while it
// waits for a short while. It calls drained when it is draining and has no flow left.
func New(k sys.Kernel, index int, start time.Time, dedicated bool, drained func()) (*Loop, error) {
	l := &Loop{kernel: k, Index: index, Start: start, dedicated: dedicated, drained: drained, epoll: -1, Ended: make(chan struct{})}
	l.Count(Counters{new(int64), new(int64), new(int64), new(time.Duration)})
	l.mailbox.kernel, l.wake = k, -1
	l.settled.L = &l.mu
	var err error
	if l.epoll, err = k.EpollCreate(); err != nil {
		return nil, err
	}
	if l.wake, err = k.Eventfd(); err != nil {
		l.Free()
		return nil, err
	}
	if e := k.EpollAdd(l.epoll, l.wake, sys.In, wakeToken); e != 0 {
		l.Free()
		return nil, e
	}
	return l, nil
}

// Count sets where the loop counts. It is called before Run.
func (l *Loop) Count(c Counters) { l.counters = c }

// Add adds a handler. It is called before Run; handlers have their turns in this order.
func (l *Loop) Add(h Handler) { l.handlers = append(l.handlers, h) }

// Descriptor returns a descriptor of the loop's own.
func (l *Loop) Descriptor() int { return l.wake }

// Waits returns how often the loop has waited.
func (l *Loop) Waits() int64 { return *l.counters.Waits }

// LongestTurn returns the longest time between two waits in the last 15 to 30 seconds.
func (l *Loop) LongestTurn() time.Duration { return l.stall.longest(l.Now) }

// Free closes the loop's own descriptors. It is for a loop that never runs; another one does so at its end.
func (l *Loop) Free() {
	for _, fd := range []int{l.epoll, l.wake} {
		if fd >= 0 {
			l.kernel.Close(fd)
		}
	}
}

// Clock returns the time since Start.
func (l *Loop) Clock() time.Duration { return l.kernel.Now().Sub(l.Start) }

// Run runs the loop until it is closing.
func (l *Loop) Run() {
	returns := false
	defer func() {
		if returns {
			return
		}
		if cause := recover(); cause != nil {
			panic(cause)
		}
		panic("relay: a hook has called runtime.Goexit, as FailNow of package testing does; without its goroutine the event loop cannot go on")
	}()
	for !l.Closing {
		l.turn()
	}
	l.end()
	returns = true
}

// turn is one turn, with the wait in front of it.
func (l *Loop) turn() {
	n, all := l.wait()
	l.Now = l.Clock()
	for i := range n {
		l.event(&l.events[i])
	}
	l.turnRequests()
	l.turnWalks()
	for _, h := range l.handlers {
		if h.Turn() {
			all = false
		}
	}
	l.patrol()
	l.noteSeen(all)
	l.timers()
	l.checkInvariants()
	l.endTurn()
}

// end ends a loop that is closing.
func (l *Loop) end() {
	l.requests = append(l.requests[l.nextRequest:], l.shutdown()...)
	for i := range l.requests {
		l.handle(&l.requests[i])
	}
	for _, h := range l.handlers {
		if l.Handing {
			h.HandOver()
		} else {
			h.Close()
		}
	}
	for _, w := range l.walks {
		w.wg.Done()
	}
	if l.AtEnd != nil {
		l.AtEnd()
	}
	l.Free()
	close(l.Ended)
}

// wait takes events from the kernel; all reports whether those are all that there
// were when it returned. A busy loop asks without telling the scheduler; an idle
// one sleeps in a real system call. So a small message under load does not pay
// for giving up the P and getting it back.
func (l *Loop) wait() (n int, all bool) {
	timeout := l.timeout()
	*l.counters.Waits++
	if l.busy || timeout == 0 {
		raw := time.Duration(0)
		if l.dedicated && timeout != 0 {
			raw = rawWait
			if timeout > 0 {
				raw = min(raw, timeout)
			}
		}
		n, e := l.kernel.EpollWaitRaw(l.epoll, l.events[:], raw)
		// Flows that are ready for their next turn are work too.
		l.busy = n > 0 || e == sys.EINTR || timeout == 0
		if l.busy || raw > 0 {
			*l.counters.Events += int64(n)
			return n, e == 0 && n < eventsMost
		}
	}
	*l.counters.Wakeups++
	n, e := l.kernel.EpollWait(l.epoll, l.events[:], timeout)
	l.busy = n > 0
	*l.counters.Events += int64(n)
	return n, e == 0 && n < eventsMost
}

// noteSeen notes up to when events have been handled, after a turn. A wait that was
// interrupted or gave as many as it could, and a handler that left events for its
// next turn, leave some. Each event that waits comes before those that come
// later, so that a bounded number of turns handles what is there now, and a loop
// that never finds an end does not forget its timers.
func (l *Loop) noteSeen(all bool) {
	l.unseen++
	if all || l.unseen > unseenMost+2*l.Slots.Live/eventsMost {
		l.Seen, l.unseen = l.waitBegan, 0
	}
}

// timeout returns how long the loop may sleep; negative: until an event.
func (l *Loop) timeout() time.Duration {
	if l.nextRequest < len(l.requests) || len(l.walks) > 0 {
		return 0
	}
	at := Never
	if k := l.wheel.until(); k >= 0 {
		at = time.Duration(l.wheel.now+k) * Tick
	}
	for _, h := range l.handlers {
		at = min(at, h.Until())
	}
	switch at {
	case 0:
		return 0
	case Never:
		return -1
	}
	return max(at-l.Now, time.Millisecond)
}

// An event's 64 bits: a flow's slot and the side of its socket below, the slot's
// generation above, so that a stale event cannot touch the next flow in the slot.
// Generation 0 is never a flow's: it is that of the sources, by their numbers, and
// of the mailbox.
const wakeToken = 1<<32 - 1

// Token returns the token of the socket of a side of the flow.
func (r Ref) Token(side int) uint64 {
	return uint64(r.Gen)<<32 | uint64(r.Slot<<1) | uint64(side)
}

// SourceToken returns the token of the source with number n.
func SourceToken(n int) uint64 { return uint64(n) }

func (l *Loop) event(ev *sys.Event) {
	token := sys.EventData(ev)
	low, gen := uint32(token), uint32(token>>32)
	switch {
	case gen != 0:
		if h := l.Slots.Find(Ref{low >> 1, gen}); h != nil {
			h.Event(low>>1, int(low&1), ev.Events)
		}
	case low == wakeToken:
		l.mail = true
	default:
		if s := l.sources[low]; s != nil {
			s.Event(ev.Events)
		}
	}
}

// Watch makes the loop call the owner of token when one of events happens to fd.
func (l *Loop) Watch(fd int, events uint32, token uint64) sys.Errno {
	return l.kernel.EpollAdd(l.epoll, fd, events, token)
}

// Rewatch replaces the events that fd is watched for.
func (l *Loop) Rewatch(fd int, events uint32, token uint64) {
	l.kernel.EpollMod(l.epoll, fd, events, token)
}

// Unwatch undoes Watch. Closing the descriptor does so too, unless another
// process or descriptor has the socket.
func (l *Loop) Unwatch(fd int) { l.kernel.EpollDel(l.epoll, fd) }

// AddSource gives a source a number, which is its token.
func (l *Loop) AddSource(s Source) (n int) {
	for n < len(l.sources) && l.sources[n] != nil {
		n++
	}
	if n == len(l.sources) {
		l.sources = append(l.sources, nil)
	}
	l.sources[n] = s
	return n
}

// RemoveSource takes the number of a source back.
func (l *Loop) RemoveSource(n int) { l.sources[n] = nil }

// Arm sets the timer of a slot: its owner's Due is called in the tick after at, or
// sooner where that is further away than the wheel reaches.
func (l *Loop) Arm(slot uint32, at time.Duration) {
	if at == Never {
		l.Disarm(slot)
		return
	}
	l.wheel.add(slot, tickAt(at))
}

// Disarm takes the timer of a slot back.
func (l *Loop) Disarm(slot uint32) { l.wheel.remove(slot) }

// Armed reports whether a slot has a timer.
func (l *Loop) Armed(slot uint32) bool {
	return int(slot) < len(l.wheel.slot) && l.wheel.slot[slot] != 0
}

// Step is a turn that does not wait, at the time that Now has, for tests of handlers. Requests and walks are left alone. It
// reports whether there was something to do.
func (l *Loop) Step() (busy bool) {
	n, _ := l.kernel.EpollWait(l.epoll, l.events[:], 0)
	for i := range n {
		l.event(&l.events[i])
	}
	busy = n > 0
	for _, h := range l.handlers {
		if h.Turn() {
			busy = true
		}
	}
	l.Seen = l.Now
	l.timers()
	return busy
}

func (l *Loop) timers() {
	l.wheel.advance(int64(l.Seen/Tick), TimerBurst, func(slot uint32) {
		if h := l.Slots.Owner(slot); h != nil {
			h.Due(slot)
		}
	})
}

// Spare closes a descriptor that a handler can do without, and
// reports whether there was one.
func (l *Loop) Spare() bool {
	for _, h := range l.handlers {
		if h.Spare() {
			return true
		}
	}
	return false
}

// Freed is called when descriptors have become free.
func (l *Loop) Freed() {
	for _, h := range l.handlers {
		h.Freed()
	}
}

// FlowEnded is called when a flow has given back what it had.
func (l *Loop) FlowEnded() {
	l.Freed()
	l.CheckDrained()
}

// CheckDrained calls drained if the loop is draining and has no flow left.
func (l *Loop) CheckDrained() {
	if l.Draining && l.Slots.Live == 0 {
		l.drained()
	}
}
