package pump

import (
	"sync"

	"github.com/penstock/penstock/internal/sys"
)

// PipeHolder holds duplicates of the pipes of a budget, so that they and the bytes in them outlive
// the process. Its methods are called from any goroutine, and must not wait.
type PipeHolder interface {
	// HoldPipe reports whether duplicates of both ends are held now. If not, the pipe is not used.
	HoldPipe(k PipeKey, r, w int) bool
	// DropPipe is called after a pipe was closed, even if it was not held.
	DropPipe(k PipeKey)
}

// PipeKey identifies a pipe: its slot, and which of the slot's pipes it is. Keys are not used again,
// so that what is said late about one pipe does not reach the slot's next one.
type PipeKey struct{ Number, Generation uint32 }

// Key returns the pipe's key. No two open pipes of a budget have the same number.
func (p *Pipe) Key() PipeKey { return PipeKey{p.at - 1, p.generation} }

// HeldPipe is a pipe that an earlier process has made.
type HeldPipe struct {
	Key  PipeKey
	R, W int
}

// MaxPipeNumber is the greatest number of a held pipe that is taken over.
const MaxPipeNumber = 1<<18 - 1

// earlierPipes are the pipes of an earlier process, by number.
type earlierPipes struct {
	sync.Mutex
	pipes map[uint32]*Pipe
}

// NewKeptPipes is like [NewPipes] for a budget whose pipes h holds, except that a negative most
// means no pipes. Those of an earlier process belong to the budget from then on, even if they are
// more than most: the halves that had leased them take them again by [Pipes.Lease], and then
// [Pipes.Settle] must be called.
func NewKeptPipes(k sys.Kernel, size, most int, h PipeHolder, earlier []HeldPipe) *Pipes {
	if size <= 0 {
		size = PipeSize
	}
	if most == 0 {
		most = MaxPipes
	}
	most = max(most, 0)
	n := most
	newest := make(map[uint32]HeldPipe)
	var over []HeldPipe
	for _, p := range earlier {
		other, again := newest[p.Key.Number]
		switch {
		case p.Key.Number > MaxPipeNumber || again && other.Key.Generation >= p.Key.Generation:
			over = append(over, p)
			continue
		case again: // it was closed, but its holder has not heard of that
			over = append(over, other)
		}
		newest[p.Key.Number] = p
		n = max(n, int(p.Key.Number)+1)
	}
	ps := newPipes(k, size, n)
	ps.holder, ps.most = h, most
	ps.earlier.pipes = make(map[uint32]*Pipe)
	for i := n - 1; i >= 0; i-- {
		p := &ps.slots[i]
		if held, ok := newest[uint32(i)]; ok {
			p.r, p.w, p.generation = held.R, held.W, held.Key.Generation
			ps.earlier.pipes[uint32(i)] = p
			ps.open.Add(1)
		} else if i < most {
			ps.vacant.push(p)
		}
	}
	for _, p := range over {
		k.Close(p.R)
		k.Close(p.W)
		h.DropPipe(p.Key)
	}
	return ps
}

// Lease leases a pipe of an earlier process by its number. It returns nil if there is none, or it
// is leased already. Several goroutines may call it at once.
func (ps *Pipes) Lease(number uint32) *Pipe {
	ps.earlier.Lock()
	p := ps.earlier.pipes[number]
	delete(ps.earlier.pipes, number)
	ps.earlier.Unlock()
	if p != nil {
		ps.leased.Add(1)
	}
	return p
}

// Settle is called when no half leases a pipe of an earlier process any more. Those that are left
// are lent again if they are empty. One with bytes is closed, since nobody knows whose they are.
func (ps *Pipes) Settle() {
	ps.earlier.Lock()
	left := ps.earlier.pipes
	ps.earlier.pipes = nil
	ps.earlier.Unlock()
	for _, p := range left {
		ps.leased.Add(1)
		if sys.Readable(ps.kernel, p.r) {
			ps.Destroy(p)
		} else {
			ps.Put(p)
		}
	}
}

func (ps *Pipes) hold(p *Pipe) bool {
	return ps.holder == nil || ps.holder.HoldPipe(p.Key(), p.r, p.w)
}

func (ps *Pipes) drop(p *Pipe) {
	if ps.holder != nil {
		ps.holder.DropPipe(p.Key())
	}
}

// Queued returns how many bytes a pipe of an earlier process holds that nobody has leased yet; ok is
// false if there is no such pipe.
func (ps *Pipes) Queued(number uint32) (n int, ok bool) {
	if ps == nil {
		return 0, false
	}
	ps.earlier.Lock()
	defer ps.earlier.Unlock()
	p := ps.earlier.pipes[number]
	if p == nil {
		return 0, false
	}
	n, e := ps.kernel.ReadQueued(p.r)
	return n, e == 0
}
