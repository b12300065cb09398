package relay

import (
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/sys"
)

const (
	maxLoops     = 256
	maxPipes     = 1 << 18 // each that may exist has a few bytes of memory
	defaultLowat = 192 << 10
	eventsMost   = 256 // events taken from the kernel at once
	mailBurst    = 128 // letters read before flows have their turn
	sweepBurst   = 256 // slots looked at before flows have their turn
	timerBurst   = 256 // timers that come up before flows have their turn
	readyBurst   = 32  // flows that are ready for their next turn before events are taken again
	turnBudget   = 1 << 20
	// rawWait bounds a wait that keeps the P.
	rawWait = 5 * time.Millisecond
	// lagWait is how long a tail below the low-water mark may wait.
	lagWait = time.Millisecond
	// unseenMost is for how many turns in a row timers may wait for events that
	// one wait did not give, besides those that its flows need.
	unseenMost = 64
	// lastWords is how long what a side had sent before it failed may wait for
	// the other one to take it: nobody reads from that one any more, and it may
	// be waiting for just that.
	lastWords = time.Second
)

// loop is one event loop, a goroutine. All its fields but the mailbox belong to
// that goroutine alone.
//
//	wait ─▶ events ─▶ mail ─▶ sweeps ─▶ starved flows ─▶ closing ports ─▶ ready flows ─▶ lagging flows ─▶ timers ─▶ wait
//
// The process may stop anywhere for seconds: by SIGSTOP, with its machine, or
// for want of CPU. Timers therefore do not go by now, but by seen: what came
// before that has been handled, and no flow ends for a silence that was the
// loop's own.
type loop struct {
	mailbox
	engine       *core
	index        int
	dedicated    bool
	epoll        int
	events       [eventsMost]sys.Event
	env          pump.Env
	slab         slab
	addrs        []*Addr   // of adopted pairs that have ended
	shared       *Timeouts // the last that a flow was given other than its listener's
	wheel        wheel
	ports        []*port
	resting      time.Duration     // until when the listeners rest; 0: they do not
	starved      queue[starvedRef] // flows that wait for a descriptor
	feed         bool              // a descriptor may have become free for them
	ready        queue[ref]        // flows whose budget was spent
	lagging      queue[lagRef]     // flows that the low-water mark may hold back
	letters      []letter          // the ones at hand
	nextRead     int               // which of them is read next
	mail         bool              // there are more in the mailbox
	sweeps       []*sweep          // ends of many flows, which go on
	closingPorts []*port
	now          time.Duration // since the engine's start, when this turn began
	asked        time.Duration // when the last wait began
	seen         time.Duration // events up to then have been handled
	unseen       int           // turns since then
	busy         bool          // the last wait gave events
	draining     bool
	closing      bool
	stats        LoopStats
	stall        stall
	record       Record
	peer         sys.Sockaddr
	sources      int     // of DialConfig.Source, which are taken in turn
	dgrams       *dgrams // nil until the first datagram port comes
	ended        chan struct{}
	load         atomic.Int64 // stream flows, with those that are in the mailbox
	rests        atomic.Bool  // the listeners rest, and nobody has said yet that they need not
}

func newLoop(e *core, index int, cfg Config) (*loop, error) {
	l := &loop{engine: e, index: index, dedicated: cfg.Dedicated, epoll: -1, ended: make(chan struct{})}
	l.wake = -1
	l.settled.L = &l.mu
	l.env = pump.Env{Kernel: e.kernel, Pipes: e.pipes, Buffers: &e.buffers, Scratch: make([]byte, pump.ScratchSize), Lowat: cfg.LowWaterMark}
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

func (l *loop) run() {
	for !l.closing {
		n, all := l.wait()
		l.now = time.Since(l.engine.start)
		for i := range n {
			l.event(&l.events[i])
		}
		l.turnMail()
		l.turnSweeps()
		l.turnStarved()
		l.turnClosing()
		l.dgrams.turn()
		l.turnReady()
		l.turnLagging()
		l.look(all)
		l.timers()
		l.turned()
	}
	l.letters = append(l.letters[l.nextRead:], l.shutdown()...)
	for i := range l.letters {
		l.read(&l.letters[i])
	}
	l.giveUp()
	l.turnClosing()
	for _, s := range l.sweeps {
		s.wg.Done()
	}
	l.endAll(CauseClosed)
	l.dgrams.close()
	l.stats.Flows = 0
	l.stats.Datagrams.Flows = 0
	l.free()
	close(l.ended)
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

// look notes up to when events have been handled, after a turn. A wait that was
// interrupted or gave as many as it could, and a datagram port from which one turn
// did not take all, leave some. Each event that waits comes before those that
// come later, so that a bounded number of turns handles what is there now, and a
// loop that never finds an end does not forget its timers.
func (l *loop) look(all bool) {
	l.unseen++
	if !l.dgrams.more() && all || l.unseen > unseenMost+(2*l.slab.live+l.dgrams.live())/eventsMost {
		l.seen, l.unseen = l.asked, 0
	}
}

// timeout says how long the loop may sleep; negative: until an event.
func (l *loop) timeout() time.Duration {
	if l.ready.len() > 0 || l.nextRead < len(l.letters) || len(l.sweeps) > 0 || len(l.closingPorts) > 0 && l.resting == 0 || l.feed && l.starved.len() > 0 {
		return 0
	}
	t := time.Duration(-1)
	earlier := func(d time.Duration) {
		if d = max(d, time.Millisecond); t < 0 || d < t {
			t = d
		}
	}
	if l.lagging.len() > 0 {
		earlier(l.lagging.first().at + lagWait - l.now)
	}
	if k := l.wheel.until(); k >= 0 {
		earlier(time.Duration(l.wheel.now+k)*tick - l.now)
	}
	if at := l.dgrams.until(); at > 0 {
		earlier(at - l.now)
	}
	if l.resting > 0 {
		earlier(l.resting - l.now)
	}
	return t
}

// An event's 64 bits: a flow's slot and side below, the slot's generation
// above, so that a stale event cannot touch the next flow in the slot.
// Generation 0 is never a flow's: it stands for the listeners and the mailbox.
// sessionBit marks the datagram side.
const wakeToken = 1<<32 - 1

func portToken(i int) uint64 { return uint64(i) }

func (l *loop) event(ev *sys.Event) {
	token := sys.EventData(ev)
	low, gen := uint32(token), uint32(token>>32)
	switch {
	case low == wakeToken && gen == 0:
		l.mail = true
	case low&sessionBit != 0:
		l.dgrams.event(low, gen, ev.Events)
	case gen != 0:
		if f := l.slab.find(ref{low >> 1, gen}); f != nil {
			l.flowEvent(f, int(low&1), ev.Events)
		}
	default:
		if p := l.ports[low]; p != nil {
			l.accept(p)
		}
	}
}

// turnMail reads what others ask for, in the order in which they asked.
func (l *loop) turnMail() {
	if l.nextRead == len(l.letters) {
		if !l.mail {
			return
		}
		l.mail = false
		l.letters, l.nextRead = l.take(l.letters), 0
	}
	for range min(mailBurst, len(l.letters)-l.nextRead) {
		m := &l.letters[l.nextRead]
		l.nextRead++
		l.read(m)
		*m = letter{}
	}
}

func (l *loop) read(m *letter) {
	switch m.kind {
	case letterAdopt:
		l.adopt(m)
	case letterAccepted:
		l.accepted(m.from, m.fd[0], m.peer)
	case letterListen:
		l.listen(m.port)
	case letterUnlisten:
		l.unlisten(m)
	case letterDgramListen:
		if l.dgrams == nil {
			l.dgrams = newDgrams(l)
		}
		l.dgrams.listen(m.dgram)
	case letterDgramUnlisten:
		l.sweepPort(m)
	case letterDgramDrain:
		m.dgram.draining = true
	case letterResume:
		l.resume(m.ref)
	case letterStats:
		l.dgrams.readAllDrops()
		l.stats.Datagrams.Flows = int64(l.dgrams.live())
		l.stats.Flows = int64(l.slab.live) + l.stats.Datagrams.Flows
		l.stats.LongestTurn = l.stall.longest(l.now)
		*m.stats = l.stats
	case letterList:
		l.list(m.list)
	case letterDetail:
		*m.found = l.detail(m.id, m.detail)
	case letterKill:
		*m.found = l.kill(m.id, m.cause)
	case letterDrain:
		l.draining = true
		*m.found = len(l.closingPorts) > 0
	case letterWake:
		l.wakeListeners()
	case letterEnd:
		l.sweep(m)
	case letterClose:
		l.closing = true
	}
	if m.wg != nil {
		m.wg.Done()
	}
}

// turnReady gives flows whose budget was spent their next turn, some of them: the
// others wait behind the events that have come meanwhile.
func (l *loop) turnReady() {
	for range min(l.ready.len(), readyBurst) {
		r := l.ready.pop()
		f := l.slab.find(r)
		if f == nil {
			continue
		}
		f.inReady = false
		if f.state == flowSniffing {
			l.sniff(f)
			continue
		}
		for h := range f.half {
			if f.alive(r.gen) && f.wait[h] == pump.Again {
				l.turn(f, h)
			}
		}
	}
}

// turnLagging looks for tails that the low-water mark holds back.
func (l *loop) turnLagging() {
	for l.lagging.len() > 0 && l.lagging.first().at+lagWait <= l.now {
		r := l.lagging.pop()
		f := l.slab.find(r.ref)
		if f == nil {
			continue
		}
		f.inLagging = false
		if f.active+lagWait > l.now { // it is streaming: the kernel wakes us
			l.lag(f, f.active)
			continue
		}
		for h := range f.half {
			if f.alive(r.gen) && f.wait[h] == pump.WantRead && f.half[h].Lagging() {
				l.turn(f, h)
			}
		}
	}
}

// lag makes sure that f is looked at within lagWait.
func (l *loop) lag(f *Flow, at time.Duration) {
	if !f.inLagging {
		f.inLagging = true
		l.lagging.push(lagRef{f.ref(), at})
	}
}

func (l *loop) timers() {
	if l.resting > 0 && l.resting <= l.now {
		l.wakeListeners()
	}
	now := int64(l.seen / tick)
	l.dgrams.timers(now)
	l.wheel.advance(now, timerBurst, func(i uint32) {
		if f := l.slab.at(i); f.state != flowFree {
			l.expire(f)
		}
	})
}
