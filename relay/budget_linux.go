package relay

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/stats"
)

// A flow begins when all the descriptors that it needs are there: a stream takes
// one for the client and one for the upstream before the client is accepted, and a
// flow of datagrams takes one. Whoever finds none waits where that costs nothing,
// in the kernel's queue. So a client that was accepted is served.
//
// What may be taken is the limit of the process, less what the rest of the program
// has open, less a reserve for what that opens next. Both the limit and the rest
// change, and are read again, most often when there is not enough. All the same
// the rest may grow faster than that is seen. Then the kernel refuses (EMFILE),
// and a flow waits for a descriptor; see stream_descriptors_linux.go.
//
// A descriptor that is taken is promised until it is open. It is promised before it
// is taken, and after it was given back, so that what changes during a measurement
// counts as the rest's rather than as free.

const (
	// flowDescriptors are the descriptors of a stream: the client's and the upstream's.
	flowDescriptors = 2
	// One descriptor in kindShare, at most kindMost, is for streams alone and one for datagrams,
	// if there are listeners of both, and twice as many while there are too few for them. Pipes, and
	// sockets that rest, leave one in pipeShare free.
	kindShare, kindMost, pipeShare = 4, 512, 16
	// One descriptor in programShare is reserved for the rest of the program, within bounds.
	programShare, leastReserve, mostReserve = 16, 4, 256
	// While there are plenty, a loop takes some ahead: one descriptor in aheadShare for all loops.
	// If that is fewer than aheadLeast, it takes none ahead.
	aheadShare, aheadLeast, aheadMost = 16, 8, 64
	// measureSoon and measureLate are how old a measurement may be where there is not enough, and
	// elsewhere.
	measureSoon, measureLate = 20 * time.Millisecond, time.Second
	// deniedFor is how long the share of datagrams is greater after they found none.
	deniedFor = time.Second
	// unknownRest is what the rest of the program has open if the kernel does not say.
	unknownRest = 32
	// tableMost is for how many descriptors there is room from the start in the kernel's table, which takes
	// 8 bytes for each. It doubles whenever it is full, and the loop that opens a descriptor then waits for
	// 10 ms or so.
	tableMost = 64 << 10
	// idleBurst is how many idle pipes are closed at once.
	idleBurst = 8
	// giveUpBurst is how many descriptors are closed for others at once.
	giveUpBurst = 32
)

// descriptorBudget is what the flows, pipes and resting sockets of an engine may
// have open. The loops take from it and give back.
type descriptorBudget struct {
	kernel sys.Kernel
	start  time.Time      // the engine's
	all    []*descriptors // one per loop
	pipes  *pump.Pipes    // nil: nothing is spliced
	flows  budgetFlows
	free   atomic.Int64 // may be taken; below 0 if the rest of the program has grown
	plenty atomic.Int64 // as long as more are free, loops take some ahead, and kinds do not matter
	total  atomic.Int64 // what there is to take in all
	limit  atomic.Int64 // of the process
	rest   atomic.Int64 // what the rest of the program has open
	ahead  atomic.Int64 // how many a loop takes ahead
	waits  atomic.Int64 // how often a loop had to wait
	denied atomic.Int64 // when a flow of datagrams found none, since the engine's start; 0: never
	// streams and datagrams are the listeners of each kind.
	streams, datagrams atomic.Int64

	mu       sync.Mutex   // of a measurement
	measured atomic.Int64 // when that was, since the engine's start; 0: never
}

// budgetFlows asks the owners of flows.
type budgetFlows struct {
	streams       func() int64 // flows of streams
	short         func() bool  // streams wait for descriptors
	datagrams     func() int64 // flows of datagrams
	mostDatagrams func() int64
}

// descriptors is a loop's part of the budget. It belongs to the loop, but for what is atomic.
type descriptors struct {
	budget   *descriptorBudget
	loop     *loop.Loop
	ahead    int64        // taken, and nobody's yet
	promised atomic.Int64 // taken, and not open
	resting  atomic.Int64 // open, and dispensable: the sockets of flows that have ended
	asked    atomic.Bool  // the loop is going to give up what it can do without
	_        [80]byte     // no other loop's are on these cache lines
}

// init makes the budget of loops that have opened what they need for themselves.
func (b *descriptorBudget) init(k sys.Kernel, start time.Time, loops []*loop.Loop, pipes *pump.Pipes, flows budgetFlows) {
	b.kernel, b.start, b.pipes, b.flows = k, start, pipes, flows
	for _, l := range loops {
		b.all = append(b.all, &descriptors{budget: b, loop: l})
	}
	if pipes != nil {
		pipes.Count(b)
		b.free.Add(-2 * pipes.Stats().Open) // an earlier process's
	}
	b.measure(0, 0)
	b.kernel.GrowFiles(loops[0].Descriptor(), int(min(b.limit.Load(), tableMost)))
}

// measure reads the limit and what the rest of the program has open, if the last time
// was at least age ago. It reports whether it has.
func (b *descriptorBudget) measure(now, age time.Duration) bool {
	if last := b.measured.Load(); last > 0 && int64(now)-last < int64(age) || !b.mu.TryLock() {
		return false
	}
	defer b.mu.Unlock()
	b.measured.Store(max(1, int64(now)))
	limit := b.limit.Load()
	if n, err := b.kernel.FileLimit(); err == nil {
		limit = int64(min(n, math.MaxInt32))
	}
	rest := b.rest.Load()
	taken := b.taken()
	if open, ok := b.kernel.OpenFiles(); ok {
		rest = max(int64(open)-taken+b.promised(), 0)
	} else if rest == 0 {
		rest = unknownRest
	}
	b.set(limit, rest)
	return true
}

// full is called when the kernel has refused a descriptor that was taken. It has the budget
// follow, even if the kernel does not say what is open.
func (b *descriptorBudget) full(now time.Duration) {
	b.measure(now, measureSoon)
	if _, ok := b.kernel.OpenFiles(); ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set(b.limit.Load(), max(b.limit.Load()-b.taken()+b.promised(), unknownRest))
}

// set sets what the budget follows from. The caller has locked it.
func (b *descriptorBudget) set(limit, rest int64) {
	total := limit - rest - reserveOf(limit)
	b.limit.Store(limit)
	b.rest.Store(rest)
	b.free.Add(total - b.total.Swap(total))
	loops := int64(len(b.all))
	ahead, plenty := min(max(total, 0)/(aheadShare*loops), aheadMost), int64(math.MaxInt64)
	if ahead >= aheadLeast {
		plenty = b.shareOf(&b.streams) + b.shareOf(&b.datagrams) + 4*loops*ahead
	}
	b.ahead.Store(ahead)
	b.plenty.Store(plenty)
}

// reserveOf returns how many descriptors of a limit are for the rest of the program.
func reserveOf(limit int64) int64 {
	return min(max(limit/programShare, leastReserve), mostReserve)
}

func (b *descriptorBudget) taken() int64 { return b.total.Load() - b.free.Load() }

func (b *descriptorBudget) promised() (n int64) {
	for _, d := range b.all {
		n += d.promised.Load()
	}
	return n
}

// shareOf is what is for flows of a kind alone. Without listeners of that kind it is nothing.
func (b *descriptorBudget) shareOf(listeners *atomic.Int64) int64 {
	if listeners.Load() == 0 {
		return 0
	}
	return min(max(b.total.Load(), 0)/kindShare, kindMost)
}

// forStreams is what has to stay free for streams.
func (b *descriptorBudget) forStreams() int64 {
	n := b.shareOf(&b.streams)
	if n == 0 {
		return 0
	}
	if b.flows.short() {
		n *= 2
	}
	return max(n-flowDescriptors*b.flows.streams(), 0)
}

// forDatagrams is what has to stay free for flows of datagrams.
func (b *descriptorBudget) forDatagrams() int64 {
	n := b.shareOf(&b.datagrams)
	if t := b.denied.Load(); t > 0 && b.measured.Load()-t < int64(deniedFor) {
		n *= 2
	}
	return max(min(n, b.flows.mostDatagrams())-b.flows.datagrams(), 0)
}

// listen counts the listeners of a kind.
func (b *descriptorBudget) listen(datagrams bool, n int64) {
	kind, age := &b.streams, measureSoon
	if datagrams {
		kind = &b.datagrams
	}
	if was := kind.Add(n) - n; was == 0 || was+n == 0 {
		age = 0 // the shares change
	}
	b.measure(b.kernel.Now().Sub(b.start), age)
}

// takeAbove takes n descriptors if at least keep stay free.
func (b *descriptorBudget) takeAbove(n, keep int64) bool {
	for {
		free := b.free.Load()
		if free-n < keep {
			return false
		}
		if b.free.CompareAndSwap(free, free-n) {
			return true
		}
	}
}

// TakePipe takes the descriptors of a pipe from what is left over.
func (b *descriptorBudget) TakePipe() bool { return b.takeAbove(2, b.spareAbove()) }

// spareAbove is how many stay free of what is dispensable: of pipes, and of sockets that rest.
func (b *descriptorBudget) spareAbove() int64 {
	keep := b.total.Load() / pipeShare
	if b.free.Load() <= b.plenty.Load() {
		keep += b.forStreams() + b.forDatagrams()
	}
	return keep
}

// few reports whether fewer are free than should be while anything dispensable is open.
func (b *descriptorBudget) few() bool { return b.free.Load() < b.spareAbove() }

// GivePipe gives back the descriptors of a pipe.
func (b *descriptorBudget) GivePipe() { b.free.Add(2) }

// closeIdlePipes closes some of the pipes that hold nothing. It reports whether there were any.
func (b *descriptorBudget) closeIdlePipes() bool {
	return b.pipes != nil && b.pipes.CloseIdle(idleBurst) > 0
}

// stats returns the gauges.
func (b *descriptorBudget) stats() stats.Descriptors {
	b.measure(b.kernel.Now().Sub(b.start), measureSoon)
	limit := b.limit.Load()
	return stats.Descriptors{Limit: limit, InUse: b.rest.Load() + b.taken(), Reserved: reserveOf(limit), Waits: b.waits.Load()}
}

// takeAhead takes n descriptors while there are plenty.
func (d *descriptors) takeAhead(n int64, now time.Duration) bool {
	if d.ahead >= n {
		d.ahead -= n
		return true
	}
	b := d.budget
	b.measure(now, measureLate)
	if b.free.Load() <= b.plenty.Load() {
		return false
	}
	more := b.ahead.Load()
	d.promised.Add(n + more)
	b.free.Add(-n - more)
	d.ahead += more
	return true
}

// takeAbove takes n descriptors if at least keep stay free.
func (d *descriptors) takeAbove(n, keep int64) bool {
	d.promised.Add(n)
	if !d.budget.takeAbove(n, keep) {
		d.promised.Add(-n)
		return false
	}
	return true
}

// promise takes n descriptors, whether there is room or not.
func (d *descriptors) promise(n int64) {
	d.promised.Add(n)
	d.budget.free.Add(-n)
}

// takeOpen takes n descriptors that are open already, whether there is room or not.
func (d *descriptors) takeOpen(n int64) { d.budget.free.Add(-n) }

// opened notes that n descriptors which were taken are open.
func (d *descriptors) opened(n int64) { d.promised.Add(-n) }

// closing notes that n open descriptors are about to be closed, and are taken still.
func (d *descriptors) closing(n int64) { d.promised.Add(n) }

// give gives back n descriptors that are not open.
func (d *descriptors) give(n int64) {
	d.ahead += n
	if d.ahead > 2*aheadMost || d.budget.free.Load() <= d.budget.plenty.Load() {
		d.giveAhead()
	}
}

// giveAhead gives back what was taken ahead.
func (d *descriptors) giveAhead() {
	n := d.ahead
	d.ahead = 0
	d.budget.free.Add(n)
	d.promised.Add(-n)
}

// giveUp closes descriptors that the loop's handlers can do without, for other loops.
func (d *descriptors) giveUp() {
	d.asked.Store(false)
	d.giveAhead()
	for range giveUpBurst {
		if !d.loop.Spare() {
			break
		}
	}
	d.loop.Freed()
}

// dispensable reports whether the loop may have something that it can give up.
func (d *descriptors) dispensable() bool {
	return d.resting.Load() > 0 || d.budget.ahead.Load() > 0 && d.promised.Load() > 0
}
