package hooks

import (
	"net/netip"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/admit"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/origin"
)

// Origin returns who the engine takes for a proxy on a UDP listener, by the present plan, and how it reads headers. first says that
// only the first datagram of a flow has one.
func (s *Socket) Origin(first bool) *origin.Config {
	c := &origin.Config{
		First:  first,
		Trusts: func(sender netip.Addr) bool { return s.Plan.Load().Gate.ExpectsProxy(sender) },
		Read:   admit.ReadDatagram,
		Begin:  func(header []byte) any { return admit.ParseDatagram(header) },
	}
	if first {
		c.Read = admit.ReadProxy2 // what a client sends must not look like a header by chance
	}
	return c
}

// identifyDatagrams notes whom the header of a flow's first datagram names, and checks that client; nil: there was none.
func (h *Hooks) identifyDatagrams(f *relay.Flow, p *State, header *admit.Header) spec.Reason {
	switch expects := p.admission.ExpectsProxy(); {
	case expects != (header != nil): // a reload changes who is a proxy, while a datagram comes
		return spec.ReasonProxyHeader
	case !expects:
		return spec.ReasonNone
	}
	p.header = header
	if header.To.IsValid() {
		p.local = &relay.Addr{Network: relay.UDP, AddrPort: header.To}
	}
	return p.plan.Gate.Identify(&p.admission, clientAddr(f), time.Now())
}
