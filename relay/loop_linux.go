package relay

import (
	"math"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

const (
	maxLoops     = 256
	eventsMost   = 256 // events taken from the kernel at once
	requestBurst = 128 // requests handled before flows have their turn
	walkBurst    = 256 // slots visited before flows have their turn
	timerBurst   = 256 // timers that come up before flows have their turn
	giveUpBurst  = 32  // descriptors that are closed for others at once
	// rawWait bounds a wait that keeps the P.
	rawWait = 5 * time.Millisecond
	// unseenMost is for how many turns in a row timers may wait for events that
	// one wait did not give, besides those that its flows need.
	unseenMost = 64
)

// loop is one event loop, a goroutine. It waits for events and timers, reads
// requests, and keeps the table of flows; what is to be done about any of these
// its handlers know. All its fields but the mailbox belong to its goroutine alone.
//
//	wait ─▶ events ─▶ requests ─▶ walks ─▶ turns of the handlers ─▶ timers ─▶ wait
//
// The process may stop anywhere for seconds: by SIGSTOP, with its machine, or
// for want of CPU. Timers therefore do not go by now, but by seen: what came
// before that has been handled, and no flow ends for a silence that was the
// loop's own.
type loop struct {
	mailbox
	index       int
	start       time.Time // the engine's
	dedicated   bool
	epoll       int
	events      [eventsMost]sys.Event
	handlers    []handler
	sources     []source // by number; nil: none has it
	slots       slots
	wheel       wheel     // of slots
	requests    []request // the ones at hand
	nextRequest int       // which of them is next
	mail        bool      // there are more in the mailbox
	walks       []*walk
	now         time.Duration // since the engine's start, when this turn began
	waitBegan   time.Duration // when the last wait began
	seen        time.Duration // events up to then have been handled
	unseen      int           // turns since then
	busy        bool          // the last wait gave events
	draining    bool          // somebody wants to know when no flow is left
	drained     func()        // called when it is draining and no flow is left
	closing     bool
	handing     bool // closing: the flows are the next process's
	stats       *LoopStats
	stall       stall
	descriptors descriptors
	ended       chan struct{}
}

// handler does the work of a loop for the flows of one kind. It is called on the
// loop's goroutine only.
type handler interface {
	// event is called with the readiness of one of the two sockets of a flow.
	event(slot uint32, side int, events uint32)
	// turn is called once per turn of the loop, after its events. It reports
	// whether events that the kernel gave are still to be handled.
	turn() (more bool)
	// until returns when turn has something to do even if there is no event:
	// at once if that is 0, never if it is [never].
	until() time.Duration
	// due is called when a flow's timer comes up.
	due(slot uint32)
	// request is called with what was asked of the handler.
	request(r *request)
	// spare closes a descriptor that is dispensable, and reports whether there was one.
	spare() bool
	// freed is called when a descriptor has become free.
	freed()
	// close ends all flows and closes the sources.
	close()
	// handOver is called instead of close if the next process is to go on with the flows.
	handOver()
}

// never is the end of all time.
const never = time.Duration(math.MaxInt64)

// source is a socket that is not of a flow, such as a listener's.
type source interface {
	event(events uint32)
}

// newLoop makes a loop. It calls drained when it is draining and has no flow left.
func newLoop(index int, start time.Time, dedicated bool, drained func()) (*loop, error) {
	l := &loop{index: index, start: start, dedicated: dedicated, drained: drained, epoll: -1, stats: new(LoopStats), ended: make(chan struct{})}
	l.wake = -1
	l.settled.L = &l.mu
	var err error
	if l.epoll, err = sys.EpollCreate(); err != nil {
		return nil, err
	}
	if l.wake, err = sys.Eventfd(); err != nil {
		l.free()
		return nil, err
	}
	if e := sys.EpollAdd(l.epoll, l.wake, sys.In, wakeToken); e != 0 {
		l.free()
		return nil, e
	}
	return l, nil
}

// free closes the loop's own descriptors.
func (l *loop) free() {
	for _, fd := range []int{l.epoll, l.wake} {
		if fd >= 0 {
			sys.Linux{}.Close(fd)
		}
	}
}

// clock returns the time since the engine's start.
func (l *loop) clock() time.Duration { return time.Since(l.start) }

func (l *loop) run() {
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
	for !l.closing {
		n, all := l.wait()
		l.now = l.clock()
		for i := range n {
			l.event(&l.events[i])
		}
		l.turnRequests()
		l.turnWalks()
		for _, h := range l.handlers {
			if h.turn() {
				all = false
			}
		}
		l.noteSeen(all)
		l.timers()
		l.endTurn()
	}
	l.requests = append(l.requests[l.nextRequest:], l.shutdown()...)
	for i := range l.requests {
		l.handle(&l.requests[i])
	}
	for _, h := range l.handlers {
		if l.handing {
			h.handOver()
		} else {
			h.close()
		}
	}
	for _, w := range l.walks {
		w.wg.Done()
	}
	last := *l.stats // which may lie in a ledger, and is asked for later
	last.LongestTurn = l.stall.longest(l.now)
	l.stats = &last
	l.free()
	close(l.ended)
	returns = true
}

// wait takes events from the kernel; all reports whether those are all that there
// were when it returned. A busy loop asks without telling the scheduler; an idle
// one sleeps in a real system call. So a small message under load does not pay
// for giving up the P and getting it back.
func (l *loop) wait() (n int, all bool) {
	timeout := l.timeout()
	l.stats.Waits++
	if l.busy || timeout == 0 {
		raw := time.Duration(0)
		if l.dedicated && timeout != 0 {
			raw = rawWait
			if timeout > 0 {
				raw = min(raw, timeout)
			}
		}
		n, e := sys.EpollWaitRaw(l.epoll, l.events[:], raw)
		// Flows that are ready for their next turn are work too.
		l.busy = n > 0 || e == sys.EINTR || timeout == 0
		if l.busy || raw > 0 {
			l.stats.Events += int64(n)
			return n, e == 0 && n < eventsMost
		}
	}
	l.stats.Wakeups++
	n, e := sys.EpollWait(l.epoll, l.events[:], timeout)
	l.busy = n > 0
	l.stats.Events += int64(n)
	return n, e == 0 && n < eventsMost
}

// noteSeen notes up to when events have been handled, after a turn. A wait that was
// interrupted or gave as many as it could, and a handler that left events for its
// next turn, leave some. Each event that waits comes before those that come
// later, so that a bounded number of turns handles what is there now, and a loop
// that never finds an end does not forget its timers.
func (l *loop) noteSeen(all bool) {
	l.unseen++
	if all || l.unseen > unseenMost+2*l.slots.live/eventsMost {
		l.seen, l.unseen = l.waitBegan, 0
	}
}

// timeout returns how long the loop may sleep; negative: until an event.
func (l *loop) timeout() time.Duration {
	if l.nextRequest < len(l.requests) || len(l.walks) > 0 {
		return 0
	}
	at := never
	if k := l.wheel.until(); k >= 0 {
		at = time.Duration(l.wheel.now+k) * tick
	}
	for _, h := range l.handlers {
		at = min(at, h.until())
	}
	switch at {
	case 0:
		return 0
	case never:
		return -1
	}
	return max(at-l.now, time.Millisecond)
}

// An event's 64 bits: a flow's slot and the side of its socket below, the slot's
// generation above, so that a stale event cannot touch the next flow in the slot.
// Generation 0 is never a flow's: it is that of the sources, by their numbers, and
// of the mailbox.
const wakeToken = 1<<32 - 1

func (r ref) token(side int) uint64 {
	return uint64(r.gen)<<32 | uint64(r.slot<<1) | uint64(side)
}

// sourceToken is the token of the source with number n.
func sourceToken(n int) uint64 { return uint64(n) }

func (l *loop) event(ev *sys.Event) {
	token := sys.EventData(ev)
	low, gen := uint32(token), uint32(token>>32)
	switch {
	case gen != 0:
		if h := l.slots.find(ref{low >> 1, gen}); h != nil {
			h.event(low>>1, int(low&1), ev.Events)
		}
	case low == wakeToken:
		l.mail = true
	default:
		if s := l.sources[low]; s != nil {
			s.event(ev.Events)
		}
	}
}

// watch makes the loop call the owner of token when one of events happens to fd.
func (l *loop) watch(fd int, events uint32, token uint64) sys.Errno {
	return sys.EpollAdd(l.epoll, fd, events, token)
}

// rewatch replaces the events that fd is watched for.
func (l *loop) rewatch(fd int, events uint32, token uint64) {
	sys.EpollMod(l.epoll, fd, events, token)
}

// unwatch undoes watch. Closing the descriptor does so too, unless another
// process or descriptor has the socket.
func (l *loop) unwatch(fd int) { sys.EpollDel(l.epoll, fd) }

// addSource gives a source a number, which is its token.
func (l *loop) addSource(s source) (n int) {
	for n < len(l.sources) && l.sources[n] != nil {
		n++
	}
	if n == len(l.sources) {
		l.sources = append(l.sources, nil)
	}
	l.sources[n] = s
	return n
}

// removeSource takes the number of a source back.
func (l *loop) removeSource(n int) { l.sources[n] = nil }

// arm sets the timer of a slot: its owner's due is called in the tick after at, or
// sooner where that is further away than the wheel reaches.
func (l *loop) arm(slot uint32, at time.Duration) {
	if at == never {
		l.disarm(slot)
		return
	}
	l.wheel.add(slot, tickAt(at))
}

func (l *loop) disarm(slot uint32) { l.wheel.remove(slot) }

func (l *loop) timers() {
	l.wheel.advance(int64(l.seen/tick), timerBurst, func(slot uint32) {
		if h := l.slots.owner(slot); h != nil {
			h.due(slot)
		}
	})
}

// spareDescriptor closes a descriptor that a handler can do without, and
// reports whether there was one.
func (l *loop) spareDescriptor() bool {
	for _, h := range l.handlers {
		if h.spare() {
			return true
		}
	}
	return false
}

// giveUp closes descriptors that its handlers can do without, for other loops.
func (l *loop) giveUp() {
	l.descriptors.asked.Store(false)
	l.descriptors.giveAhead()
	for range giveUpBurst {
		if !l.spareDescriptor() {
			break
		}
	}
	l.freed()
}

// freed is called when descriptors have become free.
func (l *loop) freed() {
	for _, h := range l.handlers {
		h.freed()
	}
}

// flowEnded is called when a flow has given back what it had.
func (l *loop) flowEnded() {
	l.freed()
	l.checkDrained()
}

// checkDrained calls drained if the loop is draining and has no flow left.
func (l *loop) checkDrained() {
	if l.draining && l.slots.live == 0 {
		l.drained()
	}
}
