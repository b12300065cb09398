package segment

import (
	"math"
	"net/netip"
	"time"
)

const (
	// refusalAge is how long a destination that refused a run gets no runs. A route may change (a
	// VPN goes down), and another try costs one system call.
	refusalAge = 5 * time.Minute

	// maxRefusals bounds the memory. Beyond it, everything is forgotten and learnt again.
	maxRefusals = 1024

	// alwaysFits is a datagram that fits every IPv6 path: the least MTU of RFC
	// 8200 section 5, less 40 bytes for IPv6 and 8 for UDP.
	alwaysFits = 1280 - 40 - 8
)

// Refusals remembers which destinations refuse runs, and of what size. The zero Refusals remembers
// none. It is not safe for concurrent use.
//
// A failed send is not necessarily a refusal. A socket also reports errors of earlier datagrams,
// perhaps to another destination (an ICMP error, udp(7)), and the datagrams of the run might also
// fail individually. So the caller sends the run once more, then its datagrams one by one, and
// calls Add when the first of them was sent.
type Refusals struct {
	m map[netip.Addr]Refusal
}

// Refusal describes which runs a destination refuses.
type Refusal struct {
	Largest int       // datagrams of up to this size may still be in runs
	Until   time.Time // when the refusal is forgotten
}

// None is the Refusal of a destination that has refused nothing.
var None = Refusal{Largest: math.MaxInt}

// Len returns the number of destinations remembered, including expired ones.
func (r *Refusals) Len() int { return len(r.m) }

// Of returns the refusal of destination a, or [None].
func (r *Refusals) Of(a netip.Addr, now time.Time) Refusal {
	f, ok := r.m[a]
	if !ok {
		return None
	}
	if now.After(f.Until) {
		delete(r.m, a)
		return None
	}
	return f
}

// Add records that a refused a run of datagrams of the given size. If the error may be about the
// size (EINVAL, and EMSGSIZE since Linux 6.14: a single datagram above the path MTU is fragmented,
// a run is not), runs of smaller ones are still allowed; EIO is about the device or the route: no
// checksum offload, IPsec.
//
// The size is reduced geometrically, so that decreasing sizes do not cost a refusal each time.
func (r *Refusals) Add(a netip.Addr, size int, aboutSize bool, now time.Time) Refusal {
	f := Refusal{Until: now.Add(refusalAge)}
	if aboutSize && size > alwaysFits {
		f.Largest = max(alwaysFits, size-size/8-1)
	}
	if r.m == nil || len(r.m) >= maxRefusals {
		r.m = make(map[netip.Addr]Refusal)
	}
	r.m[a] = f
	return f
}
