package relay

import (
	"net/netip"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/stats"
)

// lookAtStateTold checks in which state a flow is said to be, and how much it is said to hold. It is called when lookAtTold has asked that.
func (s *gramSimulation) lookAtStateTold(f *datagramFlow, x *gramLife) {
	now, want := &s.looked.info, stats.StateRelaying
	if f.sniffed {
		want = stats.StateSniffing
	}
	if n := heldBytes(f.held); now.State != want || now.Up.Held != n || now.Down.Held != 0 {
		s.fail("flow %d is said to be %v and to hold %d and %d bytes; it is %v and holds %d", x.number, now.State, now.Up.Held, now.Down.Held, want, n)
	}
}

// lookAtAddressesTold compares what is told of a flow's addresses with where its client writes to, and with what its own socket is bound to.
func (s *gramSimulation) lookAtAddressesTold(f *datagramFlow) {
	told := new(FlowInfo)
	f.detail(told)
	if want := s.relayAddr(int(s.clientOf(f))); s.kind.named == gramNamedNone && s.family() != sys.Unix && told.Local.AddrPort != want || told.Local.Network != s.listen.Network || told.Local.Path != s.listen.Path {
		s.fail("the client of the flow in slot %d writes to %v, and is said to write to %v", f.slot, want, told.Local)
	}
	var upstream netip.AddrPort
	var sa sys.Sockaddr
	if f.fd >= 0 && s.process.LocalAddr(int(f.fd), &sa) == 0 && sa.Family() != sys.Unix {
		upstream = sa.AddrPort()
	}
	if told.UpstreamLocal != upstream || told.Loop != f.port.datagrams.loop.Index {
		s.fail("the flow in slot %d of loop %d writes from %v, and is said to be on loop %d and to write from %v", f.slot, f.port.datagrams.loop.Index, upstream, told.Loop, told.UpstreamLocal)
	}
	if told.ClientTCP != nil || told.UpstreamTCP != nil || told.ClientTLS != nil || told.UpstreamTLS != nil {
		s.fail("the flow in slot %d is said to have TCP or TLS: %+v", f.slot, told)
	}
}

// lookAtStrays checks that of each address it is known how many flows may be reached by way of another loop, and how many of its ports have joined
// the group of its sockets, beside how often flows are being marked: as long as there are some, loops ask each other.
func (s *gramSimulation) lookAtStrays() {
	want := make(map[*portAddress]int64)
	for _, d := range s.core.datagrams.all {
		for _, p := range d.ports {
			if p.joined {
				want[p.address]++
			}
		}
		d.slab.Each(func(f *datagramFlow) {
			if f.astray {
				want[f.port.address]++
			}
		})
	}
	for name, a := range s.core.datagrams.addresses {
		if n := a.astray.Load() - a.marking.Load(); n != want[a] {
			s.fail("at %s, %d flows and ports are astray, and %d are counted\n%s", name, want[a], n, s.describeGrams())
		}
	}
}
