package hooks

import (
	"slices"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/quicid"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/quichello"
	"github.com/penstock/penstock/relay"
)

// A client may have several connections from one address and port, to different names. Each is a flow. A datagram is recognised as one of a
// flow by, in this order,
//
//   - the client's own ID in long headers, which stays the same until the handshake is over;
//   - the ID that it is addressed to, if the flow has used it before, or the server has named it;
//   - the member to which that ID leads: by the layout of the flow's own group, because it was learned, or by the layout of another group.
//
// An Initial packet that belongs to none of them begins another connection. For a short header that belongs to none see quicAddress. What is
// no QUIC stays with the flow that speaks none, whoever begins connections beside it: see rest.

// Divides reports whether the clients of a listener may have several flows at one address: those whose connections are looked at.
func Divides(l *spec.Listener) bool {
	if !l.Datagrams {
		return false
	}
	if l.Sniff.TLS {
		return true
	}
	for _, r := range l.AllRoutes() {
		for _, part := range r.To {
			if part.Group != nil && newQUICIDs(part.Group, l) != nil {
				return true
			}
		}
	}
	return false
}

const (
	// roomFrom is how many flows an address has when one that seems to be over gives way to another one. The engine takes no more than one more,
	// so that there is room at once.
	roomFrom = 15
	// unverifiedOver and verifiedOver are for how long the client of a flow that gives way has sent nothing.
	unverifiedOver, verifiedOver = time.Second, 30 * time.Second
	// aloneLen is the length of an ID that nobody hits upon by chance, in bytes. A connection that has begun at its address, and is alone there,
	// stays what it is if a shorter one is known elsewhere.
	aloneLen = 8
)

// connOf returns what is known of the connection of a flow; nil: it does not speak QUIC.
func connOf(f *relay.Flow) *quicConn {
	if p, ok := f.Value().(*State); ok {
		return p.clientTLS().conn
	}
	return nil
}

// other returns the flow of an address that does not speak QUIC; nil: there is none.
func other(flows []*relay.Flow) *relay.Flow {
	for _, f := range flows {
		if connOf(f) == nil {
			return f
		}
	}
	return nil
}

// verify notes if the client of a flow has had its server's answer.
func verify(f *relay.Flow) {
	conn := connOf(f)
	if conn == nil || conn.verified {
		return
	}
	if up, down := f.Transfers(); down.Read > amplification*up.Read {
		conn.verified = true
		f.Changed()
	}
}

// choose is the hook that finds the flow of a datagram among those of its client's address; nil: a connection begins.
func (h *Hooks) choose(flows []*relay.Flow, b []byte) *relay.Flow {
	if len(flows) == 1 && len(b) > 0 && b[0]&0x80 == 0 { // nearly always
		if conn := connOf(flows[0]); conn == nil || conn.used[0].Begins(b[1:]) {
			return flows[0]
		}
	}
	head, err := quichello.ParseHeader(b)
	if err != nil {
		return rest(flows)
	}
	now := time.Now()
	var best *relay.Flow
	var to quicid.ID
	most := 0
	for _, f := range flows {
		if conn := connOf(f); conn != nil {
			if n, id := conn.matches(&head); n > 0 && (best == nil || conn.before(connOf(best), n, most, head.Kind)) {
				best, most, to = f, n, id
			}
		}
	}
	if best != nil {
		conn := connOf(best)
		if conn.take(&head, to, now) {
			best.Changed()
		}
		return best
	}
	switch {
	case head.Greased && other(flows) != nil:
	case head.Kind == quichello.Handshake && len(flows) == 1 && connOf(flows[0]) != nil && connOf(flows[0]).came == cameNew: // it is its own
	case head.Kind == quichello.Short, head.Kind == quichello.Handshake:
		return h.chooseUnknown(flows, &head, now)
	case head.Kind == quichello.Initial && len(b) >= quichello.MinDatagram || head.Kind == quichello.ZeroRTT:
		h.makeRoom(flows, now)
		return nil
	}
	return rest(flows)
}

// chooseUnknown is choose for a packet of a connection that has begun, with an ID that none of the flows knows.
func (h *Hooks) chooseUnknown(flows []*relay.Flow, head *quichello.Header, now time.Time) *relay.Flow {
	var space [roomFrom + 1]*quicConn
	conns := space[:0]
	address := (*quicAddress)(nil)
	verified := false
	for _, f := range flows {
		if conn := connOf(f); conn != nil {
			verify(f)
			verified = verified || conn.verified
			conns = append(conns, conn)
			if conn.address != nil {
				address = conn.address
			}
		}
	}
	if len(conns) == 0 {
		return rest(flows)
	}
	b := head.DestID
	if !address.tries(b) {
		if f, begins := h.leads(flows, head, now); begins || f != nil {
			if f != nil {
				connOf(f).last = now
			} else {
				h.makeRoom(flows, now)
			}
			return f
		}
	}
	if head.Kind != quichello.Short || !verified && len(conns) < len(flows) {
		return rest(flows) // what looks like a short header may be anything, and whoever forges connections has none that is verified
	}
	if len(conns) > 1 && address == nil {
		address = new(quicAddress)
	}
	for _, c := range conns {
		c.address = address
	}
	flowOf := func(c *quicConn) *relay.Flow {
		return flows[slices.IndexFunc(flows, func(f *relay.Flow) bool { return connOf(f) == c })]
	}
	of := address.try(conns, b, func(c *quicConn) int64 { _, down := flowOf(c).Transfers(); return down.Read }, now)
	return flowOf(of)
}

// leads returns the flow of the member to which the ID of a packet leads. If none is there, begins says that the ID leads to another
// member, as that of a client that has moved here. A connection does not leave its flow because the ID happens to fit the layout of another group.
func (h *Hooks) leads(flows []*relay.Flow, head *quichello.Header, now time.Time) (f *relay.Flow, begins bool) {
	b, routable := head.DestID, false
	for _, f := range flows {
		own, does := leadsToOwn(f, b)
		if own {
			return f, false
		}
		routable = routable || does
	}
	plan, from := planOf(flows[0]), clientAddr(flows[0])
	if plan == nil || len(plan.quic) == 0 {
		return nil, false // its listener is gone
	}
	to, id, ok := flows[0].Listener().Value().(*Socket).find(b, head.Kind != quichello.Short, from, now)
	if conn := connOf(flows[0]); len(flows) == 1 && conn != nil && conn.came != cameLearned && id.Len() < aloneLen {
		ok = false
	}
	m := (*upstream.Member)(nil)
	if ok && plan.leads(to, from) != nil {
		m = to.member
	}
	for _, t := range plan.quic {
		if m == nil && routable && plan.routes.TakesFrom(t.route, from) {
			m, _ = t.quic.server(t.group, b)
		}
	}
	if m == nil {
		return nil, false
	}
	for _, f := range flows {
		if connOf(f) != nil && stateOf(f).member.Load() == m {
			return f, false
		}
	}
	return nil, true
}

// leadsToOwn reports whether the layouts of a flow's group say that an ID is of its member, and whether that makes its IDs by them.
func leadsToOwn(f *relay.Flow, b []byte) (own, routable bool) {
	p := stateOf(f)
	w, m, conn := p.target.Load(), p.member.Load(), p.clientTLS().conn
	if w == nil || m == nil || conn == nil || w.quic == nil || len(w.quic.layouts) == 0 {
		return false, false
	}
	is := func(id []byte) bool { by, _ := w.quic.server(w.group, id); return by == m }
	return is(b), conn.came == cameByServer || is(conn.shown.Bytes())
}

// makeRoom ends a flow that seems to be over, if its address has so many that there may be no room for the one that begins.
func (h *Hooks) makeRoom(flows []*relay.Flow, now time.Time) {
	if conn := connOf(flows[0]); len(flows) == 1 && conn != nil {
		conn.last = now // it was alone, and choose has not noted what came
	}
	if len(flows) < roomFrom || h.End == nil {
		return
	}
	conns := make([]*quicConn, len(flows))
	for i, f := range flows {
		verify(f)
		conns[i] = connOf(f)
	}
	if over := leastWorth(conns, now); over != nil {
		h.End(flows[slices.Index(conns, over)].ID(), relay.CauseEvicted)
	}
}

// leastWorth returns the connection that seems to be over: of those whose client has not shown that it has had an answer, as forged ones
// cannot, the one that has begun last; otherwise that whose client has sent nothing for longest, which comes back to its member by its ID if
// it does send something. nil: none does.
func leastWorth(conns []*quicConn, now time.Time) (over *quicConn) {
	for _, c := range conns {
		if c != nil && now.Sub(c.last) >= c.overAfter() && (over == nil || c.endsBefore(over)) {
			over = c
		}
	}
	return over
}

// forgeable reports whether everything that came of a connection may have been sent by somebody who receives nothing at its client's address.
func (c *quicConn) forgeable() bool { return c.came == cameNew && !c.verified }

func (c *quicConn) overAfter() time.Duration {
	if c.forgeable() {
		return unverifiedOver
	}
	return verifiedOver
}

func (c *quicConn) endsBefore(o *quicConn) bool {
	switch {
	case c.forgeable() != o.forgeable():
		return c.forgeable()
	case c.forgeable():
		return c.began.After(o.began)
	}
	return c.last.Before(o.last)
}

// rest returns the flow of an address for what is of none of them for sure, and begins none: that which does not speak QUIC, if one does not,
// and otherwise the one whose client has sent last.
func rest(flows []*relay.Flow) *relay.Flow {
	if f := other(flows); f != nil {
		return f
	}
	of, last := flows[0], time.Time{}
	for _, f := range flows {
		if conn := connOf(f); conn.last.After(last) {
			of, last = f, conn.last
		}
	}
	return of
}
