package upstream

import "github.com/penstock/penstock/cmd/penstock/internal/spec"

// Members as servers of QUIC: a client that has changed its address stays at the member that has its connection.

// byServer returns the members by their IDs in connection IDs. The caller holds the Set's lock.
func (g *Group) byServer() map[string]*Member {
	if !g.cfg.QUIC.Routable() {
		return nil
	}
	all := map[string]*Member{}
	for _, m := range g.members {
		if m.quicServerID != "" && all[m.quicServerID] == nil {
			all[m.quicServerID] = m
		}
	}
	return all
}

// Server returns the member with an ID in connection IDs of QUIC; nil: there is none. It does not allocate.
func (g *Group) Server(id []byte) *Member { return g.table.Load().byServer[string(id)] }

// Return chooses member m of the group for a flow, before any call of Pick: because the flow goes on with a connection that m
// has, it is chosen even if m is drained or down. The lease then holds a slot of m. Nil and a reason mean that m has no slot, is
// a member no longer, or that the lease has or had another choice: a later Pick gives m up, as after any attempt.
func (g *Group) Return(l *Lease, c Client, m *Member) (*Member, spec.Reason) {
	if m.Removed() || m.group != g || l.member != nil || l.given != nil {
		return nil, spec.ReasonNoMember
	}
	if !m.reserve() {
		return nil, spec.ReasonQueueFull
	}
	if l.group == nil {
		l.group, l.seed = g, g.table.Load().seed(c)
	}
	l.member = m
	if t := m.tier.Load(); t != nil {
		t.released(m, false) // which reads its flows again
	}
	return m, spec.ReasonNone
}

// Prefer is Return for a flow that may as well go elsewhere: m is only chosen if it accepts flows, and nil means that it was not.
func (g *Group) Prefer(l *Lease, c Client, m *Member) *Member {
	if m.group != g || !m.acceptsFlows.Load() {
		return nil
	}
	m, _ = g.Return(l, c, m)
	return m
}
