package relay

import (
	"net/netip"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/stats"
)

// local is the address that the client wrote to, or that the upstream is written to from.
func (d *datagrams) local(f *Flow, side int) Addr {
	df := d.of(f)
	if side == sideUpstream {
		a := d.localAddr(int(df.fd))
		if a.Network != 0 {
			a.Network = f.to.Network
		}
		return a
	}
	a := f.listener.addr
	if df.localAddr.IsValid() {
		a.AddrPort = netip.AddrPortFrom(df.localAddr, a.AddrPort.Port())
	}
	return a
}

// remote is the address that the client's datagrams come from, or the upstream's.
func (d *datagrams) remote(f *Flow, side int) Addr {
	df := d.of(f)
	switch {
	case side == sideUpstream:
		return Addr{}
	case df.port.family == sys.Unix:
		return Addr{Network: Unixgram, Path: unixPath(df.path)}
	}
	return Addr{Network: UDP, AddrPort: addrPort(df.name[:df.nameLen])}
}

func (d *datagrams) tcp(*Flow, int) int { return -1 }

func (d *datagrams) tls(*Flow, int) *stats.TLS { return nil }

// transfer is the account of one direction.
func (d *datagrams) transfer(f *Flow, direction int) Transfer {
	df := d.of(f)
	m := &df.moved[direction]
	t := Transfer{Read: m.read, Written: m.written, Datagrams: m.datagrams, DatagramsDropped: m.dropped}
	switch {
	case df.sentRuns>>direction&1 != 0:
		t.Path = datapath.GSO
	case m.datagrams > 0:
		t.Path, t.Why = datapath.Copy, df.why[direction]
		switch {
		case direction == up && df.to != nil && df.to.Network.BuiltIn():
			t.Why = datapath.WhyBuiltin
		case t.Why == datapath.WhyNone:
			t.Why = datapath.WhySingle
		}
	}
	return t
}

func (d *datagrams) describe(f *Flow, i *FlowInfo) {
	if d.of(f).sniffed {
		i.State = stats.StateSniffing
	}
	i.Up.Held = heldBytes(d.of(f).held)
}
