package relay

import (
	"math"

	"github.com/penstock/penstock/internal/segment"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/stats"
)

// readUpstream takes replies of one flow and puts them into its port's outbox,
// which leaves when the turn ends. So the replies of many flows share a system call.
func (d *datagrams) readUpstream(f *datagramFlow) {
	out := &f.port.out
	from, free := out.lease()
	if free == 0 {
		out.flush()
		from, free = out.lease()
	}
	if out.blocked {
		d.block(f)
		return
	}
	width := min(int(f.width), free)
	n, e := d.shared.kernel.RecvBatch(int(f.fd), f.upstreamFamily(), out.replies, from, width)
	if e != 0 {
		d.readFailed(f, e)
		return
	}
	d.stats.ReadCalls++
	out.leased += n
	total := 0
	for i := from; i < from+n; i++ {
		total += d.takeReply(f, out, i)
	}
	out.replies.Rearm(from, n)
	f.widen(n, width)
	if total > 0 {
		d.answer(f, total)
	}
}

// takeReply puts message i of the replies into the outbox, and returns how many
// datagrams it has.
func (d *datagrams) takeReply(f *datagramFlow, out *outbox, i int) int {
	n, flags, _, control := out.replies.Received(i)
	seg, count, tos := 0, 1, uint8(0)
	if len(control) > 0 {
		c := sys.ParseControl(control)
		tos = c.TOS
		if c.HasDrops {
			d.lost(&f.drops, c.Drops)
		}
		if c.Segment > 0 && c.Segment < n {
			seg = c.Segment
			count = segment.Count(n, seg)
			d.stats.SuperPackets++
		}
	}
	b, all := out.replies.Buf(i)[:min(n, dgramSize)], count
	d.stats.Received += int64(count)
	d.loopStats.BytesRead += int64(len(b))
	f.moved[down].read += int64(len(b))
	d.noteLater(f)
	if f.answering {
		d.showAnswer(f, b, seg)
	}
	if fit := f.amplificationFit(len(b), seg); fit < len(b) {
		more := segment.Count(len(b)-fit, seg)
		d.drop(f, down, stats.DropAmplification, len(b)-fit, more)
		if fit == 0 {
			return all
		}
		b, count = b[:fit], count-more
	}
	switch {
	case flags&sys.MsgTrunc != 0:
		d.drop(f, down, stats.DropTruncated, len(b), count)
	case out.port.family == sys.Unix && len(f.path) <= 2: // the client's socket has no name
		d.drop(f, down, stats.DropNoReturn, len(b), count)
	case d.exceeds(f, down, len(b)):
		d.drop(f, down, stats.DropLimited, len(b), count)
	default:
		out.add(f, b, seg, tos)
	}
	return all
}

// amplificationFit returns how many of n bytes of replies, in datagrams of seg bytes, DatagramConfig.Amplification
// allows, and counts them.
func (f *datagramFlow) amplificationFit(n, seg int) int {
	limit := int64(f.cfg.Datagram.Amplification)
	if limit == 0 || f.verified && !f.cfg.Datagram.AmplificationAlways {
		return n
	}
	most := int64(math.MaxInt64)
	if in := f.moved[up].read; in < most/limit {
		most = in * limit
	}
	if left := max(0, most-f.returned); int64(n) > left {
		if seg == 0 {
			return 0
		}
		n = int(left) / seg * seg
	}
	f.returned += int64(n)
	return n
}

// widen fits the number of messages asked for to what comes. A socket that
// usually holds one datagram is asked for one: a second question, which the
// kernel answers with EAGAIN inside the same call, would cost as much as the
// poll that epoll does instead.
func (f *datagramFlow) widen(n, width int) {
	switch {
	case n == width && width == int(f.width):
		if f.streak++; f.streak >= 4 {
			f.streak = 4
			f.width = min(2*f.width, maxWidth)
		}
	case 2*n <= width:
		f.width = uint8(max(1, n))
		f.streak = -32
	}
}

// readFailed sees what the socket of an upstream reports.
func (d *datagrams) readFailed(f *datagramFlow, e sys.Errno) {
	switch {
	case e == sys.EAGAIN || e == sys.EINTR || e == sys.ENOMEM || e == sys.ENOBUFS:
	case e == sys.EMSGSIZE:
		// A router could not pass a datagram on: it was longer than the next
		// hop takes (RFC 1191). The kernel has noted the path's MTU, and sends
		// what is longer in fragments from now on. Only a raw socket could tell
		// the client (CAP_NET_RAW), and it need not know: its next datagrams arrive.
		d.stats.ICMPErrors++
	case isUnreachable(e):
		if !d.unreachable(f, e) {
			d.end(f, CauseUpstreamRefused, e)
		} else if f.held != nil && f.builtin() { // whose socket would have told when
			d.release(f)
		}
	default:
		d.end(f, CauseUpstreamFailed, e)
	}
}

// block leaves a flow's replies in its socket until the port's has room again.
func (d *datagrams) block(f *datagramFlow) {
	if f.blocked { // epoll reports errors in any case
		if e := sys.SockError(d.shared.kernel, int(f.fd)); e != 0 {
			d.readFailed(f, e)
		}
		return
	}
	f.blocked = true
	f.port.blocked = append(f.port.blocked, f.ref())
	d.watch(f)
}

// events returns what f waits for at its upstream's socket.
func (f *datagramFlow) events() (events uint32) {
	if !f.blocked {
		events |= sys.In
	}
	if f.held != nil {
		events |= sys.Out
	}
	return events
}

// watch tells epoll to report what f waits for.
func (d *datagrams) watch(f *datagramFlow) {
	if !f.builtin() {
		d.loop.Rewatch(int(f.fd), f.events(), f.ref().Token(sideUpstream))
	}
}

// unblock is called when a port's socket has room again.
func (d *datagrams) unblock(p *datagramPort) {
	p.out.unblock()
	d.mark(p)
	p.out.flush()
	if p.out.blocked {
		return
	}
	for _, r := range p.blocked {
		if f := d.slab.Find(r); f != nil && f.blocked {
			f.blocked = false
			d.watch(f)
		}
	}
	p.blocked = p.blocked[:0]
}
