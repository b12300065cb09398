package hooks

import (
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/quicid"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/quichello"
	"github.com/penstock/penstock/relay"
)

// A client may have several connections from one address and port, to different names. Each is a flow. Which one a datagram is of is told
// by
//
//   - the client's own ID in long headers, which stays the same until the handshake is over, and the ID that it writes to;
//   - the ID that it writes to in short headers, if the flow has used it before, or the server has named it;
//   - the member to which the ID leads, by a layout or because it was learned, if that is the member of one of the flows only.
//
// An Initial packet that is of none of them begins another connection. An ID in a short header that nobody knows was given to a client in a
// packet that nobody here can read. If one flow has just ended its handshake, it is that one's, as quic-go changes its ID then; otherwise it is
// taken for that of the flow that has sent last. A client uses one ID at a time. So if that flow goes on with an ID that it has used before,
// or its member answers nothing for a second, the next flow has the ID. Whatever reaches a wrong member before is dropped there, and the
// client sends it again.

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

// quicDivision is what tells the datagrams of a connection from those of others at its client's address.
type quicDivision struct {
	client quicid.ID    // the client's own ID; empty: not known, or it has none
	retry  quicid.ID    // that the server has given itself when it asked the client to begin again; empty: it has not
	used   [2]quicid.ID // in short headers, the newest one first
	sent   time.Time    // when the client has sent last, as long as its address has several flows
	guess  quicGuess
}

// quicGuess is an ID that nobody knows, and that is taken for one of the flow.
type quicGuess struct {
	id    quicid.ID // empty: there is none
	since time.Time
	read  int64 // bytes of the member by then
	backs int   // datagrams with earlier IDs since then
}

const (
	// maxBacks is how many datagrams with earlier IDs may come behind the first one with a new ID, because the network has changed their order.
	maxBacks = 2
	// guessTime is how long it takes until an ID that was guessed counts as the flow's, and how long a member may take to answer.
	guessTime = time.Second
	// guessLen is how much of an ID is compared where nothing says how long it is: most have eight bytes or more.
	guessLen = 8
)

// choose is the hook that finds the flow of a datagram among those of its client's address; nil: a connection begins.
func (h *Hooks) choose(flows []*relay.Flow, b []byte) *relay.Flow {
	if len(flows) == 1 && len(b) > 0 && b[0]&0x80 == 0 { // nearly always
		if conn := stateOf(flows[0]).clientTLS().conn; conn == nil || conn.used[0].Begins(b[1:]) {
			return flows[0]
		}
	}
	head, err := quichello.ParseHeader(b)
	switch {
	case err != nil:
		return latest(flows)
	case head.Kind == quichello.Short:
		return chooseShort(flows, head.DestID, time.Now())
	}
	for _, f := range flows {
		if conn := stateOf(f).clientTLS().conn; conn != nil && conn.has(&head) {
			conn.sent = time.Now()
			return f
		}
	}
	if head.Kind == quichello.Initial && len(b) >= quichello.MinDatagram || head.Kind == quichello.ZeroRTT {
		return nil
	}
	return latest(flows)
}

// chooseShort is choose for a short header. What follows its first byte begins with an ID.
func chooseShort(flows []*relay.Flow, b []byte, now time.Time) *relay.Flow {
	holder := -1
	for i, f := range flows {
		conn := stateOf(f).clientTLS().conn
		if conn == nil {
			continue
		}
		if id := conn.known(b); id != nil {
			conn.uses(*id)
			conn.sent = now
			conn.guess.backs++
			return f
		}
		if conn.guess.id.Begins(b) {
			holder = i
		}
	}
	if holder >= 0 {
		return flows[guessed(flows, holder, now)]
	}
	mine := flows
	if m := leadsTo(flows[0], b, now); m != nil {
		mine = nil
		for _, f := range flows {
			if stateOf(f).member.Load() == m {
				mine = append(mine, f)
			}
		}
		if len(mine) == 0 {
			return nil // a client that has moved here
		}
	}
	of, sure := guess(mine)
	conn := stateOf(of).clientTLS().conn
	if conn == nil {
		return of
	}
	if id, ok := quicid.NewID(b[:min(conn.length(), len(b))]); ok {
		if sure {
			conn.uses(id)
		} else {
			conn.guess = quicGuess{id: id, since: now, read: fromMember(of)}
		}
	}
	return of
}

// has reports whether a long header is of the connection.
func (c *quicConn) has(head *quichello.Header) bool {
	if c.client.Len() > 0 && string(head.SrcID) == string(c.client.Bytes()) {
		return true
	}
	for _, id := range [...]*quicid.ID{&c.first, &c.retry, c.known(head.DestID)} {
		if id != nil && id.Len() > 0 && string(head.DestID) == string(id.Bytes()) {
			return true
		}
	}
	return false
}

// known returns the ID that b begins with, of those that the server has given itself or the client has used; nil: it is none of them.
func (c *quicConn) known(b []byte) *quicid.ID {
	for _, id := range [...]*quicid.ID{&c.used[0], &c.used[1], &c.shown, c.newest.Load()} {
		if id != nil && id.Begins(b) {
			return id
		}
	}
	for i := range c.ids {
		if id := &c.ids[i].id; id.Begins(b) {
			return id
		}
	}
	return nil
}

// uses notes the ID of a short header.
func (c *quicConn) uses(id quicid.ID) {
	if id != c.used[0] {
		c.used[0], c.used[1] = id, c.used[0]
	}
}

// length returns how long the IDs of the server are, as far as it is known.
func (c *quicConn) length() int {
	if n := c.shown.Len(); n > 0 {
		return n
	}
	if id := c.newest.Load(); id != nil {
		return id.Len()
	}
	return guessLen
}

// leadsTo returns the member to which an ID leads with which b begins, as it would lead a client that has moved; nil: to none.
func leadsTo(f *relay.Flow, b []byte, now time.Time) *upstream.Member {
	plan, from := planOf(f), clientAddr(f)
	if plan == nil {
		return nil // its listener is gone
	}
	for _, t := range plan.quic {
		if m, _ := t.quic.server(t.group, b); m != nil && plan.routes.TakesFrom(t.route, from) {
			return m
		}
	}
	if len(plan.quic) == 0 {
		return nil
	}
	if to, _, ok := f.Listener().Value().(*Socket).find(b, false, from, now); ok && !to.member.Removed() {
		return to.member
	}
	return nil
}

// guess returns the flow that is most likely to use another ID: one that has just ended its handshake, or else the one that has sent last,
// of those that have none that is doubtful. It reports whether no other one comes into question.
func guess(flows []*relay.Flow) (of *relay.Flow, sure bool) {
	best, begin, of := (*quicConn)(nil), 0, flows[0]
	begins := func(c *quicConn) bool { return c.used[0].Len() == 0 && c.shown.Len() > 0 }
	for _, f := range flows {
		conn := stateOf(f).clientTLS().conn
		if conn == nil {
			continue
		}
		if begins(conn) {
			begin++
		}
		if best == nil || best.guess.id.Len() > 0 || conn.guess.id.Len() == 0 && (begins(conn) && !begins(best) || begins(conn) == begins(best) && conn.sent.After(best.sent)) {
			best, of = conn, f
		}
	}
	return of, len(flows) == 1 || begin == 1 && begins(best)
}

// guessed returns which of the flows of an address gets what is addressed to an ID that was taken for that of a holder.
func guessed(flows []*relay.Flow, holder int, now time.Time) int {
	conn := stateOf(flows[holder]).clientTLS().conn
	g := conn.guess
	if g.backs <= maxBacks {
		if now.Sub(g.since) < guessTime {
			return holder
		}
		if fromMember(flows[holder]) > g.read {
			conn.guess = quicGuess{}
			conn.uses(g.id)
			conn.sent = now
			return holder
		}
	}
	for i := 1; i < len(flows); i++ {
		next := (holder + i) % len(flows)
		if c := stateOf(flows[next]).clientTLS().conn; c != nil {
			conn.guess = quicGuess{id: c.guess.id, since: now, read: fromMember(flows[holder])} // if they all have one, two change theirs
			c.guess = quicGuess{id: g.id, since: now, read: fromMember(flows[next])}
			return next
		}
	}
	conn.guess = quicGuess{}
	conn.uses(g.id) // the others have ended
	return holder
}

// doubts reports whether a datagram was given to the flow by a guess.
func (c *quicConn) doubts(head *quichello.Header) bool {
	return head.Kind == quichello.Short && c.guess.id.Begins(head.DestID)
}

// fromMember returns how many bytes a flow has had from its member.
func fromMember(f *relay.Flow) int64 {
	_, down := f.Transfers()
	return down.Read
}

// latest returns the flow whose client has sent last, of those of an address that speak QUIC.
func latest(flows []*relay.Flow) *relay.Flow {
	of, sent := flows[0], time.Time{}
	for _, f := range flows {
		if conn := stateOf(f).clientTLS().conn; conn != nil && !conn.sent.Before(sent) {
			of, sent = f, conn.sent
		}
	}
	return of
}
