package simkernel

import (
	"sync"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// Memory that processes share is memory of the process that simulates. It is lent: the kernel would need longer to give and to take it.
var (
	regionsLock sync.Mutex
	regions     = make(map[int64][][]byte) // that are free, by size
)

// holeMost is how much of a hole reads as zeros. What is behind has arbitrary contents, since a hole may be larger than all memory.
const holeMost = 64 << 10

// newRegion returns memory of which each byte is 0, but for what Wipe leaves.
func newRegion(size int64) ([]byte, sys.Errno) {
	regionsLock.Lock()
	defer regionsLock.Unlock()
	if free := regions[size]; len(free) > 0 {
		regions[size] = free[:len(free)-1]
		return free[len(free)-1], 0
	}
	fd, e := sys.Memfd("simulated", size)
	if e != 0 {
		return nil, e
	}
	defer sys.Linux{}.Close(fd)
	return sys.Map(fd, size)
}

// freeRegion is called when nobody has the memory any more.
func (w *World) freeRegion(b []byte) {
	if w.Wipe == nil {
		sys.Unmap(b)
		return
	}
	w.Wipe(b)
	regionsLock.Lock()
	defer regionsLock.Unlock()
	regions[int64(len(b))] = append(regions[int64(len(b))], b)
}

// Memfd implements [sys.Kernel].
func (p *Process) Memfd(_ string, size int64) (int, sys.Errno) {
	b, e := newRegion(size)
	if e != 0 {
		return -1, e
	}
	f := &file{refs: 1, world: p.w, shared: b}
	p.w.regions = append(p.w.regions, f)
	return p.install(f)
}

// region returns the file of shared memory that fd is.
func (p *Process) region(fd int) (*file, sys.Errno) {
	f := p.file(fd)
	switch {
	case f == nil:
		return nil, syscall.EBADF
	case f.shared == nil:
		return nil, sys.EINVAL
	}
	return f, 0
}

// SealedSize implements [sys.Kernel].
func (p *Process) SealedSize(fd int) (int64, sys.Errno) {
	f, e := p.region(fd)
	if e != 0 {
		return 0, e
	}
	return int64(len(f.shared)), 0
}

// Map implements [sys.Kernel]: all mappings of a file are the same memory, whose address says nothing.
func (p *Process) Map(fd int, size int64) ([]byte, sys.Errno) {
	f, e := p.region(fd)
	switch {
	case e != 0:
		return nil, e
	case size != int64(len(f.shared)):
		return nil, sys.EINVAL
	}
	f.refs++
	p.mapped = append(p.mapped, f)
	return f.shared, 0
}

// Unmap implements [sys.Kernel].
func (p *Process) Unmap(b []byte) sys.Errno {
	for i, f := range p.mapped {
		if &f.shared[0] == &b[0] {
			p.mapped = append(p.mapped[:i], p.mapped[i+1:]...)
			f.release()
			return 0
		}
	}
	return sys.EINVAL
}

// Mapped returns how many mappings the process has.
func (p *Process) Mapped() int { return len(p.mapped) }

// PunchHole implements [sys.Kernel].
func (p *Process) PunchHole(fd int, offset, n int64) sys.Errno {
	f, e := p.region(fd)
	if e == 0 {
		clear(f.shared[offset:][:min(n, holeMost)])
	}
	return e
}
