package relay

import (
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/stats"
)

// kill ends a flow at the request of others.
func (d *datagrams) kill(f *Flow, c Cause) { d.end(d.of(f), c, nil) }

// end closes a flow, gives back what it held, and hands out its record.
func (d *datagrams) end(f *datagramFlow, c Cause, err error) {
	p := f.port
	d.noteFinal(f, c, err)
	if f.pending > 0 {
		d.echoes.flush()
		p.out.flush()
		p.out.forget(f)
	}
	d.decided(f)
	d.dropHeld(f, stats.DropEnded)
	d.dropFrom(f, f.first, stats.DropEnded)
	done := f.cfg.Hooks.Done
	if done != nil {
		d.fill(&f.Flow, c, err)
	}
	d.closeUpstream(f, true)
	d.dropFlow(f) // an upstream without a socket
	d.passOwn(f)
	d.closeOwn(f)
	if f.astray {
		p.address.astray.Add(-1)
	}
	p.remove(f)
	d.checkEmpty(p)
	d.ageList(f).remove(f)
	d.loop.Disarm(f.slot)
	if x := f.settings; x != nil {
		*x = datagramSettings{preface: preface{b: x.preface.b[:0]}, name: flowName{reply: preface{b: x.name.reply.b[:0]}}}
		d.share.settings.Put(x)
	}
	d.slab.Put(f.slot)
	d.loopStats.Ended[c]++
	if done != nil {
		d.handOut(done)
	}
	d.share.flows.Add(-1) // after its record: Drain returns when none is left
	d.loop.FlowEnded()
}

// passOwn gives a flow's own socket to another flow of its address, if there is one: it receives what the client sends to all of them.
func (d *datagrams) passOwn(f *datagramFlow) {
	for _, s := range f.port.siblings(f) {
		if to := d.of(s); f.own >= 0 && to != f {
			to.own, to.ownDrops, f.own = f.own, f.ownDrops, -1
			d.loop.Rewatch(int(to.own), sys.In, to.ref().Token(sideClient))
		}
	}
}

// closeOwn closes a flow's own socket.
func (d *datagrams) closeOwn(f *datagramFlow) {
	if f.own < 0 {
		return
	}
	d.descriptors.closing(1)
	d.shared.kernel.Close(int(f.own))
	d.descriptors.give(1)
	d.share.own.Add(-1)
	f.own = -1
	f.port.owned--
}
