package pump

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/penstock/penstock/internal/sys"
)

// Pipe is an empty pipe leased from [Pipes].
type Pipe struct {
	r, w       int
	generation uint32 // of the pipes in this slot; see PipeKey
	link
}

// Pipes is the pipe budget. It leases pipes to halves for as long as they hold bytes, keeps
// recently used ones open, and never exceeds its maximum.
//
// Each pipe that may exist has a slot. A slot is leased, or on one of two stacks: idle, with an
// empty pipe, or vacant, without one. Any goroutine reaches any slot, so a lease is refused only
// when every pipe is leased, and a refusal costs two loads.
//
//	          Get                     Put
//	vacant ─────────▶ leased ────────────────────▶ idle
//	   ▲                │   ◀──────────────────────  │
//	   │    Destroy     │             Get            │
//	   └────────────────┴────────────────────────────┘
//	                      Drain, a collection
//
// Ownership: after Get the pipe belongs to the half, which must Put it back empty or Destroy it.
type Pipes struct {
	kernel  sys.Kernel
	size    int
	most    int          // pipes that may be open
	slots   []Pipe       // most of them, and more if an earlier process used more
	holder  PipeHolder   // nil: the pipes end with the process
	fds     Descriptors  // nil: nobody counts them
	earlier earlierPipes // pipes that are on neither stack, and that nobody has leased yet
	idle    stack
	vacant  stack
	resting atomic.Int64 // pipes on the idle stack
	unused  atomic.Int64 // the smallest number of idle pipes at any time since the last collection
	open    atomic.Int64
	leased  atomic.Int64
	refused atomic.Int64
	watched atomic.Bool // the next collection looks at the idle ones
	ageing  sync.Mutex  // held while idle pipes are closed because of a collection, or all of them
}

// The budget's defaults.
const (
	// PipeSize is the requested size of each pipe in bytes: fs.pipe-max-size, the most that an
	// unprivileged process may ask for. With pipes of 64 KiB, a byte costs 1.7 times as much CPU.
	PipeSize = 1 << 20
	// MaxPipes bounds how many pipes are open at once. Each is two descriptors
	// and, while it holds bytes, up to PipeSize of socket memory.
	MaxPipes = 256
	// minPipe is the least useful size: a process over
	// fs.pipe-user-pages-soft gets pipes of one or two pages, pipe(7).
	minPipe = 64 << 10
)

// Descriptors is a budget of descriptors. Its methods are called from any goroutine, and must not wait.
type Descriptors interface {
	// TakePipe takes the two descriptors of a pipe and reports whether there were any.
	TakePipe() bool
	// GivePipe gives them back.
	GivePipe()
}

// Count makes the pipes take their descriptors from d. It is called before any pipe is leased, and the
// pipes of an earlier process count as taken.
func (ps *Pipes) Count(d Descriptors) { ps.fds = d }

// NewPipes returns a budget of at most max pipes of size bytes each; 0 means the defaults.
func NewPipes(k sys.Kernel, size, max int) *Pipes {
	if size <= 0 {
		size = PipeSize
	}
	if max <= 0 {
		max = MaxPipes
	}
	ps := newPipes(k, size, max)
	for i := range ps.slots {
		ps.vacant.push(&ps.slots[max-1-i])
	}
	return ps
}

// newPipes returns a budget with n slots that are on neither stack.
func newPipes(k sys.Kernel, size, n int) *Pipes {
	ps := &Pipes{kernel: k, size: size, most: n, slots: make([]Pipe, n)}
	for i := range ps.slots {
		ps.slots[i].at = uint32(i + 1)
	}
	return ps
}

// Get leases an empty pipe. It returns nil if the budget is used up or the kernel refuses.
func (ps *Pipes) Get() *Pipe {
	p := ps.take()
	if p == nil {
		if p = ps.create(); p == nil {
			ps.refused.Add(1)
			return nil
		}
	}
	ps.leased.Add(1)
	return p
}

// Put takes back a pipe that is empty, to lend it again.
func (ps *Pipes) Put(p *Pipe) {
	if int(p.at) > ps.most {
		ps.Destroy(p)
		return
	}
	ps.leased.Add(-1)
	ps.resting.Add(1)
	ps.idle.push(p)
	ps.watch()
}

// Destroy takes back a pipe that may still hold bytes: it is closed, never lent again.
func (ps *Pipes) Destroy(p *Pipe) {
	ps.leased.Add(-1)
	ps.close(p)
}

// Drain closes the pipes that are not leased. When it returns, the pipes that a garbage collection was about to close
// are closed, too.
func (ps *Pipes) Drain() {
	ps.ageing.Lock()
	defer ps.ageing.Unlock()
	ps.closeIdle(int64(len(ps.slots)))
}

// Leave closes this process's descriptors of the pipes that are not leased, which are the next process's from now on.
func (ps *Pipes) Leave() {
	ps.ageing.Lock()
	defer ps.ageing.Unlock()
	for p := ps.take(); p != nil; p = ps.take() {
		ps.kernel.Close(p.r)
		ps.kernel.Close(p.w)
	}
}

// CloseIdle closes up to n pipes that are not leased, and returns how many.
func (ps *Pipes) CloseIdle(n int) int { return int(ps.closeIdle(int64(n))) }

// PipeStats are the budget's gauges and counters.
type PipeStats struct {
	Open    int64 // pipes that exist
	Leased  int64 // pipes that hold a flow's bytes
	Max     int64 // most pipes that may exist
	Refused int64 // leases refused since the start
}

// Stats returns the budget's gauges and counters.
func (ps *Pipes) Stats() PipeStats {
	return PipeStats{Open: ps.open.Load(), Leased: ps.leased.Load(), Max: int64(ps.most), Refused: ps.refused.Load()}
}

// take takes the most recently used idle pipe, or returns nil if there is none.
func (ps *Pipes) take() *Pipe {
	p := ps.idle.pop(ps.slots)
	if p == nil {
		return nil
	}
	if n := ps.resting.Add(-1); n < ps.unused.Load() {
		ps.unused.Store(n)
	}
	return p
}

// create opens a pipe in a vacant slot.
func (ps *Pipes) create() *Pipe {
	p := ps.vacant.pop(ps.slots)
	if p == nil {
		return nil
	}
	if ps.fds != nil && !ps.fds.TakePipe() {
		ps.vacant.push(p)
		return nil
	}
	r, w, got, e := ps.kernel.Pipe(ps.size)
	if e != 0 {
		ps.vacant.push(p)
		ps.give()
		return nil
	}
	p.r, p.w = r, w
	p.generation++
	ps.open.Add(1)
	if got < min(minPipe, ps.size) || !ps.hold(p) {
		ps.close(p)
		return nil
	}
	return p
}

// close closes a pipe that is on neither stack.
func (ps *Pipes) close(p *Pipe) {
	ps.kernel.Close(p.r)
	ps.kernel.Close(p.w)
	ps.drop(p)
	ps.give()
	ps.open.Add(-1)
	if int(p.at) <= ps.most {
		ps.vacant.push(p)
	}
}

// give gives the descriptors of a pipe back.
func (ps *Pipes) give() {
	if ps.fds != nil {
		ps.fds.GivePipe()
	}
}

// closeIdle closes up to n idle pipes, and returns how many.
func (ps *Pipes) closeIdle(n int64) (closed int64) {
	for ; closed < n; closed++ {
		p := ps.take()
		if p == nil {
			break
		}
		ps.close(p)
	}
	return closed
}

// watch makes the next garbage collection close as many pipes as have not been in use since the one
// before, as long as there are idle ones. It notices a collection by an object that is collected.
func (ps *Pipes) watch() {
	if ps.watched.Load() || !ps.watched.CompareAndSwap(false, true) {
		return
	}
	type sentinel struct{ _ [32]byte } // not shared with other small objects
	runtime.AddCleanup(new(sentinel), (*Pipes).age, ps)
}

// Keep makes all idle pipes stay until Drain or CloseIdle: a simulation does not depend on the collector.
func (ps *Pipes) Keep() { ps.watched.Store(true) }

func (ps *Pipes) age() {
	ps.ageing.Lock()
	defer ps.ageing.Unlock()
	ps.closeIdle(ps.unused.Load())
	ps.unused.Store(ps.resting.Load())
	ps.watched.Store(false)
	if ps.resting.Load() > 0 {
		ps.watch()
	}
}

// stack is a lock-free stack of slots. Its low half is the number of the top slot, its high half a
// count of changes, so that a pop notices if the slot was taken and put back meanwhile.
type stack struct{ head atomic.Uint64 }

// link is a slot's place on a stack. Slots are numbered from 1; 0 means none.
type link struct {
	at   uint32
	next atomic.Uint32
}

func (s *stack) push(p *Pipe) {
	for {
		head := s.head.Load()
		p.next.Store(uint32(head))
		if s.head.CompareAndSwap(head, changed(head, p.at)) {
			return
		}
	}
}

func (s *stack) pop(slots []Pipe) *Pipe {
	for {
		head := s.head.Load()
		if uint32(head) == 0 {
			return nil
		}
		p := &slots[uint32(head)-1]
		if s.head.CompareAndSwap(head, changed(head, p.next.Load())) {
			return p
		}
	}
}

func changed(head uint64, top uint32) uint64 { return (head>>32+1)<<32 | uint64(top) }
