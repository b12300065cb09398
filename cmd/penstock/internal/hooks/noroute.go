package hooks

import (
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/relay"
)

// noteRoute notes how an attempt of a flow of datagrams has ended, as far as routes are concerned. A flow whose upstream this host has lost its route
// to goes back there if no other one is left. Once it has another one, there is nothing to go back to.
func (p *State) noteRoute(f *relay.Flow, to *relay.Addr, err error) {
	n := p.named()
	switch {
	case n != nil && upstream.NoRoute(err):
		n.away = to
	case err == nil, upstream.NoRoute(err): // see Lease.Connected
	case to != f.Upstream(): // it was tried beside the flow's own
	case n != nil:
		n.away = nil
	default:
		p.lease.Left()
	}
}
