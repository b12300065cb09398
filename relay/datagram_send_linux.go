package relay

import (
	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/segment"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/stats"
)

// lease returns the first of the messages of replies that may be received into,
// and how many may. What is queued may refer to the messages before it. They
// become free only here, before a read, and only when nothing is queued.
func (o *outbox) lease() (from, n int) {
	if o.replies == nil {
		o.borrow()
	}
	o.d.mark(o.port)
	if o.n == 0 {
		o.leased = 0
	}
	return o.leased, dgramBatch - o.leased
}

// add appends a message of f, which arrived with a TOS byte. Where the outbox is full it flushes first.
func (o *outbox) add(f *datagramFlow, b []byte, seg int, tos uint8) {
	tos = f.keepTOS(tos)
	if o.port == nil {
		if f.held != nil || f.builtin() {
			o.overflow(f, f.gen, b, seg, tos)
			return
		}
		o.of = f
	}
	if o.front(f) != nil {
		o.addPrefaced(f, b, seg, tos)
		return
	}
	size := len(b)
	if seg > 0 {
		size = min(size, seg)
	}
	limit := o.d.runsOf(f, o.dir(), size)
	gen := f.gen
	for {
		n := limit.Fit(len(b), seg)
		last := o.n - 1
		if o.run.Count == 0 || o.items[last].f != f || o.items[last].tos != tos || len(o.pieces) == cap(o.pieces) || !o.run.Join(limit, n, seg) {
			if !o.room(f) {
				o.overflow(f, gen, b, seg, tos)
				return
			}
			if o.front(f) != nil { // flushing has taken f to another upstream
				o.addPrefaced(f, b, seg, tos)
				return
			}
			o.open(f, tos)
			last = o.n - 1
			limit = o.d.runsOf(f, o.dir(), size) // it may have other runs, too
			n = limit.Fit(len(b), seg)
			o.run.Join(limit, n, seg)
		}
		o.pieces = append(o.pieces, piece{b: b[:n:n], seg: seg})
		o.v.Add(b[:n])
		it := &o.items[last]
		it.past++
		it.bytes += n
		it.count += segment.Count(n, seg)
		if n == len(b) {
			return
		}
		b = b[n:]
	}
}

// overflow is where a message goes that cannot be planned: the flow was f with
// generation gen when it was read.
func (o *outbox) overflow(f *datagramFlow, gen uint32, b []byte, seg int, tos uint8) {
	switch {
	case !f.alive(gen):
		o.d.drop(nil, o.dir(), stats.DropEnded, len(b), segment.Count(len(b), seg))
	case o.port != nil:
		o.d.drop(f, down, stats.DropFull, len(b), segment.Count(len(b), seg))
	case f.builtin():
		o.d.carryBuiltin(f, b, seg, tos)
		o.d.echoes.flush() // the memory of b is about to be used again
	default:
		o.d.holdBack(f, b, seg, tos)
	}
}

// room completes the last message, and reports whether there is room for another one; if not, it flushes first. That may take f to another
// upstream, where something else is in front of its datagrams.
func (o *outbox) room(f *datagramFlow) bool {
	o.seal()
	if o.v.Room(2) { // a datagram, and what may be in front of it
		return true
	}
	gen := f.gen
	o.flush()
	if !f.alive(gen) || !o.v.Room(2) || o.port == nil && (f.held != nil || f.builtin()) {
		return false
	}
	if o.port == nil {
		o.of = f
	}
	return true
}

// open starts the next message, for which there is room.
func (o *outbox) open(f *datagramFlow, tos uint8) {
	i := o.v.Open()
	o.items[i] = item{f: f, first: len(o.pieces), past: len(o.pieces), tos: tos}
	o.n = i + 1
	p := o.port
	if p == nil {
		return
	}
	f.pending++
	if p.family == sys.Unix {
		o.v.SetNameLen(i, copy(o.v.Name(i), f.path))
	} else {
		o.v.SetNameLen(i, copy(o.v.Name(i), f.name[:f.nameLen]))
	}
}

// seal completes the last message, now that nothing joins it any more.
func (o *outbox) seal() {
	i := o.n - 1
	if i < 0 || o.run.Count == 0 {
		return
	}
	it := &o.items[i]
	c := o.appendHeader(o.v.Control(i), it)
	if o.run.Segmented() {
		it.segment = o.run.Size
		c = sys.AppendSegment(c, uint16(o.run.Size))
	}
	it.bare = len(c) == 0
	o.v.SetControlLen(i, len(c))
	o.run = segment.Run{}
}

// appendHeader appends the control messages that each datagram of an item has: its source address, and its TOS byte.
func (o *outbox) appendHeader(c []byte, it *item) []byte {
	if o.port != nil && it.f.localAddr.IsValid() {
		c = sys.AppendLocal(c, it.f.v6, it.f.localAddr, int(it.f.zone))
	}
	return o.appendTOS(c, it)
}

// flush sends all, and empties the outbox unless it is blocked.
//
// A connected socket may report what an earlier datagram has met, on whatever
// call comes next (udp(7)): the item at hand is then sent again.
func (o *outbox) flush() {
	if o.blocked || o.v == nil {
		return
	}
	o.seal()
	tries := 0
	tooBig := false // the item at was told so once
	for o.at < o.n {
		n := o.alive()
		if n == 0 {
			o.at++
			continue
		}
		n, e := o.send(n)
		if n > 0 {
			if tooBig {
				o.d.stats.ICMPErrors++ // it was an earlier one's
			}
			tries, tooBig = 0, false
		}
		for range n {
			o.sent()
		}
		switch {
		case e == 0 || e == sys.EINTR:
		case e == sys.EAGAIN && o.full():
			return
		case e == sys.EAGAIN:
		case e == sys.EMSGSIZE && o.port == nil && !tooBig:
			tooBig = true
		case o.port == nil && o.d.away(o.of, e):
			o.withoutRoute(e)
			return
		case o.items[o.at].segment > 0 && (e == sys.EIO || e == sys.EINVAL || e == sys.EMSGSIZE):
			o.sendSingly(e)
			tooBig = false
		case o.port == nil && isUnreachable(e):
			// It is tried again, once by socket.
			if tries++; tries > 2 {
				o.skip(stats.DropUnreachable)
			} else if !o.unreachable(e) {
				return
			}
		default:
			o.skip(o.dropOf(e))
			tooBig = false
		}
	}
	o.reset()
}

// send hands n items to the kernel.
func (o *outbox) send(n int) (int, sys.Errno) {
	o.d.stats.WriteCalls++
	kernel := o.d.shared.kernel
	if o.port != nil {
		return kernel.SendBatch(o.port.fd, o.v, o.at, n)
	}
	// A lone datagram is cheaper without a message header.
	if it := &o.items[o.at]; n == 1 && it.past-it.first == 1 && it.bare && it.bytes > 0 {
		if _, e := kernel.Send(int(o.of.fd), o.pieces[it.first].b); e != 0 {
			return 0, e
		}
		return 1, 0
	}
	return kernel.SendBatch(int(o.of.fd), o.v, o.at, n)
}

// sent accounts for the item at, which has left.
func (o *outbox) sent() {
	it := &o.items[o.at]
	o.at++
	o.credit(it, it.bytes, it.count)
	if it.segment > 0 {
		o.d.stats.Runs++
		it.f.sentRuns |= 1 << o.dir()
	}
	if o.port != nil {
		it.f.pending--
	}
}

func (o *outbox) credit(it *item, bytes, count int) {
	if o.port == nil {
		it.f.requests += int64(count)
	}
	m := &it.f.moved[o.dir()]
	m.written += int64(bytes)
	m.datagrams += int64(count)
	o.d.noteLater(it.f)
	o.d.loopStats.BytesWritten += int64(bytes)
	o.d.stats.Sent += int64(count)
}

// skip drops the item at.
func (o *outbox) skip(why stats.Drop) {
	it := &o.items[o.at]
	o.at++
	if it.f == nil {
		return
	}
	o.d.drop(it.f, o.dir(), why, it.bytes, it.count)
	if o.port != nil {
		it.f.pending--
	}
}

// full is called when the socket takes no more; true: what is left waits, and
// the outbox is no longer the caller's.
func (o *outbox) full() bool {
	switch {
	case o.port == nil:
		o.holdRest()
		return true
	case o.port.family == sys.Unix:
		// One client's queue is full, and no event would say when it is not.
		o.skip(stats.DropFull)
		return false
	case o.replies == nil:
		o.abandon(stats.DropFull)
		return true
	}
	o.blocked = true
	o.d.loop.Rewatch(o.port.fd, sys.In|sys.Out, loop.SourceToken(o.port.number))
	return true
}

// sendSingly sends the datagrams of the run at one by one: the route may refuse runs.
func (o *outbox) sendSingly(why sys.Errno) {
	it := &o.items[o.at]
	dir := o.dir()
	proven := false  // one went through alone: it was the run that was refused
	noRoute := false // to the client: it was not the run
	kernel := o.d.shared.kernel
	fd := 0
	one := o.d.single
	one.Reset()
	one.Open()
	if o.port != nil {
		fd = o.port.fd
		one.SetNameLen(0, copy(one.Name(0), o.v.Name(o.at)[:o.v.NameLen(o.at)]))
	} else {
		fd = int(o.of.fd)
	}
	one.SetControlLen(0, len(o.appendHeader(one.Control(0), it)))
	var front []byte
	for _, p := range o.pieces[it.first:it.past] {
		if p.front {
			front = p.b
			continue
		}
		for b := range segment.All(p.b, it.segment) {
			if noRoute {
				o.d.drop(it.f, dir, stats.DropUnreachable, len(b), 1)
				continue
			}
			one.Replace(b)
			if front != nil {
				one.Replace(front)
				one.Add(b)
			}
			o.d.stats.WriteCalls++
			_, e := kernel.SendBatch(fd, one, 0, 1)
			if e == sys.EINTR || o.port == nil && (e == sys.EMSGSIZE || isUnreachable(e)) { // an earlier datagram's
				o.d.stats.WriteCalls++
				_, e = kernel.SendBatch(fd, one, 0, 1)
			}
			switch e {
			case 0:
				o.credit(it, len(b), 1)
				if !proven {
					proven = true
					o.d.refuseRuns(it.f, dir, it.segment, why)
				}
			case sys.EAGAIN:
				o.d.drop(it.f, dir, stats.DropFull, len(b), 1)
			default:
				noRoute = !proven && o.noRoute(e)
				o.d.drop(it.f, dir, o.dropOf(e), len(b), 1)
			}
		}
	}
	if !noRoute {
		o.d.stats.Fallbacks++
	}
	if o.port != nil {
		it.f.pending--
	}
	o.at++
}

// unreachable lets the flow go on to another upstream, where its policy says so;
// false: there is nothing left to flush. What is left was planned for the socket
// that failed, and the next one may take other runs or none. So it is held, and
// planned again when the next one is writable, in a later turn: an upstream that
// refuses each datagram costs one attempt per turn.
func (o *outbox) unreachable(e sys.Errno) bool {
	f := o.of
	switch {
	case saysNoRoute(e) && o.d.wasAway(f):
		return true // the route is back at this moment
	case !o.d.unreachable(f, e):
		o.end(e)
		return false
	case f.cfg.Datagram.OnUnreachable == UnreachableIgnore:
		return true
	}
	o.holdRest()
	return false
}

// withoutRoute is unreachable where this host has no route to the upstream: what is left has none, either. There is nothing left to flush.
func (o *outbox) withoutRoute(e sys.Errno) {
	switch goesOn, moved := o.d.withoutRoute(o.of, e); {
	case !goesOn:
		o.end(e)
	case moved:
		o.holdRest()
	default:
		o.abandon(stats.DropUnreachable)
	}
}

// end ends the flow, because the upstream cannot be reached.
func (o *outbox) end(e sys.Errno) {
	f := o.of
	o.abandon(stats.DropUnreachable)
	o.d.end(f, CauseUpstreamRefused, e)
}

// holdRest keeps what an upstream's socket did not take, and empties the outbox.
func (o *outbox) holdRest() {
	f := o.of
	for _, it := range o.items[o.at:o.n] {
		for _, p := range o.pieces[it.first:it.past] {
			if !p.front { // what is in front of it then, the next plan says
				o.overflow(f, f.gen, p.b, p.seg, it.tos)
			}
		}
	}
	o.reset()
}

// abandon drops all that is left.
func (o *outbox) abandon(why stats.Drop) {
	if o.n == 0 {
		return
	}
	for o.at < o.n {
		o.skip(why)
	}
	o.reset()
}

// forget drops what is left of f, which is about to end.
func (o *outbox) forget(f *datagramFlow) {
	for i := o.at; i < o.n && f.pending > 0; i++ {
		if it := &o.items[i]; it.f == f {
			o.d.drop(f, down, stats.DropEnded, it.bytes, it.count)
			f.pending--
			it.f = nil
		}
	}
}

// unblock watches a port's socket for input only again.
func (o *outbox) unblock() {
	if o.blocked {
		o.blocked = false
		o.d.loop.Rewatch(o.port.fd, sys.In, loop.SourceToken(o.port.number))
	}
}

// dropOf returns the reason why the item at is dropped, after sending it has failed with e.
func (o *outbox) dropOf(e sys.Errno) stats.Drop {
	switch it := &o.items[o.at]; {
	case e == sys.EMSGSIZE && o.pieces[it.first].front:
		return stats.DropTooBigWithPreface
	case o.noRoute(e):
		return stats.DropUnreachable
	}
	return dropOf(e, o.family())
}

// noRoute reports whether e, the error of a datagram to a client, says that this host has no route to it, or does not have the address or the device
// any more that the client has written to. A datagram that is no run gets these errors for nothing else (udp_sendmsg and udpv6_sendmsg, Linux 6.18).
func (o *outbox) noRoute(e sys.Errno) bool {
	return o.port != nil && o.port.family != sys.Unix && saysNoRoute(e)
}

// dropOf returns the reason of a drop, after a send to an address of that family has failed with e.
func dropOf(e sys.Errno, family sys.Family) stats.Drop {
	switch {
	case e == sys.EMSGSIZE:
		return stats.DropTooBig
	case family == sys.Unix && (e == sys.EPERM || e == sys.EACCES):
		return stats.DropNotPermitted
	case e == sys.EPERM:
		return stats.DropFiltered
	case e == sys.ENOBUFS, e == sys.ENOMEM:
		return stats.DropNoBuffers
	}
	if isUnreachable(e) || family == sys.Unix && e == sys.ENOENT { // the client has ended and removed its path
		return stats.DropUnreachable
	}
	return stats.DropFailed
}
