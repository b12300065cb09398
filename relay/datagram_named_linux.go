package relay

import (
	"net/netip"

	"github.com/penstock/penstock/internal/segment"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/origin"
	"github.com/penstock/penstock/relay/stats"
)

// Datagrams of a proxy have a header in front that names the client; see origin.Config. The header is removed, and
// does not count.
//
// Where each datagram has one, clients share the address of the proxy. Their flows are in a table of their own,
// datagramPort.named, by both addresses; they have no sockets of their own, as the kernel cannot tell them apart.
// Where only the first one has, a flow is the proxy's address and port, as others are, and is found as those are.
//
// The kernel joins datagrams of one sender, whichever clients they are from (UDP_GRO). So a message of a proxy is
// taken apart, and each of its datagrams is a message of the batch: those of one flow leave as a run again.

// fromProxy reports whether a sender is a proxy, by the configuration for the batch at hand.
func (d *datagrams) fromProxy(name []byte) bool {
	if d.origin == nil {
		return false
	}
	ap, _ := sys.GetAddrPort(name)
	return ap.IsValid() && d.origin.Trusts(ap.Addr())
}

// takeNamed is take where some senders are proxies.
func (d *datagrams) takeNamed(p *datagramPort, in *sys.Vector, i int, drops *uint32, of *datagramFlow) {
	var c sys.Control
	name, ok := d.unpack(p, in, i, drops, &c)
	if !ok {
		return
	}
	if of != nil && of.gen == 0 {
		of = nil // it has ended with the message before
	}
	if !d.fromProxy(name) {
		d.place(p, name, &c, i, of)
		return
	}
	m := d.batch[i]
	for j, all := i, m.b; ; j = len(d.batch) - 1 {
		one, rest := segment.Cut(all, m.seg)
		d.batch[j] = message{b: one, tos: m.tos, next: -1, in: m.in}
		d.placeNamed(p, name, c.Local, j, of)
		if rest == nil {
			return
		}
		all = rest
		d.batch = append(d.batch, message{}) // at most 128 for each that was received: UDP_MAX_SEGMENTS
	}
}

// placeNamed is place for a datagram of a proxy.
func (d *datagrams) placeNamed(p *datagramPort, name []byte, local netip.Addr, i int, of *datagramFlow) {
	m := &d.batch[i]
	f := of
	if f != nil && (f.gen == 0 || !f.sentBy(name)) {
		f = nil
	}
	if !d.origin.First {
		h, ok := d.origin.Read(m.b)
		if !ok {
			d.drop(nil, up, stats.DropProxyHeader, len(m.b), 1)
			return
		}
		if f = p.named[p.namedKey(name, local, h.Client, h.To)]; f != nil {
			d.removeHeader(m, &h)
			d.assign(f, i)
			return
		}
	} else if f == nil {
		f = d.find(p, name, local)
	}
	if f == nil {
		d.strangers = append(d.strangers, int16(i))
		return
	}
	d.assignFirst(f, i)
}

// assignFirst is assign for a datagram of a proxy that puts a header in front of the first one only, which has begun
// the flow.
func (d *datagrams) assignFirst(f *datagramFlow, i int) {
	m := &d.batch[i]
	if h, ok := d.origin.Read(m.b); ok {
		if n := f.settings; !f.named() || n.name.client != h.Client || n.name.to != h.To {
			// The proxy has given its port to another client, or a client has made the header: it must not choose its own name, nor
			// may the next one go on under that of this flow.
			d.drop(f, up, stats.DropProxyHeader, len(m.b), 1)
			ref := f.ref()
			d.forwardTouched() // what it has sent before
			if f.alive(ref.Gen) {
				d.end(f, CauseRefused, nil)
			}
			return
		}
		d.removeHeader(m, &h)
	}
	d.assign(f, i)
}

// removeHeader removes the header of a message.
func (d *datagrams) removeHeader(m *message, h *origin.Header) {
	m.b = m.b[h.Len:]
	d.loopStats.BytesRead -= int64(h.Len)
}

// findFor returns the flow of a datagram that is whole yet, from a proxy or not; nil: there is none.
func (d *datagrams) findFor(p *datagramPort, name []byte, local netip.Addr, b []byte, proxy bool) *datagramFlow {
	if proxy && !d.origin.First {
		if h, ok := d.origin.Read(b); ok {
			return p.named[p.namedKey(name, local, h.Client, h.To)]
		}
		return nil
	}
	return d.find(p, name, local)
}

// assignFor assigns message i of the batch, which is whole yet, to the flow that findFor has found.
func (d *datagrams) assignFor(f *datagramFlow, i int, proxy bool) {
	switch {
	case !proxy:
		f.port.recent = f
		d.assign(f, i)
	case d.origin.First:
		d.assignFirst(f, i)
	default:
		m := &d.batch[i]
		h, _ := d.origin.Read(m.b)
		d.removeHeader(m, &h)
		d.assign(f, i)
	}
}

// name makes f the flow of the client that the header of message i names, and removes the header.
func (d *datagrams) name(f *datagramFlow, h *origin.Header, i int) {
	m := &d.batch[i]
	n := &d.settingsOf(f).name
	n.is, n.each, n.client, n.to = true, !d.origin.First, h.Client, h.To
	if h.Replies {
		n.reply = preface{b: append(n.reply.b[:0], m.b[:h.Len]...), each: true}
	}
	if h.Client.IsValid() {
		f.SetClient(Addr{Network: UDP, AddrPort: h.Client})
	}
	if begin := d.origin.Begin; begin != nil {
		f.SetValue(begin(m.b[:h.Len:h.Len]))
	}
	d.removeHeader(m, h)
}
