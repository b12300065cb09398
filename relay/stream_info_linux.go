package relay

import "github.com/penstock/penstock/relay/stats"

// local is the address of a side's socket, or of a client's what it has connected to before netfilter redirected it, where its listener is
// for that.
func (s *streams) local(f *Flow, side int) Addr {
	fd := int(s.of(f).fd[side])
	if side == sideClient && fd >= 0 && f.listener != nil && f.listener.cfg.Load().Socket.Transparent && s.shared.kernel.OriginalAddr(fd, &s.asked) == 0 {
		return addrOf(&s.asked)
	}
	return s.localAddr(fd)
}

// remote is the address of a side's peer: the one that was noted, for a TCP
// socket whose connection has ended knows it no more.
func (s *streams) remote(f *Flow, side int) Addr {
	sf := s.of(f)
	switch {
	case side == sideClient && sf.peer.IsValid():
		return Addr{Network: TCP, AddrPort: sf.peer}
	case side == sideUpstream && f.to != nil:
		return *f.to
	case sf.inner(side), side == sideClient && sf.fd[side] < 0: // of TCP it is noted, and the socket may have been lost with its process
		return Addr{Network: Unix}
	}
	return s.peerAddr(int(sf.fd[side]))
}

func (s *streams) tcp(f *Flow, side int) int {
	sf := s.of(f)
	if !sf.tcp[side] {
		return -1
	}
	return int(sf.fd[side])
}

// tls describes the TLS of a side.
func (s *streams) tls(f *Flow, side int) *stats.TLS {
	if s.of(f).inner(side) {
		return s.innerFlows[f.slot].tls[side]
	}
	t := s.of(f).tls
	if !t.has(side) {
		return nil
	}
	c := t.conn[side]
	d := &stats.TLS{Handshake: t.took[side]}
	if t.under(side) {
		return d
	}
	d.Received, d.Sent, d.Kernel = c.Received, c.Sent, c.InKernel()
	if state := c.State(); state.HandshakeComplete {
		d.Version, d.CipherSuite, d.ServerName, d.Protocol, d.Resumed = state.Version, state.CipherSuite, state.ServerName, state.NegotiatedProtocol, state.DidResume
	}
	return d
}

// transfer is the account of one direction. An echo has one half, from the client to
// the client: what it has written went up and came down.
func (s *streams) transfer(f *Flow, direction int) Transfer {
	sf := s.of(f)
	half := &sf.half[direction]
	if sf.echo {
		half = &sf.half[up]
	}
	t := Transfer{Read: half.In, Written: half.Out, Spliced: half.Spliced}
	if sf.echo && direction == down {
		t.Read = half.Out
	}
	t.Path, t.Why = half.Path()
	return t
}

func (s *streams) describe(f *Flow, i *FlowInfo) {
	i.Up.Held = i.Up.Read - i.Up.Written
	i.Down.Held = i.Down.Read - i.Down.Written
	switch s.of(f).state {
	case streamSniffing:
		i.State = stats.StateSniffing
	case streamQueued:
		i.State = stats.StateQueued
	case streamSecuring:
		i.State = stats.StateHandshake
	case streamRestored, streamReplying, streamChoosing, streamConnecting, streamAsking, streamRetrying, streamShort:
		i.State = stats.StateConnecting
	}
}
