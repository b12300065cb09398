package pump

import (
	"sync/atomic"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/pool"
)

// Pipe is an empty pipe on lease from [Pipes].
type Pipe struct {
	r, w int
}

// Pipes is the pipe budget: it lends pipes to halves for as long as they hold
// bytes, keeps a few warm, and refuses to hold more than it may.
//
// Ownership: after Get the pipe belongs to the half, who must Put it back
// empty or Destroy it.
type Pipes struct {
	kernel  sys.Kernel
	size    int
	max     int64
	pool    pool.Pool[*Pipe]
	open    atomic.Int64
	leased  atomic.Int64
	refused atomic.Int64
}

// The budget's defaults.
const (
	// PipeSize is the room asked for in each pipe, in bytes: fs.pipe-max-size,
	// the most that an unprivileged process may ask for. A pipe of 64 KiB
	// costs 1.7 times as much CPU a byte.
	PipeSize = 1 << 20
	// MaxPipes bounds how many pipes are open at once. Each is two descriptors
	// and, while it holds bytes, up to PipeSize of socket memory.
	MaxPipes = 256
	// minPipe is the least useful size: a process over
	// fs.pipe-user-pages-soft gets pipes of one or two pages, pipe(7).
	minPipe = 64 << 10
)

// NewPipes makes a budget of at most max pipes of size bytes each; 0 means the defaults.
func NewPipes(k sys.Kernel, size, max int) *Pipes {
	if size <= 0 {
		size = PipeSize
	}
	if max <= 0 {
		max = MaxPipes
	}
	p := &Pipes{kernel: k, size: size, max: int64(max)}
	p.pool.Drop = p.destroy
	return p
}

// Get lends an empty pipe; nil where the budget or the kernel has none left.
func (ps *Pipes) Get() *Pipe {
	p := ps.pool.Get()
	if p == nil {
		if p = ps.create(); p == nil {
			ps.refused.Add(1)
			return nil
		}
	}
	ps.leased.Add(1)
	return p
}

// Put takes back a pipe that is empty.
func (ps *Pipes) Put(p *Pipe) {
	ps.leased.Add(-1)
	ps.pool.Put(p)
}

// Destroy takes back a pipe that may still hold bytes: it is closed, never pooled.
func (ps *Pipes) Destroy(p *Pipe) {
	ps.leased.Add(-1)
	ps.destroy(p)
}

// Drain closes the pipes that nobody has on lease.
func (ps *Pipes) Drain() { ps.pool.Drain() }

// PipeStats are the budget's gauges and counters.
type PipeStats struct {
	Open    int64 // pipes that exist
	Leased  int64 // of them, those that hold a flow's bytes
	Max     int64 // most pipes that may exist
	Refused int64 // leases refused since the start
}

// Stats tells the budget's gauges and counters.
func (ps *Pipes) Stats() PipeStats {
	return PipeStats{Open: ps.open.Load(), Leased: ps.leased.Load(), Max: ps.max, Refused: ps.refused.Load()}
}

func (ps *Pipes) create() *Pipe {
	if ps.open.Add(1) > ps.max {
		// One that lies on another CPU, out of this one's reach, makes room.
		if ps.pool.Drain() == 0 || ps.open.Load() > ps.max {
			ps.open.Add(-1)
			return nil
		}
	}
	r, w, got, e := ps.kernel.Pipe(ps.size)
	if e != 0 {
		ps.open.Add(-1)
		return nil
	}
	p := &Pipe{r: r, w: w}
	if got < min(minPipe, ps.size) {
		ps.destroy(p)
		return nil
	}
	return p
}

func (ps *Pipes) destroy(p *Pipe) {
	ps.kernel.Close(p.r)
	ps.kernel.Close(p.w)
	ps.open.Add(-1)
}
