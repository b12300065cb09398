package relay

import (
	"github.com/penstock/penstock/internal/segment"
	"github.com/penstock/penstock/internal/sys"
)

// readUpstream takes replies of one flow and puts them into its port's outbox,
// which leaves when the turn ends. So the replies of many flows share a system call.
func (d *dgrams) readUpstream(s *session) {
	out := &s.port.out
	from, free := out.lease()
	if free == 0 {
		out.flush()
		from, free = out.lease()
	}
	if out.blocked {
		d.park(s)
		return
	}
	width := min(int(s.width), free)
	n, e := d.loop.env.Kernel.RecvBatch(int(s.fd), s.upstreamFamily(), out.replies, from, width)
	if e != 0 {
		d.readFailed(s, e)
		return
	}
	d.stats.ReadCalls++
	out.leased += n
	total := 0
	for i := from; i < from+n; i++ {
		total += d.takeReply(s, out, i)
	}
	out.replies.Rearm(from, n)
	s.widen(n, width)
	if total > 0 {
		d.answer(s, total)
	}
}

// takeReply puts message i of the replies into the outbox, and returns how many
// datagrams it has.
func (d *dgrams) takeReply(s *session, out *outbox, i int) int {
	n, flags, _, control := out.replies.Received(i)
	seg, count := 0, 1
	if len(control) > 0 {
		c := sys.ParseControl(control)
		if c.HasDrops {
			d.lost(&s.drops, c.Drops)
		}
		if c.Segment > 0 && c.Segment < n {
			seg = c.Segment
			count = segment.Count(n, seg)
			d.stats.SuperPackets++
		}
	}
	b := out.replies.Buf(i)[:min(n, dgramSize)]
	d.stats.Received += int64(count)
	d.loop.stats.BytesRead += int64(len(b))
	s.moved[toA].read += int64(len(b))
	switch {
	case flags&sys.MsgTrunc != 0:
		d.drop(s, toA, DropTruncated, len(b), count)
	case out.port.family == sys.Unix && len(s.path) <= 2: // the client's socket has no name
		d.drop(s, toA, DropNoReturn, len(b), count)
	case d.exceeds(s, toA, len(b)):
		d.drop(s, toA, DropLimited, len(b), count)
	default:
		out.add(s, b, seg)
	}
	return count
}

// widen fits the number of messages asked for to what comes. A socket that
// usually holds one datagram is asked for one: a second question, which the
// kernel answers with EAGAIN inside the same call, would cost as much as the
// poll that epoll does instead.
func (s *session) widen(n, width int) {
	switch {
	case n == width && width == int(s.width):
		if s.streak++; s.streak >= 4 {
			s.streak = 4
			s.width = min(2*s.width, maxWidth)
		}
	case 2*n <= width:
		s.width = uint8(max(1, n))
		s.streak = -32
	}
}

// readFailed sees what the socket of an upstream reports.
func (d *dgrams) readFailed(s *session, e sys.Errno) {
	switch {
	case e == sys.EAGAIN || e == sys.EINTR || e == sys.ENOMEM || e == sys.ENOBUFS:
	case e == sys.EMSGSIZE:
		// A router could not pass a datagram on: it was longer than the next
		// hop takes (RFC 1191). The kernel has noted the path's MTU, and sends
		// what is longer in fragments from now on. Only a raw socket could tell
		// the client (CAP_NET_RAW), and it need not know: its next datagrams arrive.
		d.stats.ICMPErrors++
	case isUnreachable(e):
		if !d.unreachable(s, e) {
			d.end(s, CauseUpstreamRefused, e)
		} else if s.hold != nil && s.builtin() { // whose socket would have told when
			d.release(s)
		}
	default:
		d.end(s, CauseUpstreamFailed, e)
	}
}

// park leaves a flow's replies in its socket until the port's has room again.
func (d *dgrams) park(s *session) {
	if s.parked { // epoll tells of errors whether asked or not
		if e := sys.SockError(int(s.fd)); e != 0 {
			d.readFailed(s, e)
		}
		return
	}
	s.parked = true
	s.port.parked = append(s.port.parked, s.ref())
	d.watch(s)
}

// events returns what s waits for at its upstream's socket.
func (s *session) events() (events uint32) {
	if !s.parked {
		events |= sys.In
	}
	if s.hold != nil {
		events |= sys.Out
	}
	return events
}

// watch tells epoll what s waits for.
func (d *dgrams) watch(s *session) {
	if !s.builtin() {
		sys.EpollMod(d.loop.epoll, int(s.fd), s.events(), s.token())
	}
}

// unblock is called when a port's socket has room again.
func (d *dgrams) unblock(p *dgramPort) {
	p.out.unblock()
	p.out.flush()
	if p.out.blocked {
		return
	}
	for _, r := range p.parked {
		if s := d.sessions.find(r); s != nil && s.parked {
			s.parked = false
			d.watch(s)
		}
	}
	p.parked = p.parked[:0]
}
