package dgram

import (
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/segment"
)

// routes remembers which destinations refuse runs, and of what size. The zero
// AddrPort's address stands for the peer of a connected socket.
type routes struct {
	known    atomic.Int32 // destinations remembered, so that the usual case takes no lock
	mu       sync.Mutex
	refusals segment.Refusals
}

// largest is the greatest datagram that may be part of a run to a.
func (r *routes) largest(a netip.Addr) int {
	if r.known.Load() == 0 {
		return math.MaxInt
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.refusals.Of(a, time.Now())
	r.known.Store(int32(r.refusals.Len()))
	return f.Largest
}

// refuse notes that a run of datagrams of the given size to a failed, and that
// the same datagrams went through one by one.
func (r *routes) refuse(a netip.Addr, size int, errno syscall.Errno) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusals.Add(a, size, errno != syscall.EIO, time.Now())
	r.known.Store(int32(r.refusals.Len()))
}

// refusesRuns reports whether errno may mean that it is the run, and not its
// datagrams, that cannot be sent.
func refusesRuns(errno syscall.Errno) bool {
	return errno == syscall.EIO || errno == syscall.EINVAL || errno == syscall.EMSGSIZE
}
