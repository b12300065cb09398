package relay

import (
	"bytes"
	"maps"
	"sync/atomic"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/segment"
	"github.com/penstock/penstock/internal/sys"
)

// strayMost bounds the datagrams of an engine that other loops are asked about. Beyond it, whoever is unknown to
// one loop is new.
const strayMost = 1024

// stray is a datagram whose client one loop does not know, while its listener closes, or its address has flows whose sockets
// are gone, or have others beside them than when they began: the kernel may have given it another loop's, because the sockets of the address have changed. It goes from
// loop to loop until one knows the client, or all have been asked: then the client is new, and its flow begins where
// the datagram arrived. Where an address may have several flows, connections are looked for: each loop takes the datagrams of those that it knows, and
// what is left begins new ones where its address has others. What the kernel has joined goes around together, because strayMost is soon reached otherwise.
type stray struct {
	home    *datagramPort // where it arrived
	b       []byte
	seg     int
	name    []byte
	control sys.Control
	others  *datagramPort // that has flows of its address, of other connections; nil: none was seen
	begins  bool          // there
}

// mayStray reports whether the clients of other loops may write to this port.
func (p *datagramPort) mayStray() bool { return p.state != portOpen || p.address.astray.Load() > 0 }

// address returns what a port that was attached has in common with others.
func (sh *datagramShare) address(p *datagramPort) *portAddress {
	sh.addressMu.Lock()
	defer sh.addressMu.Unlock()
	a := sh.addresses[p.name]
	if a == nil {
		a = &portAddress{listeners: make(map[*Listener]int)}
		if sh.addresses == nil {
			sh.addresses = make(map[string]*portAddress)
		}
		sh.addresses[p.name] = a
	}
	a.listeners[p.listener]++
	return a
}

// leave is called before the socket of a port is closed.
func (d *datagrams) leave(p *datagramPort) {
	d.regroup(p)
	sh, a := d.share, p.address
	if p.joined {
		a.astray.Add(-1) // regroup has those marked that there are by now
	}
	sh.addressMu.Lock()
	defer sh.addressMu.Unlock()
	if a.listeners[p.listener]--; a.listeners[p.listener] == 0 {
		delete(a.listeners, p.listener)
	}
	now := d.loop.Now
	if d.keep != nil && p.family != sys.Unix {
		a.leftLast.Store(int64(now))
	}
	maps.DeleteFunc(sh.addresses, func(_ string, a *portAddress) bool { return len(a.listeners) == 0 && !a.leaves(now) })
}

// regroup is called before the socket of a port leaves those of its address, among which the kernel chooses by their number. So from
// then on it may give the clients of other listeners there to other loops than those of their flows.
func (d *datagrams) regroup(p *datagramPort) {
	sh, a := d.share, p.address
	sh.addressMu.Lock()
	others := len(a.listeners)
	sh.addressMu.Unlock()
	if others < 2 || p.family == sys.Unix || d.loop.Closing {
		return
	}
	a.astray.Add(1)
	a.marking.Add(1)
	var loops atomic.Int64
	loops.Store(int64(len(sh.all)))
	marked := func() {
		if loops.Add(-1) == 0 {
			a.marking.Add(-1)
			a.astray.Add(-1)
		}
	}
	for _, o := range sh.all {
		mark := func(owner loop.Handler, slot uint32) {
			if owner != o {
				return
			}
			if f := o.slab.At(slot); f.port.address == a && f.port.state == portOpen && !f.astray {
				o.setAstray(f)
			}
		}
		if !o.loop.Post(loop.Request{Do: func() { o.walkOnce(mark, marked) }}) {
			marked()
		}
	}
}

// setAstray notes that the datagrams of a flow's client may reach other loops, also for the next process.
func (d *datagrams) setAstray(f *datagramFlow) {
	f.astray = true
	f.port.address.astray.Add(1)
	if f.kept {
		d.record(f).Gram().SetSocket(0)
	}
}

// askOtherLoops asks the other loops about message i of the batch. It reports false if that cannot be done.
func (d *datagrams) askOtherLoops(p *datagramPort, name []byte, c *sys.Control, i int) bool {
	ports := p.listener.ports
	if len(ports) == 1 {
		return false
	}
	if d.share.strays.Add(1) > strayMost {
		d.share.strays.Add(-1)
		return false
	}
	m := &d.batch[i]
	s := &stray{home: p, b: bytes.Clone(m.b), seg: m.seg, name: bytes.Clone(name), control: *c}
	d.notReceived(m.b, m.seg)
	p.strays++
	s.next(p)
	return true
}

// next makes the loop after that of a port look for the client.
func (s *stray) next(at *datagramPort) {
	ports := at.listener.ports
	s.post(ports[(at.index+1)%len(ports)].(*datagramPort))
}

func (s *stray) post(to *datagramPort) {
	if !to.datagrams.loop.Post(loop.Request{Do: func() { to.datagrams.takeStray(to, s) }}) {
		s.home.datagrams.share.strays.Add(-1) // the engine closes
	}
}

// takeStray looks for the client of s here.
func (d *datagrams) takeStray(p *datagramPort, s *stray) {
	d.origin = p.listener.cfg.Load().Datagram.Origin
	f := d.findFor(p, s.name, s.control.Local, s.b, d.fromProxy(s.name))
	if p == s.home {
		if s.b != nil && f == nil && s.others != nil {
			s.begins = true
			s.post(s.others)
			return
		}
		p.strays--
		d.share.strays.Add(-1)
		if s.b != nil {
			d.deliver(p, s)
		}
		d.checkEmpty(p)
		return
	}
	switch {
	case f != nil && f.divided() && !s.begins:
		if s.others == nil {
			s.others = p
		}
		if d.takeConnections(p, f, s); s.b != nil {
			s.next(p)
			return
		}
	case f != nil:
		d.deliver(p, s)
		d.noteStray(p, s)
		s.b = nil
	case s.begins: // those that were here have ended
		s.others = nil
	default:
		s.next(p)
		return
	}
	s.post(s.home)
}

// takeConnections relays those datagrams of s that belong to f or other flows of its address, and leaves the others in s.
func (d *datagrams) takeConnections(p *datagramPort, f *datagramFlow, s *stray) {
	d.received(s)
	d.divide(f, 0)
	d.forwardTouched()
	d.echoes.flush()
	left, all, rest := len(d.strangers) > 0, len(s.b), s.b[:0] // what is left may be an empty datagram
	for _, i := range d.strangers {
		rest = append(rest, d.batch[i].b...)
	}
	d.strangers = d.strangers[:0]
	d.batch = d.batch[:dgramBatch]
	if !left || len(rest) < all {
		d.noteStray(p, s)
	}
	if !left {
		s.b = nil
		return
	}
	d.notReceived(rest, s.seg)
	if s.b = rest; len(rest) <= s.seg {
		s.seg = 0
	}
}

// noteStray marks the flows of a client whose datagram another loop has received, which is given the next ones, too. They may have begun
// when the sockets of the address had changed and the loops' flows were marked for it already.
func (d *datagrams) noteStray(p *datagramPort, s *stray) {
	f := d.findFor(p, s.name, s.control.Local, s.b, d.fromProxy(s.name))
	if f == nil || p.state != portOpen {
		return
	}
	if !f.astray {
		d.setAstray(f)
	}
	for _, sibling := range p.siblings(f) {
		if o := d.of(sibling); !o.astray {
			d.setAstray(o)
		}
	}
}

// deliver relays s, and begins the flow of its client if there is none.
func (d *datagrams) deliver(p *datagramPort, s *stray) {
	d.received(s)
	proxy := d.fromProxy(s.name)
	f := d.findFor(p, s.name, s.control.Local, s.b, proxy)
	d.meetClient(p, f, s.name, &s.control, 0, proxy, true)
	d.forwardTouched()
	d.batch = d.batch[:dgramBatch]
	d.echoes.flush()
}

// received makes s message 0 of the batch.
func (d *datagrams) received(s *stray) {
	d.batch[0] = message{b: s.b, seg: s.seg, tos: s.control.TOS, next: -1}
	d.stats.Received += int64(segment.Count(len(s.b), s.seg))
	d.loopStats.BytesRead += int64(len(s.b))
}

// notReceived has b not count as received here: whoever takes it has received it.
func (d *datagrams) notReceived(b []byte, seg int) {
	d.stats.Received -= int64(segment.Count(len(b), seg))
	d.loopStats.BytesRead -= int64(len(b))
}
