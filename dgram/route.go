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

// routes remembers which destinations refuse runs, and of what size. The zero Addr stands
// for the peer of a connected socket.
type routes struct {
	known    atomic.Int32 // destinations remembered; the usual case is 0 and takes no lock
	mu       sync.Mutex
	refusals segment.Refusals
}

// largest returns the maximum size of a datagram in a run to a.
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

// refuse records that a run of datagrams of the given size to a was refused, and that the
// same datagrams could be sent one by one.
func (r *routes) refuse(a netip.Addr, size int, errno syscall.Errno) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusals.Add(a, size, errno != syscall.EIO, time.Now())
	r.known.Store(int32(r.refusals.Len()))
}

// refusesRuns reports whether errno may mean that the run cannot be sent but its datagrams
// can.
func refusesRuns(errno syscall.Errno) bool {
	return errno == syscall.EIO || errno == syscall.EINVAL || errno == syscall.EMSGSIZE
}
