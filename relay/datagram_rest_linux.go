package relay

import (
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// An upstream may answer late, or once more, when the flow has ended. The kernel gives a port out
// again at once (at random, udp_lib_get_port in net/ipv4/udp.c, Linux 6.18), so that the answer
// would reach the next flow towards that upstream which happens to get the port. So the socket of a
// flow that has moved something lately rests before it is closed: it keeps its port, and is not
// read.
//
// Resting sockets make room for flows: if descriptors run out, or the bound is reached, the one that has
// rested for longest is closed. Before descriptors run out, fewer rest with each flow that ends, so that a
// flow of any loop finds one. If ports run out, the next flow gets the very port that is given up: so it is one that
// has been silent for restLeast, or the new client is refused, as a wrong answer is worse than none.
//
// Unix sockets do not rest: the kernel chooses their names out of a million, and a full one would
// block an upstream that answers it (unix(7)).

const (
	// restTime is how long a socket rests: as long as a resolver usually waits
	// for an answer (resolv.conf(5), timeout).
	restTime = 5 * time.Second
	// restLeast is how long a port is silent at least before another flow gets it: most answers have come by then.
	restLeast = time.Second
	// One descriptor in restShare may be a resting socket's, and restMost in all: flows and streams take
	// them back when there is not enough, and in a flood each one that is closed early lets an answer that
	// comes late reach the wrong client.
	restShare, restMost = 2, 8192
	// restBuffer is the receive buffer of a resting socket, the least there is.
	restBuffer = 1
	// restBurst bounds how many are closed in one turn.
	restBurst = 64
	// restLess is how many are closed for each flow that ends while descriptors are few.
	restLess = 2
)

// closeUpstream ends the use of a flow's socket. last says that the flow ends, too: otherwise it may need
// its key again.
func (d *datagrams) closeUpstream(f *datagramFlow, last bool) {
	if f.fd < 0 {
		if last {
			d.giveDescriptor(f)
		}
		return
	}
	kept := f.kept
	fd, key := int(f.fd), d.unkeep(f)
	f.fd = -1
	if f.upstreamFamily() == sys.Unix || f.moved[up].datagrams == 0 || d.loop.Now-f.active >= d.restTime() {
		if kept {
			d.loop.Unwatch(fd) // the holder has the socket too
			d.keep.holding.drop(key)
		}
		d.descriptors.closing(1)
		d.shared.kernel.Close(fd)
		d.giveDescriptor(f)
		return
	}
	if !last {
		key = holdKey{}
	}
	f.reserved = 0 // it is the resting socket's
	d.rest(fd, key, kept)
}

// giveDescriptor gives back a flow's descriptor, which is not open.
func (d *datagrams) giveDescriptor(f *datagramFlow) {
	d.descriptors.give(int64(f.reserved))
	f.reserved = 0
}

// rest keeps a socket for a while, and does not read from it.
func (d *datagrams) rest(fd int, key holdKey, held bool) {
	if d.rests.len() >= d.share.maxResting {
		d.closeOldestRest()
	}
	d.loop.Unwatch(fd)
	sys.SetBuffers(d.shared.kernel, fd, restBuffer, 0)
	d.rests.push(resting{fd, d.loop.Now + d.share.restTime, key, held})
	d.descriptors.resting.Add(1)
	d.stats.Resting++
	for range restLess {
		if d.rests.len() == 0 || !d.descriptors.budget.few() {
			return
		}
		d.closeOldestRest()
	}
}

// closeRests closes the sockets that have rested.
func (d *datagrams) closeRests() {
	for range restBurst {
		if d.rests.len() == 0 || d.rests.first().until > d.loop.Now {
			return
		}
		d.closeRest()
	}
}

func (d *datagrams) closeRest() {
	r := d.rests.pop()
	d.descriptors.resting.Add(-1)
	d.descriptors.closing(1)
	d.shared.kernel.Close(r.fd)
	d.descriptors.give(1)
	if r.held {
		d.keep.holding.drop(r.key)
	}
	d.stats.Resting--
}

// closeOldestRest closes the socket that has rested for longest before its time.
func (d *datagrams) closeOldestRest() {
	d.closeRest()
	d.stats.RestingClosedEarly++
}

// spareRest closes the socket that has rested for longest, and reports whether there was one.
func (d *datagrams) spareRest() bool {
	if d.rests.len() == 0 {
		return false
	}
	d.closeOldestRest()
	return true
}

// restTime returns how long a socket has to be silent before it is closed.
func (d *datagrams) restTime() time.Duration {
	if d.portless {
		return d.share.restLeast
	}
	return d.share.restTime
}

// freePort makes a port free for keep; false: there is none to be had.
func (d *datagrams) freePort(keep *datagramFlow) bool {
	if d.rests.len() > 0 && d.loop.Now-d.rests.first().until >= d.share.restLeast-d.share.restTime {
		d.closeOldestRest()
		return true
	}
	d.portless = true
	freed := d.evict(keep)
	d.portless = false
	return freed
}

// freeDescriptor makes a descriptor free for keep; false: there is none to be had. A socket that
// rests is closed, or the flow that is worth least gives its own up.
func (d *datagrams) freeDescriptor(keep *datagramFlow) bool {
	if d.spareRest() {
		return true
	}
	if !d.evict(keep) {
		return false
	}
	d.spareRest() // which may be the evicted flow's
	return true
}
