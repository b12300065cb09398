package relay

import (
	"cmp"
	"slices"
	"time"

	"github.com/penstock/penstock/internal/ledger"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/hold"
)

// restore continues a flow of an earlier process, or ends it.
func (d *datagrams) restore(x *earlierFlow, t *restorer) {
	r := x.record
	f := d.slab.TakeAt(x.ref)
	if f == nil {
		d.keep.abandon(x)
		t.result.Lost.Add(hold.LossInconsistent, 1)
		return
	}
	d.share.flows.Add(1)
	f.init(d, x.ref, d.loop.Now)
	f.fd, f.own, f.first, f.width = -1, -1, -1, 1
	if len(x.fds) > 0 {
		f.fd, f.reserved = int32(x.fds[0]), 1
		d.descriptors.takeOpen(1)
	}
	f.kept, f.suspect = true, r.Crashes() > 0
	d.loopStats.Kept++
	loss := d.restoreFlow(f, x, t)
	switch {
	case loss != notLost:
		t.result.Lost.Add(loss, 1)
		d.endLost(f, r, CauseCrashed, loss != hold.LossHook)
	case r.State() == recordFinal:
		t.result.Ended++
		d.endLost(f, r, notedCause(r), true)
	default:
		if !f.port.isSocket(r.Gram().Socket()) || d.share.regrouped[f.port.name] {
			d.setAstray(f)
		}
		if e := d.goOn(f); e != 0 {
			t.result.Lost.Add(hold.LossResources, 1)
			d.end(f, CauseCrashed, e)
			return
		}
		t.result.Flows++
		d.loopStats.Restored++
	}
}

// restoreFlow restores all that a record knows, and has the port know the flow.
func (d *datagrams) restoreFlow(f *datagramFlow, x *earlierFlow, t *restorer) hold.Loss {
	r, flags := x.record, x.record.Flags()
	if flags&recordDamaged != 0 {
		return hold.LossInconsistent
	}
	if deadly(r) {
		return hold.LossRepeated
	}
	m, err := d.readRecord(&f.Flow, r)
	if err != nil || f.to == nil {
		return hold.LossInconsistent
	}
	p := d.portOf(m.name, r)
	if p == nil {
		return hold.LossListener
	}
	f.port = p
	if !d.restoreFields(f, r, &m) {
		f.port = nil
		return hold.LossInconsistent
	}
	f.inherit(f.port.listener)
	if m.own != nil {
		f.timeouts = d.shareTimeouts(m.own)
	}
	if m.rate > 0 {
		p := d.limit(&f.Flow)
		p.rate = m.rate
		p.start(d.loop.Now, 0)
	}
	if len(m.preface.b) > 0 && flags&recordPrefaced == 0 {
		d.settingsOf(f).preface = m.preface
	}
	if flags&recordStale != 0 {
		return hold.LossHook
	}
	if decode := f.cfg.Hooks.Decode; decode != nil {
		d.watching = f
		err := decode(&f.Flow, &m.decoder)
		if d.watching = nil; err != nil {
			return hold.LossHook
		}
	}
	switch builtin := flags&(recordEcho|recordDiscard) != 0; {
	case d.keep.older[f.slot]:
		return hold.LossListener
	case f.port.get(f) != f && r.State() != recordFinal:
		return hold.LossInconsistent
	case !builtin && flags&recordHeld == 0:
		return hold.LossUnsettled
	case !builtin && f.fd < 0:
		return hold.LossDescriptors
	case r.Crashes() >= crashesMost:
		return hold.LossRepeated
	case f.to.Network.BuiltIn() != builtin:
		return hold.LossInconsistent
	}
	return notLost
}

// isSocket reports whether a port has a socket that was held, by the number in a record.
func (p *datagramPort) isSocket(n uint32) bool {
	return n > 0 && p.listenSocket.key != (holdKey{}) && numberOf(p.listenSocket.key) == uint64(n-1)
}

// portOf returns the port that a flow came by, or nil. A client's datagrams go on coming by the same
// socket; another one of the listener is as good for replies, and for what other loops pass on.
func (d *datagrams) portOf(name string, r ledger.Record) (p *datagramPort) {
	socket := r.Gram().Socket()
	for _, q := range d.ports {
		if q.name != name {
			continue
		}
		if q.isSocket(socket) {
			return q
		}
		if p == nil {
			p = q
		}
	}
	return p
}

// restoreFields restores what settle and note have written, and has the port know the flow, unless it knows another
// one of the client. It reports false if that is not possible: then the port does not know it.
func (d *datagrams) restoreFields(f *datagramFlow, r ledger.Record, m *remembered) bool {
	p, g := f.port, r.Gram()
	if p.family == sys.Unix {
		f.path = unixName(m.peer.Path)
	} else {
		client := g.Client()
		f.nameLen = uint8(sys.PutAddrPort(f.name[:], p.family, noted(client), client.Zone))
		if f.nameLen == 0 || !returnable(f.name[:f.nameLen]) {
			return false
		}
		f.v6 = noted(client).Addr().Is6()
	}
	local := g.Local()
	// A client that has written to an IPv6 group has no local address; see sys.Control.
	if f.localAddr, f.zone = noted(local).Addr(), local.Zone; p.wild != f.localAddr.IsValid() && !(p.wild && f.v6) {
		return false
	}
	for i := range f.moved {
		x := g.Moved(i)
		f.moved[i] = moved{read: x.Read(), written: x.Written(), datagrams: x.Datagrams(), dropped: x.Dropped()}
	}
	f.returned = f.moved[down].written
	f.requests, f.answers = int64(g.Requests()), int64(g.Answers())
	flags := r.Flags()
	f.answered, f.verified = flags&recordAnswered != 0, flags&recordVerified != 0
	f.echo = flags&recordEcho != 0
	if m.flowName.is {
		d.settingsOf(f).name = m.flowName
	}
	f.setDivided(flags&recordDivided != 0)
	if f.divided() {
		p = d.besideOthers(f)
		f.port = p
	}
	if p.get(f) == nil {
		p.put(f)
	}
	d.ageList(f).add(f)
	if f.verified {
		d.knows(f)
	}
	return true
}

// besideOthers returns the port of f's listener that has flows of the same address: Hooks.Choose tells apart what comes from it at one socket. It is
// f's own port if there is none.
func (d *datagrams) besideOthers(f *datagramFlow) *datagramPort {
	for _, p := range d.ports {
		if p.listener != f.port.listener {
			continue
		}
		if first := d.find(p, f.name[:f.nameLen], f.localAddr); first != nil && first.divided() {
			return p
		}
	}
	return f.port
}

// goOn has a restored flow carry datagrams again.
func (d *datagrams) goOn(f *datagramFlow) sys.Errno {
	if !f.builtin() {
		// What the kernel dropped before is not counted again.
		f.drops, _ = sys.Drops(d.shared.kernel, int(f.fd))
		if e := d.loop.Watch(int(f.fd), f.events(), f.ref().Token(sideUpstream)); e != 0 {
			return e
		}
		d.setRuns(f, up, f.upstreamFamily(), f.toV6())
		if f.cfg.Datagram.TOS != TOSNone {
			family, _ := sys.FamilyOf(d.shared.kernel, int(f.fd))
			f.receiveTOS(d.shared.kernel, int(f.fd), family)
		}
	}
	d.setRuns(f, down, f.port.family, f.v6)
	d.rearm(f)
	d.checkFull(f)
	return 0
}

// endLost ends a flow that cannot go on, or that was about to end. known says whether hooks know it,
// and get its record.
func (d *datagrams) endLost(f *datagramFlow, r ledger.Record, c Cause, known bool) {
	var err error
	if e := r.Errno(); e != 0 {
		err = sys.Errno(e)
	}
	if r.Flags()&recordDamaged != 0 {
		d.keep.ledger.Begin(f.slot) // forgets the blocks that are not its own
	}
	if f.port != nil {
		if !known {
			f.cfg = new(ListenConfig)
		}
		d.end(f, c, err)
		return
	}
	if f.fd >= 0 {
		d.descriptors.closing(1)
		d.shared.kernel.Close(int(f.fd))
		d.giveDescriptor(f)
	}
	d.dropFlow(f)
	d.slab.Put(f.slot)
	d.loopStats.Ended[c]++
	d.share.flows.Add(-1)
	d.loop.FlowEnded()
}

// restoreRests has the sockets of flows that had ended rest again, so that nobody else gets their
// ports. It is called when all flows are restored: what is left has no record.
func (d *datagrams) restoreRests() {
	for key, fds := range d.keep.earlier {
		if len(fds) != 1 {
			continue
		}
		family, kind, _, e := sys.SocketKind(d.shared.kernel, fds[0])
		if e == 0 && kind == sys.SockDgram && family != sys.Unix {
			delete(d.keep.earlier, key)
			d.descriptors.takeOpen(1)
			d.rest(fds[0], key, true)
		}
	}
}

// restoreAges gives the restored flows the ages that they had when the process before carried something
// last: for how long nobody relayed does not count. It is called when all flows are restored.
func (d *datagrams) restoreAges() {
	for _, a := range []*ages{&d.silent, &d.answered, &d.verified} {
		all := make([]*datagramFlow, 0, a.n)
		for f := a.oldest; f != nil; f = f.newer {
			all = append(all, f)
			if f.noting {
				continue // it has carried something since
			}
			r := d.record(f)
			if at := r.Gram().Active(); at != 0 {
				age := time.Duration(max(0, int32(d.keep.lastActive-at))) << activeBits
				f.active = d.loop.Now - age
			}
			r.Gram().SetActive(d.noteTime(f.active))
			d.rearm(f)
		}
		slices.SortStableFunc(all, func(f, g *datagramFlow) int { return cmp.Compare(f.active, g.active) })
		*a = ages{}
		for _, f := range all {
			a.add(f)
		}
	}
}
