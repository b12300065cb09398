package dgram

import (
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// routeAge is for how long a destination that refused a run gets none. A
	// route may change (a VPN goes down), and another try costs one system call.
	routeAge = 5 * time.Minute

	// maxRoutes bounds the memory. Beyond it all is forgotten and learnt again.
	maxRoutes = 1024

	// alwaysFits is a datagram that fits every IPv6 path: the least MTU of RFC
	// 8200 section 5, less 40 bytes for IPv6 and 8 for UDP.
	alwaysFits = 1280 - 40 - 8
)

// routes remembers which destinations refuse runs, and of what size. The zero
// AddrPort's address stands for the peer of a connected socket.
type routes struct {
	known atomic.Int32 // entries in m, so that the usual case takes no lock
	mu    sync.Mutex
	m     map[netip.Addr]refusal
}

type refusal struct {
	largest int // datagrams up to this size may still be sent as runs
	until   time.Time
}

// largest is the greatest datagram that may be part of a run to a.
func (r *routes) largest(a netip.Addr) int {
	if r.known.Load() == 0 {
		return math.MaxInt
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	f, ok := r.m[a]
	if !ok {
		return math.MaxInt
	}
	if time.Now().After(f.until) {
		delete(r.m, a)
		r.known.Store(int32(len(r.m)))
		return math.MaxInt
	}
	return f.largest
}

// refuse notes that a run of datagrams of the given size to a failed, and that
// the same datagrams went through one by one.
func (r *routes) refuse(a netip.Addr, size int, errno syscall.Errno) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.m == nil || len(r.m) >= maxRoutes {
		r.m = make(map[netip.Addr]refusal)
	}
	r.m[a] = refusal{largest: stillAllowed(size, errno), until: time.Now().Add(routeAge)}
	r.known.Store(int32(len(r.m)))
}

// stillAllowed is what a refused run of the given datagram size says about
// smaller ones. EIO is the device's or the route's: no checksum offload, IPsec.
// EINVAL, and EMSGSIZE since Linux 6.14, also mean that a datagram is larger than
// the path MTU, where single ones are fragmented: smaller ones may still do.
// The step down is geometric, so that falling sizes do not pay again each time.
func stillAllowed(size int, errno syscall.Errno) int {
	if errno == syscall.EIO || size <= alwaysFits {
		return 0
	}
	return max(alwaysFits, size-size/8-1)
}

// refusesRuns reports whether errno may mean that it is the run, and not its
// datagrams, that cannot be sent.
func refusesRuns(errno syscall.Errno) bool {
	return errno == syscall.EIO || errno == syscall.EINVAL || errno == syscall.EMSGSIZE
}
