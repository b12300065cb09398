package relay

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/segment"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/origin"
	"github.com/penstock/penstock/relay/stats"
)

func (p *datagramPort) change(next, _ *ListenConfig) error {
	setPortBuffers(p.datagrams.shared.kernel, p.fd, &next.Socket)
	setPortTOS(p.datagrams.shared.kernel, p.fd, p.family, next)
	return nil
}

func (p *datagramPort) setUp(cfg *ListenConfig, was *SocketOptions) error {
	if cfg.Datagram.TOS == TOSNone && p.family != sys.Unix {
		sys.SetRecvTOS(p.datagrams.shared.kernel, p.fd, p.family, false) // an earlier process may have asked
	}
	return p.listener.setUpPort(p.fd, p.family, was)
}

// prepare has the loop attach the port.
func (p *datagramPort) prepare() {
	p.datagrams.loop.Post(loop.Request{Do: func() { p.datagrams.attach(p) }})
}

func (p *datagramPort) start() {
	p.datagrams.loop.Post(loop.Request{Do: func() { p.datagrams.listen(p) }})
}

// Event is called with the readiness of the port's socket.
func (p *datagramPort) Event(ev uint32) {
	if ev&sys.Out != 0 && p.out.blocked {
		p.datagrams.unblock(p)
	}
	if ev&(sys.In|sys.Err|sys.Hup) != 0 {
		p.datagrams.receive(p)
		p.datagrams.checkEmpty(p)
	}
}

// listen begins to receive from a port.
func (d *datagrams) listen(p *datagramPort) {
	d.attach(p)
	d.loop.Watch(p.fd, sys.In, loop.SourceToken(p.number))
}

// attach makes a port ready for flows. It does not receive from it.
func (d *datagrams) attach(p *datagramPort) {
	if p.attached {
		return
	}
	p.attached, p.name = true, p.listener.addr.String()
	if d.buffers == nil {
		d.prepareWith(dgramBuffers())
	}
	p.address = d.share.address(p)
	p.number = d.loop.AddSource(p)
	d.ports = append(d.ports, p)
	p.out = outbox{d: d, port: p}
	if p.family == sys.Unix {
		p.paths = make(map[string]*datagramFlow)
	} else {
		p.flows = make(map[datagramKey]*datagramFlow)
	}
}

// sweep ends the flows of a port, some at a time, closes the port, and calls wg.Done.
func (d *datagrams) sweep(p *datagramPort, wg *sync.WaitGroup) {
	p.draining = true
	d.loop.Walk(func(owner loop.Handler, slot uint32) {
		if owner != d {
			return
		}
		if f := d.slab.At(slot); f.port == p {
			d.end(f, CauseClosed, nil)
		}
	}, func() { d.unlisten(p) }, wg)
}

// unlisten closes a port, whose flows have ended.
func (d *datagrams) unlisten(p *datagramPort) {
	if p.state == portGiving || p.state == portClosed {
		d.leaving--
	}
	p.state = portGone
	if p.stopped != nil {
		p.stopped.Done()
		p.stopped = nil
	}
	d.readDrops(p)
	d.leave(p)
	d.ports = slices.DeleteFunc(d.ports, func(q *datagramPort) bool { return q == p })
	if d.echoes.port == p {
		d.echoes.port = nil // it refers to the listener, which refers to the engine
	}
	d.loop.RemoveSource(p.number)
	d.loop.Unwatch(p.fd) // somebody else may have the socket too
	p.listener.closeSocket(p.listenSocket)
}

// receive reads datagrams of clients from a port's socket and handles them.
func (d *datagrams) receive(p *datagramPort) {
	kernel, in := d.shared.kernel, d.input(p.family)
	d.floodControl.Fill(d.loop.Now, d.loopStats.Busy, d.verified.n > 0 || d.loop.Slots.Live > d.slab.Live)
	for rounds, work := 0, 0; rounds < dgramReads && work < dgramRounds*dgramBatch && d.floodControl.More(d.loop.Now, d.beginning); rounds++ {
		n, e := kernel.RecvBatch(p.fd, p.family, in, 0, dgramBatch)
		if e != 0 {
			return // EAGAIN, or an error that this call has taken from the socket
		}
		d.floodControl.Received(d.loop.Now, n == dgramBatch)
		limited := d.stats.Dropped[stats.DropLimited]
		d.handle(p, in, n, &p.drops, nil)
		if n < dgramBatch {
			return
		}
		work += n - min(n, int(d.stats.Dropped[stats.DropLimited]-limited))
	}
	d.unread = true
}

// handle groups the messages of a batch by flow, and forwards those of each flow in their order. drops is the
// last reading of SO_RXQ_OVFL of their socket; of is the flow whose own it is, or nil.
func (d *datagrams) handle(p *datagramPort, in *sys.Vector, n int, drops *uint32, of *datagramFlow) {
	d.stats.ReadCalls++
	if d.origin = p.listener.cfg.Load().Datagram.Origin; d.origin == nil {
		for i := range n {
			d.take(p, in, i, drops, of)
		}
	} else {
		for i := range n {
			d.takeNamed(p, in, i, drops, of)
		}
	}
	var its []byte // where what is in the own socket comes from
	if of != nil && len(d.strangers) > 0 {
		its = append(d.sender[:0], of.name[:of.nameLen]...)
	}
	d.forwardTouched()
	if len(d.strangers) > 0 {
		d.meet(p, in, its)
	}
	d.batch = d.batch[:dgramBatch]
	d.echoes.flush() // the memory of the echoes is about to be used again
	in.Rearm(0, n)
}

// forwardTouched forwards the messages that were assigned to flows.
func (d *datagrams) forwardTouched() {
	for _, f := range d.touched {
		d.forward(f)
	}
	clear(d.touched)
	d.touched = d.touched[:0]
}

// meet begins the flows of clients that have none, as far as there is time for that; see package flood. its is the address of the client
// whose own socket they came by, as the port writes it, or nil.
func (d *datagrams) meet(p *datagramPort, in *sys.Vector, its []byte) {
	start, before := d.loop.Clock(), d.beginning
	for _, i := range d.strangers {
		_, _, name, control := in.Received(int(d.batch[i].in))
		var c sys.Control
		if len(control) > 0 {
			c = sys.ParseControl(control)
		}
		if its != nil && sameSender(name, its) {
			name = its
		}
		proxy := d.fromProxy(name)
		f := d.findFor(p, name, c.Local, d.batch[i].b, proxy) // it may have begun with another message of the batch
		d.meetClient(p, f, name, &c, int(i), proxy, false)
	}
	d.strangers = d.strangers[:0]
	d.forwardTouched()
	took := d.loop.Clock() - start
	d.floodControl.Took(took)
	d.beginning = before + took // took includes what show has added
}

// input returns the vector that batches are received with, which the ports of a family share.
func (d *datagrams) input(family sys.Family) *sys.Vector {
	in := &d.inputs[0]
	if family == sys.Unix {
		in = &d.inputs[1]
	}
	if *in == nil {
		*in = sys.NewVector(dgramBatch, dgramBatch, family)
		for i, b := range d.buffers {
			(*in).SetBuf(i, b)
		}
	}
	return *in
}

// take assigns message i of the batch to its flow, or puts it among those of strangers.
func (d *datagrams) take(p *datagramPort, in *sys.Vector, i int, drops *uint32, of *datagramFlow) {
	var c sys.Control
	if name, ok := d.unpack(p, in, i, drops, &c); ok {
		d.place(p, name, &c, i, of)
	}
}

// unpack makes message i of the batch of what was received, and returns the name of its sender. It reports false if
// it is another port's, or was dropped.
func (d *datagrams) unpack(p *datagramPort, in *sys.Vector, i int, drops *uint32, c *sys.Control) (name []byte, ok bool) {
	n, flags, name, control := in.Received(i)
	if len(control) > 0 {
		*c = sys.ParseControl(control)
		if c.HasDrops {
			d.lost(drops, c.Drops)
		}
		if c.ToMany && p.another(name) {
			return nil, false
		}
	}
	m := &d.batch[i]
	*m = message{b: d.buffers[i][:min(n, dgramSize)], tos: c.TOS, next: -1, in: int16(i)}
	count := 1
	if c.Segment > 0 && c.Segment < n {
		m.seg = c.Segment
		count = segment.Count(n, c.Segment)
		d.stats.SuperPackets++
	}
	d.stats.Received += int64(count)
	d.loopStats.BytesRead += int64(len(m.b))
	if flags&sys.MsgTrunc != 0 {
		d.drop(nil, up, stats.DropTruncated, len(m.b), count)
		return nil, false
	}
	return name, true
}

// place is the rest of take.
func (d *datagrams) place(p *datagramPort, name []byte, c *sys.Control, i int, of *datagramFlow) {
	switch {
	case of == nil:
	case of.sentBy(name):
		d.assignOne(of, i)
		return
	case len(name) != int(of.nameLen): // an IPv4 one that is written as IPv6, which no flow of the port is
		m := &d.batch[i]
		d.drop(nil, up, stats.DropDraining, len(m.b), segment.Count(len(m.b), m.seg))
		return
	}
	f := p.recent
	if f == nil || !f.matches(name, c.Local) {
		if f = d.find(p, name, c.Local); f == nil {
			d.strangers = append(d.strangers, int16(i))
			return
		}
		p.recent = f
	}
	d.assignOne(f, i)
}

// assign adds message i of the batch to those of its flow.
func (d *datagrams) assign(f *datagramFlow, i int) {
	m := &d.batch[i]
	f.moved[up].read += int64(len(m.b))
	d.noteLater(f)
	if !f.verified && f.moved[down].datagrams > 0 {
		d.verify(f)
	}
	if d.exceeds(f, up, len(m.b)) {
		d.drop(f, up, stats.DropLimited, len(m.b), segment.Count(len(m.b), m.seg))
		return
	}
	if f.first < 0 {
		f.first = int16(i)
		d.touched = append(d.touched, f)
	} else {
		d.batch[f.last].next = int16(i)
	}
	f.last = int16(i)
}

// begin begins the flow of a new client, and assigns its first message to it, which is message i of the batch. If proxy
// is true, a proxy has sent it. If the client is refused, begin drops the message, and reports false.
func (d *datagrams) begin(p *datagramPort, name []byte, c *sys.Control, i int, proxy bool) (begun bool) {
	refuse := func(why stats.Drop) {
		m := &d.batch[i]
		d.drop(nil, up, why, len(m.b), segment.Count(len(m.b), m.seg))
	}
	var h origin.Header
	if proxy {
		ok := false
		if h, ok = d.origin.Read(d.batch[i].b); !ok {
			refuse(stats.DropProxyHeader)
			return false
		}
	}
	if len(p.several[p.key(name, c.Local)]) >= mostOfAddress {
		refuse(stats.DropAddressFull)
		return false
	}
	if why, ok := d.mayBegin(p, name, h.Client, i); !ok {
		refuse(why)
		return false
	}
	d.left--
	f := d.newFlow(p)
	f.reserved = 1
	if p.family == sys.Unix {
		f.path = string(name)
	} else {
		f.nameLen = uint8(copy(f.name[:], name))
		ap, _ := sys.GetAddrPort(name)
		f.v6 = ap.Addr().Is6()
		if p.wild {
			f.localAddr = c.Local
			if c.Local.IsLinkLocalUnicast() {
				f.zone = uint32(c.Interface)
			}
		}
	}
	if proxy {
		d.name(f, &h, i)
	}
	f.setDivided(!proxy && p.divides())
	if p.address.leaves(d.loop.Now) {
		d.setAstray(f)
	}
	p.put(f)
	d.setRuns(f, down, p.family, f.v6)
	d.silent.add(f)
	d.stats.Begun++
	d.loopStats.Accepted++
	if admit := f.cfg.Hooks.Admit; admit != nil {
		d.admitting = f
		c := admit(&f.Flow)
		d.admitting = nil
		if c != CauseNone {
			d.end(f, c.or(CauseRefused), nil)
			refuse(stats.DropRefused)
			return false
		}
	}
	if f.sniffed {
		d.rearm(f)
	} else if why, c := d.open(f); c != CauseNone {
		d.end(f, c, f.err)
		refuse(why)
		return false
	}
	if p.state != portOpen {
		d.giveLate(f)
	}
	if !proxy {
		p.recent = f
	}
	d.assign(f, i)
	return true
}

// mayBegin reports whether a new client may begin a flow, or why its message i of the batch is dropped. The client is
// the one that a proxy has named, if it has.
func (d *datagrams) mayBegin(p *datagramPort, name []byte, client netip.AddrPort, i int) (why stats.Drop, ok bool) {
	switch {
	case p.draining || p.state == portGone || p.drains && d.share.refuses.Load():
		return stats.DropDraining, false
	case p.family != sys.Unix && !returnable(name):
		return stats.DropNoReturn, false
	case d.share.gate.Load():
		return stats.DropOverload, false
	case !d.allowed():
		return stats.DropLimited, false
	case !d.floodControl.TryBegin(d.placeOfClient(p, name, client), d.loop.Now):
		d.stats.Crowded += int64(segment.Count(len(d.batch[i].b), d.batch[i].seg))
		return stats.DropLimited, false
	case !d.reserve():
		return stats.DropNoRoom, false
	}
	return 0, true
}
