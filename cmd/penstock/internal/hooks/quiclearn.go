package hooks

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/quicid"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/quichello"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/hold"
)

// Connection IDs are learned when both have used them. The server names its own in its first packet (the source ID of its first
// long header), and the client shows that it has received it by writing to it. So a client can have no ID learned that it has chosen
// itself, which could be what the first datagram of other clients begins with, and forged datagrams teach nothing, because whoever
// forges them does not see what the server has answered.
//
// Later IDs of a connection come encrypted, and only the client shows them, some clients as soon as they have them, before they use the
// first one: they are claimed. So is the first one if the server has just taken the one that the client has made up. Such an ID is
// believed from the address of its client alone, at other ports, as a router gives them: nobody else's datagrams lead anywhere because
// of it. Nor is the server's ID believed elsewhere if its client has made up several: a server does not answer a packet that it does not
// like, and may take over the ID of the next one.

// quicConn is what is known of a client's connection. It belongs to the flow's loop, but for what is atomic, and came.
type quicConn struct {
	socket  *Socket
	version atomic.Uint32             // 0: not known
	first   quicid.ID                 // what the first datagram of the flow is addressed to; empty: not known
	shown   quicid.ID                 // that by has given itself; empty: none yet
	by      *upstream.Member          // that has shown it
	unread  int                       // datagrams of the server that did not show its ID
	came    quicCame                  // with which the flow began
	learned time.Time                 // when the newest of ids was learned
	member  *upstream.Member          // that has the connection; nil: nobody, or the flow has been there
	newest  atomic.Pointer[quicid.ID] // of ids, or with which the flow came if it learns none; nil: none
	ids     []quicUse                 // that the flow has in a table of its listener, the newest one last
	quicPeer
}

func newQUICConn(f *relay.Flow, version uint32) *quicConn {
	now := time.Now()
	conn := &quicConn{socket: f.Listener().Value().(*Socket), quicPeer: quicPeer{began: now, last: now}}
	conn.version.Store(version)
	return conn
}

// ledBy notes by which ID a flow has come that learns none.
func (c *quicConn) ledBy(b []byte) {
	if id, ok := quicid.NewID(b); ok {
		c.newest.Store(&id)
	}
}

// quicUse is an ID that a flow uses, and where it leads.
type quicUse struct {
	id quicid.ID
	to quicPlace
}

const (
	// maxFlowIDs bounds how many IDs of a flow are kept: a client takes another one now and then, and may go back to the one before.
	maxFlowIDs = 3
	// learnEvery is how soon a flow that has had maxFlowIDs learns another one, so that nobody keeps the table busy.
	learnEvery = time.Second
	// maxUnread is how many datagrams of a server are looked at for its ID, which is in the first one, unless that asks the client to
	// begin again.
	maxUnread = 16
)

// quicKnown are the IDs that the flows of a listener use.
type quicKnown struct {
	shown   quicid.Table[quicPlace]
	claimed quicid.Table[quicPlace] // beside the others, whose room nobody takes by claims
}

// table returns the table of the IDs that lead to a place.
func (k *quicKnown) table(to quicPlace) *quicid.Table[quicPlace] {
	if to.from.IsValid() {
		return &k.claimed
	}
	return &k.shown
}

// find returns where a client is led by the ID that b begins with.
func (k *quicKnown) find(b []byte, whole bool, from netip.Addr, now time.Time) (to quicPlace, id quicid.ID, ok bool) {
	if to, id, ok = k.shown.Find(b, whole, now); ok {
		return to, id, true
	}
	to, id, ok = k.claimed.Find(b, whole, now)
	return to, id, ok && to.from == from
}

// watch has the hooks see what a client and its member send later, if its connection IDs are to be learned. It is called before the flow
// has a member. A flow whose connection began nobody knows where teaches nothing: it may well be at the wrong member.
//
// Where a client's address may have several flows, the ID that the server names is also how they are told apart.
func (p *State) watch(f *relay.Flow) {
	w, conn := p.target.Load(), p.clientTLS().conn
	if conn == nil || w == nil || conn.came == cameByServer || conn.came == cameUnknown {
		return
	}
	if w.quic.learns() || conn.came == cameNew && p.plan.divides {
		f.StartSniff(1, 0)
	}
}

func (q *quicIDs) learns() bool { return q != nil && q.learn }

// shown sees a datagram of the member of a flow whose client is watched, and reports whether it need see more.
func (p *State) shown(f *relay.Flow, b []byte) bool {
	conn, m := p.clientTLS().conn, p.member.Load()
	if conn == nil {
		return false
	}
	head, err := quichello.ParseHeader(b)
	if err == nil && head.Kind == quichello.Retry {
		conn.retry, _ = quicid.NewID(head.SrcID)
	}
	if err == nil && (head.Kind == quichello.Initial || head.Kind == quichello.Handshake) {
		conn.shown, _ = quicid.NewID(head.SrcID)
		conn.by = m
		conn.version.Store(head.Version) // they may have agreed on another one
		f.Changed()
		return false
	}
	conn.unread++
	return conn.unread < maxUnread
}

// learn sees one of the datagrams that a client sends once its flow has a member, and reports whether it need see more.
func (h *Hooks) learn(f *relay.Flow, p *State, b []byte) bool {
	conn, w, m := p.clientTLS().conn, p.target.Load(), p.member.Load()
	if m == nil || conn == nil || w == nil || !w.quic.learns() {
		return false
	}
	head, err := quichello.ParseHeader(b)
	if err != nil {
		return true
	}
	id, newest, claimed := head.DestID, conn.newest.Load(), false
	if head.Kind != quichello.Short && head.Kind != quichello.Initial && head.Kind != quichello.Handshake || conn.address.tries(id) {
		return true
	}
	for i := len(conn.ids) - 1; i >= 0; i-- {
		if u := &conn.ids[i]; u.id.Begins(id) {
			if newest != &u.id {
				conn.newest.Store(&u.id)
			}
			return true
		}
	}
	known := conn.shown // whose length those of later ones have
	if conn.by != m || known.Len() == 0 {
		if newest == nil {
			return true // the server has said nothing yet
		}
		known = *newest
	}
	short := head.Kind == quichello.Short
	switch {
	case known.Begins(id) && (short || len(id) == known.Len()):
		id, claimed = id[:known.Len()], known == conn.first || conn.first.Len() == 0 || conn.chosen
	case short && len(id) < known.Len() || !short && string(id) == string(conn.first.Bytes()):
		return true
	case short:
		id, claimed = id[:known.Len()], true
	default:
		claimed = true
	}
	if by, _ := w.quic.server(w.group, id); by == m {
		return false // all of them say so
	}
	next, ok := quicid.NewID(id)
	if !ok {
		return true
	}
	to := quicPlace{route: w.Route.Name, group: w.To.Name, member: m}
	if claimed {
		to.from = clientAddr(f)
	}
	now := time.Now()
	if len(conn.ids) == maxFlowIDs && now.Sub(conn.learned) < learnEvery {
		return true
	}
	if h.use(conn, next, to, now) {
		f.Changed()
	}
	return true
}

// use notes that a flow uses an ID, and reports whether it leads there.
func (h *Hooks) use(conn *quicConn, id quicid.ID, to quicPlace, now time.Time) bool {
	if !conn.socket.table(to).Use(id, to, now) {
		return false
	}
	h.quicIDs.Add(1)
	all := conn.ids
	if len(all) == maxFlowIDs {
		h.unuse(conn, &all[0], now)
		all = all[1:]
	}
	conn.ids = append(append(make([]quicUse, 0, len(all)+1), all...), quicUse{id, to}) // newest may still be asked for
	conn.newest.Store(&conn.ids[len(conn.ids)-1].id)
	conn.learned = now
	return true
}

func (h *Hooks) unuse(conn *quicConn, u *quicUse, now time.Time) {
	conn.socket.table(u.to).Done(u.id, now)
	h.quicIDs.Add(-1)
}

// forgetIDs is called when a flow has ended.
func (h *Hooks) forgetIDs(p *State) {
	if conn := p.clientTLS().conn; conn != nil {
		for i := range conn.ids {
			h.unuse(conn, &conn.ids[i], time.Now())
		}
	}
}

// encodedQUICConn is what is encoded of a connection: what the IDs that it has yet to learn are judged by only until it has one.
type encodedQUICConn struct {
	ids          []quicid.ID // that were learned
	claimed      uint64      // bits: which of these were claimed, and those below
	version      uint32
	first, shown quicid.ID
	came         quicCame  // cameByServer or cameUnknown, of a flow that learns none
	led          quicid.ID // by which that came; empty: not known
}

// Bits of encodedQUICConn.claimed beside those of IDs.
const (
	encodedMoved    = 1 << (maxFlowIDs + iota) // the flow began with an ID that was known: cameLearned
	encodedVerified                            // quicPeer.verified
	encodedChosen                              // quicPeer.chosen
)

func (c *quicConn) encode(e *hold.Encoder) {
	var claimed uint64
	for i := range c.ids {
		if c.ids[i].to.from.IsValid() {
			claimed |= 1 << i
		}
	}
	if c.came == cameLearned {
		claimed |= encodedMoved
	}
	if c.verified {
		claimed |= encodedVerified
	}
	if c.chosen {
		claimed |= encodedChosen
	}
	e.Uint(claimed)
	e.Uint(uint64(c.version.Load()))
	if len(c.ids) == 0 {
		e.Bytes(c.first.Bytes())
		e.Bytes(c.shown.Bytes())
	}
}

// encodeCame encodes what is known of the connection of a flow that learns no ID.
func (c *quicConn) encodeCame(e *hold.Encoder) {
	var led quicid.ID
	if id := c.newest.Load(); id != nil {
		led = *id
	}
	e.Uint(uint64(c.came))
	e.Uint(uint64(c.version.Load()))
	e.Bytes(led.Bytes())
}

func (e *encodedQUICConn) decodeIDs(dec *hold.Decoder) error {
	for range min(dec.Uint(), maxFlowIDs) {
		id, ok := quicid.NewID(dec.Bytes())
		if !ok {
			return hold.ErrEncoding
		}
		e.ids = append(e.ids, id)
	}
	return nil
}

func (e *encodedQUICConn) decode(dec *hold.Decoder) {
	e.claimed, e.version = dec.Uint(), uint32(dec.Uint())
	if e.claimed&encodedMoved != 0 {
		e.came = cameLearned
	}
	if len(e.ids) == 0 {
		e.first, _ = quicid.NewID(dec.Bytes())
		e.shown, _ = quicid.NewID(dec.Bytes())
	}
}

func (e *encodedQUICConn) decodeCame(dec *hold.Decoder) {
	e.came, e.version = quicCame(dec.Uint()), uint32(dec.Uint())
	e.led, _ = quicid.NewID(dec.Bytes())
	if e.came != cameByServer {
		e.came = cameUnknown // also what a later version of the program has added
	}
}

// relearn has a flow of an earlier worker use the IDs that it had there, and learn further ones.
func (h *Hooks) relearn(f *relay.Flow, p *State, e *encodedQUICConn) {
	w, m := p.target.Load(), p.member.Load()
	if len(e.ids) == 0 && e.first.Len() == 0 && e.came == cameNew {
		return
	}
	conn := newQUICConn(f, e.version)
	conn.first, conn.shown, conn.by, conn.came = e.first, e.shown, m, e.came
	conn.verified, conn.chosen = e.claimed&encodedVerified != 0, e.claimed&encodedChosen != 0
	conn.ledBy(e.led.Bytes())
	known := *p.clientTLS()
	known.conn = conn
	p.hello.Store(&known)
	if m == nil || !w.quic.learns() || e.came != cameNew && e.came != cameLearned {
		return
	}
	for i, id := range e.ids {
		to := quicPlace{route: w.Route.Name, group: w.To.Name, member: m}
		if e.claimed>>i&1 != 0 {
			to.from = clientAddr(f)
		}
		h.use(conn, id, to, time.Now())
	}
	p.watch(f)
}
