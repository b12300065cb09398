package relay

import (
	"github.com/penstock/penstock/internal/segment"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/stats"
)

// Where Hooks.Choose says so, a client's address has several flows. The port's table has one of them, which is found as others are;
// addressState says whether Hooks.Choose is to be asked about its datagrams. Each flow has a socket to its upstream, a
// record, timeouts and limits of its own. They share a socket towards the client when their port closes, as the kernel cannot tell them
// apart: datagramFlow.own of one of them.
//
// The kernel joins datagrams of one sender, whichever connections they are of (UDP_GRO). So a message is cut where the next datagram
// is of another flow, and what lies between two cuts leaves as a run again.

// mostOfAddress is how many flows an address may have. Whoever forges the address begins no more than these; they end as others
// do, and none of them takes the place of one that is there.
const mostOfAddress = 16

// divides reports whether new flows of a port may share their address with others.
func (p *datagramPort) divides() bool {
	return p.family != sys.Unix && p.listener.cfg.Load().Hooks.Choose != nil
}

// choose returns the flow of an address to which a datagram belongs, of which f is one; nil: it begins another one. None begins beside others at a listener
// that has no Hooks.Choose any more.
func (d *datagrams) choose(f *datagramFlow, b []byte) *datagramFlow {
	flows := f.port.siblings(f)
	if flows == nil {
		flows = append(d.alone[:0], &f.Flow)
	}
	hook := f.cfg.Hooks.Choose
	if hook == nil {
		return f // the listener of an earlier process had one
	}
	switch of := hook(flows, b); {
	case of != nil:
		return d.of(of)
	case !f.port.divides():
		return f
	}
	return nil
}

// assignOne assigns message i of the batch to f, or if f shares its address with others, what is in it to those to which it belongs.
func (d *datagrams) assignOne(f *datagramFlow, i int) {
	if f.divided() {
		d.divide(f, i)
		return
	}
	d.assign(f, i)
}

// divide assigns the datagrams of message i of the batch to the flows of an address, of which f is one. Those that begin another
// flow are put among those of strangers.
func (d *datagrams) divide(f *datagramFlow, i int) {
	m := d.batch[i]
	of := d.choose(f, m.first())
	for at := m.seg; m.seg > 0 && at < len(m.b); at += m.seg {
		next := d.choose(f, m.b[at:min(at+m.seg, len(m.b))])
		if next == of {
			continue
		}
		d.batch[i] = m.cut(at)
		d.assignOrMeet(of, i)
		m.b, at, of = m.b[at:], 0, next
		i = len(d.batch)
		d.batch = append(d.batch, message{}) // at most 128 for each that was received: UDP_MAX_SEGMENTS
	}
	d.batch[i] = m.cut(len(m.b))
	d.assignOrMeet(of, i)
}

// first returns the first datagram of a message.
func (m *message) first() []byte {
	one, _ := segment.Cut(m.b, m.seg)
	return one
}

// cut returns the message that has the first n bytes of m.
func (m *message) cut(n int) message {
	c := message{b: m.b[:n:n], seg: m.seg, tos: m.tos, next: -1, in: m.in}
	if n <= m.seg {
		c.seg = 0 // it is one datagram
	}
	return c
}

func (d *datagrams) assignOrMeet(f *datagramFlow, i int) {
	if f == nil {
		d.strangers = append(d.strangers, int16(i))
		return
	}
	d.assign(f, i)
}

// meetClient assigns message i of the batch, which is of a stranger, to the flow that findFor has found meanwhile, or begins one. Other loops
// may have been asked about it.
func (d *datagrams) meetClient(p *datagramPort, f *datagramFlow, name []byte, c *sys.Control, i int, proxy, asked bool) {
	ask := !asked && p.mayStray()
	switch {
	case f == nil && ask && d.askOtherLoops(p, name, c, i):
	case f != nil && ask && !proxy && f.divided():
		d.askConnections(p, f, name, c, i)
	case !proxy && (f == nil && p.divides() || f != nil && f.divided()):
		d.meetConnections(p, name, c, i)
	case f == nil:
		d.begin(p, name, c, i, proxy)
	default:
		d.assignFor(f, i, proxy)
	}
}

// askConnections assigns message i of the batch to the flows of an address, of which f is one, and asks other loops about the datagrams that belong
// to none of them.
func (d *datagrams) askConnections(p *datagramPort, f *datagramFlow, name []byte, c *sys.Control, i int) {
	mark := len(d.strangers)
	d.divide(f, i)
	d.forwardTouched()
	for next := mark; next < len(d.strangers); next++ {
		if i := int(d.strangers[next]); !d.askOtherLoops(p, name, c, i) {
			d.meetConnections(p, name, c, i)
		}
	}
	d.strangers = d.strangers[:mark]
}

// meetConnections is meetClient for a client whose address may have several flows. What is left of a message is met before the next one,
// so that the datagrams of a connection keep their order.
func (d *datagrams) meetConnections(p *datagramPort, name []byte, c *sys.Control, i int) {
	mark := len(d.strangers)
	d.meetConnection(p, name, c, i)
	for next := mark; next < len(d.strangers); next++ {
		d.meetConnections(p, name, c, int(d.strangers[next]))
	}
	d.strangers = d.strangers[:mark]
}

// meetConnection assigns the first datagram of message i of the batch to its flow, or begins one with it, and assigns the others to the flows
// to which they belong; those that belong to none are put among those of strangers.
func (d *datagrams) meetConnection(p *datagramPort, name []byte, c *sys.Control, i int) {
	m := d.batch[i]
	one, rest := segment.Cut(m.b, m.seg)
	d.batch[i] = m.cut(len(one))
	f := d.find(p, name, c.Local)
	if f != nil {
		f = d.choose(f, one)
	}
	begun := true
	if f != nil {
		d.assign(f, i)
	} else {
		begun = d.begin(p, name, c, i, false)
	}
	d.forwardTouched() // so that the hooks know whose the next datagrams are
	if rest == nil {
		return
	}
	m.b = rest
	d.batch[i] = m.cut(len(rest))
	f = d.find(p, name, c.Local)
	switch {
	case f != nil:
		d.divide(f, i)
		d.forwardTouched()
	case begun: // and ended
		d.strangers = append(d.strangers, int16(i))
	default:
		d.drop(nil, up, stats.DropRefused, len(rest), segment.Count(len(rest), m.seg))
	}
}
