package relay

import (
	"net/netip"

	"github.com/penstock/penstock/internal/flood"
	"github.com/penstock/penstock/internal/segment"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/stats"
)

// forward sends a flow's messages of the batch to its upstream.
func (d *datagrams) forward(f *datagramFlow) {
	if f.first < 0 {
		return // it has ended meanwhile
	}
	f.active = d.loop.Now
	d.ageList(f).touch(f)
	i := f.first
	f.first = -1
	if f.sniffed {
		if i = d.show(f, i); i < 0 {
			return
		}
	} else if f.watched {
		d.showWatched(f, i)
	}
	if f.kept {
		d.noteBegin(f)
		defer d.noteEnd(f, f.gen)
	}
	if f.builtin() {
		for ; i >= 0; i = d.batch[i].next {
			d.carryBuiltin(f, d.batch[i].b, d.batch[i].seg, d.batch[i].tos)
		}
		return
	}
	ref := f.ref()
	for ; i >= 0; i = d.batch[i].next {
		m := &d.batch[i]
		if !f.alive(ref.Gen) {
			d.drop(nil, up, stats.DropEnded, len(m.b), segment.Count(len(m.b), m.seg))
			continue
		}
		d.toUpstream.add(f, m.b, m.seg, m.tos)
	}
	d.toUpstream.flush()
}

// carryBuiltin is the built-in upstream: it takes a message and, of an echo, returns it.
func (d *datagrams) carryBuiltin(f *datagramFlow, b []byte, seg int, tos uint8) {
	count := segment.Count(len(b), seg)
	m := &f.moved[up]
	m.written += int64(len(b))
	m.datagrams += int64(count)
	f.requests += int64(count)
	d.loopStats.BytesWritten += int64(len(b))
	d.stats.Sent += int64(count)
	if !f.echo {
		return
	}
	m = &f.moved[down]
	m.read += int64(len(b))
	d.loopStats.BytesRead += int64(len(b))
	d.stats.Received += int64(count)
	d.answer(f, count)
	if d.echoes.port != f.port {
		d.echoes.flush()
		d.echoes.port = f.port
	}
	d.echoes.add(f, b, seg, tos)
}

// answer notes that the upstream has sent count datagrams.
func (d *datagrams) answer(f *datagramFlow, count int) {
	if f.requests > 0 { // or it is a late one, to what an earlier socket or upstream was sent
		f.answers += int64(count)
	}
	waited := d.loop.Now - f.active // since the client's last datagram, before the first answer
	f.active = d.loop.Now
	if f.answered {
		d.ageList(f).touch(f)
	} else {
		d.silent.remove(f)
		f.answered = true
		d.answered.add(f)
		if !d.floodControl.Pressed(d.loop.Now) {
			d.knows(f)
		}
		f.firstByte = max(1, waited)
		f.port.answers.add(d.loop.Now, f.firstByte)
		if hook := f.cfg.Hooks.Connected; hook != nil && !f.builtin() {
			hook(&f.Flow, f.to, f.firstByte, nil)
		}
	}
	d.checkFull(f)
}

// verify notes that a client has sent something since a reply was sent to it.
func (d *datagrams) verify(f *datagramFlow) {
	d.ageList(f).remove(f)
	f.verified = true
	d.verified.add(f)
	d.knows(f)
}

// knows notes that honest clients are in the networks of a flow's client.
func (d *datagrams) knows(f *datagramFlow) {
	var named netip.AddrPort
	if f.named() {
		named = f.settings.name.client
	}
	d.floodControl.Know(d.placeOfClient(f.port, f.clientName(), named), d.loop.Now)
}

// placeOfClient returns where package flood finds a client: the one that a proxy has named, if client is valid.
func (d *datagrams) placeOfClient(p *datagramPort, name []byte, client netip.AddrPort) flood.Place {
	if !client.IsValid() {
		return d.floodControl.Place(p.family, name)
	}
	var b [28]byte
	family := sys.IPv6
	if client.Addr().Is4() {
		family = sys.IPv4
	}
	n := sys.PutAddrPort(b[:], family, client, 0)
	return d.floodControl.Place(family, b[:n])
}

// full reports whether the flow has had all its replies, as DatagramConfig.Replies says.
func (f *datagramFlow) full() bool {
	n := f.cfg.Datagram.Replies
	return n > 0 && f.held == nil && f.requests > 0 && f.answers >= f.requests*int64(n)
}

// checkFull tells the end of the turn to end a flow that has had all its replies.
func (d *datagrams) checkFull(f *datagramFlow) {
	if f.full() {
		d.finished = append(d.finished, f.ref())
	}
}

// exceeds reports whether a direction has used up its share of the bandwidth; if
// not, n more bytes are counted. One message may exceed the share, for it may be
// longer than a burst: the next ones pay for it.
func (d *datagrams) exceeds(f *datagramFlow, dir, n int) bool {
	if f.settings == nil || f.settings.pace.rate == 0 {
		return false
	}
	if f.settings.pace.left(dir, d.loop.Now) == 0 {
		return true
	}
	f.settings.pace.spend(dir, int64(n))
	return false
}

// drop counts a message that was read and is not delivered; f may be nil.
func (d *datagrams) drop(f *datagramFlow, dir int, why stats.Drop, n, count int) {
	d.stats.Dropped[why] += int64(count)
	d.loopStats.BytesDropped += int64(n)
	if f != nil {
		f.moved[dir].dropped += int64(count)
		d.noteLater(f)
	}
}
