package relay

import (
	"sync"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/sys"
)

// ownMost is how many flows of an engine may have sockets of their own. More would take the time of whoever has
// the port after this engine: for each datagram from a client that has none, the kernel looks at all sockets
// of the address, which takes 20 to 60 ns for each (udp4_lib_lookup2 in net/ipv4/udp.c; seen on 6.18: 0.6 ms for
// 10,000).
const ownMost = 1024

// stop makes the port take no new clients, as far as portState says.
func (p *datagramPort) stop(why stopCause, wg *sync.WaitGroup) {
	d := p.datagrams
	wg.Add(1)
	do := func() {
		p.drains = why == stopDrain
		switch {
		case why != stopEndsAll && !p.listener.inherited && p.family != sys.Unix:
			p.state, p.stopped = portGiving, wg
			d.stopping = append(d.stopping, p)
			d.leaving++
		case p.drains:
			wg.Done()
		default:
			d.sweep(p, wg)
		}
	}
	if !d.loop.Post(loop.Request{Do: do}) {
		wg.Done()
	}
}

// turnStopping begins to give the flows of ports that were stopped their own sockets: first those whose clients
// are verified, because there may not be enough for all.
func (d *datagrams) turnStopping() {
	if len(d.stopping) == 0 || d.giving {
		return
	}
	ports := d.stopping
	d.stopping, d.giving = nil, true
	give := func(all bool) func(loop.Handler, uint32) {
		return func(owner loop.Handler, slot uint32) {
			if owner != d {
				return
			}
			if f := d.slab.At(slot); f.port.state == portGiving && f.own < 0 && (all || f.verified) {
				d.give(f)
			}
		}
	}
	after := func() {
		d.giving = false
		for _, p := range ports {
			d.closePort(p)
		}
	}
	d.walkOnce(give(false), func() { d.walkOnce(give(true), after) })
}

// walkOnce visits the current flows, for nobody who waits.
func (d *datagrams) walkOnce(visit func(loop.Handler, uint32), after func()) {
	wg := new(sync.WaitGroup)
	wg.Add(1)
	d.loop.Walk(visit, after, wg)
}

// closePort makes a port receive nothing more, once its flows have their own sockets.
func (d *datagrams) closePort(p *datagramPort) {
	if p.state != portGiving {
		return
	}
	able := p.given > 0 || !p.refused
	if able {
		if h := p.listener.engine.holding; h != nil {
			h.dropSocket(p.listenSocket) // the next process needs one that receives
			p.listenSocket.key = holdKey{}
		}
		if p.wild {
			d.regroup(p) // connect(2) gives the socket an address, and so takes it from the others
		}
		able = sys.ReceiveNothing(d.shared.kernel, p.fd) == 0
	}
	switch {
	case able:
		p.state = portClosed
		d.stats.AnswersOnly += int64(p.live() - p.owned)
		d.checkEmpty(p)
	case p.drains:
		p.state = portOpen
		d.leaving--
	default:
		wg := p.stopped
		p.state, p.stopped = portOpen, nil
		d.leaving--
		d.sweep(p, wg)
		return
	}
	p.stopped.Done()
	p.stopped = nil
	d.loop.CheckDrained()
}

// turnEmpty lets go of the ports that have no flow any more, and nothing that was not read yet.
func (d *datagrams) turnEmpty() {
	for _, p := range d.empty {
		if p.state == portClosed && p.live() == 0 && p.strays == 0 && !sys.Readable(d.shared.kernel, p.fd) {
			d.unlisten(p)
			d.loop.CheckDrained()
		}
	}
	clear(d.empty)
	d.empty = d.empty[:0]
}
