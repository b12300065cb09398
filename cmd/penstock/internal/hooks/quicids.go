package hooks

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/quicid"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/quichello"
	"github.com/penstock/penstock/relay"
)

// A connection of QUIC is not its addresses: a client whose address or port has changed begins a flow, and its first datagram
// says by its connection ID which member has the connection. The flow gets a socket of its own to that member, which makes
// sure that the client is there; what an earlier flow receives goes where it went.
// How IDs are learned is in quiclearn.go.

// quicIDs is how connections of the flows of a target are recognised.
type quicIDs struct {
	layouts []*quicid.Layout // by which servers write their IDs into those of connections
	learn   bool
}

// newQUICIDs returns how connections to a group are recognised; nil: they are not.
func newQUICIDs(g *spec.Group, l *spec.Listener) *quicIDs {
	if !l.Datagrams || g.Destination != nil {
		return nil
	}
	q := g.QUIC
	if q == nil {
		if !l.Sniff.TLS {
			return nil
		}
		return &quicIDs{learn: true} // its clients say in QUIC where they want to go
	}
	ids := &quicIDs{learn: q.Learn, layouts: quicid.Layouts(q)}
	if !ids.learn && len(ids.layouts) == 0 {
		return nil
	}
	return ids
}

// server returns the member of a group whose ID is in a connection ID, with which id begins, and how many bytes of id say so; nil:
// there is none.
func (q *quicIDs) server(g *upstream.Group, id []byte) (*upstream.Member, int) {
	for _, l := range q.layouts {
		if s, ok := l.Server(id); ok {
			if m := g.Server(s[:l.ServerLen()]); m != nil {
				return m, l.Len()
			}
		}
	}
	return nil, 0
}

// quicTarget is a target whose members speak QUIC, and the index of its route; -1: the default.
type quicTarget struct {
	route int
	*Target
}

func (s *Plan) addQUIC(r *spec.Route, c *choice) {
	index := -1
	for i := range s.Spec.Routes {
		if s.Spec.Routes[i] == r {
			index = i
		}
	}
	for _, w := range c.targets {
		if w.quic != nil {
			s.quic = append(s.quic, quicTarget{index, w})
		}
	}
}

// quicPlace is where a connection ID leads that was learned. Its names are those of a configuration that may have changed since.
type quicPlace struct {
	route, group string
	member       *upstream.Member
	from         netip.Addr // only clients of this address; zero: all
}

func (p quicPlace) is(w *Target) bool { return w.Route.Name == p.route && w.To.Name == p.group }

// leads returns where an ID leads that was learned, for a client from an address; nil: it leads nowhere any more, or not this client.
func (s *Plan) leads(to quicPlace, from netip.Addr) *quicTarget {
	if to.member.Removed() {
		return nil
	}
	for i := range s.quic {
		if t := &s.quic[i]; to.is(t.Target) && to.member.Group() == t.group && s.routes.TakesFrom(t.route, from) {
			return t
		}
	}
	return nil
}

// quicCame is how the first datagram of a flow was recognised.
type quicCame uint8

const (
	cameNew      quicCame = iota // its connection begins
	cameByServer                 // its ID has that of the server
	cameLearned                  // its ID is known
	cameUnknown                  // its connection has begun before, and nobody knows where
	numQUICCame
)

var quicCameNames = [numQUICCame]string{cameByServer: "server-id", cameLearned: "learned", cameUnknown: "unknown"}

// recognise looks for the member that has the connection of a flow's first datagram, unless a connection begins with it. It reports
// false if there is none: the flow goes where new connections go.
func (h *Hooks) recognise(f *relay.Flow, p *State, b []byte) bool {
	head, err := quichello.ParseHeader(b)
	if err != nil {
		return false
	}
	if head.Kind == quichello.VersionNegotiation || head.Kind == quichello.Unknown && head.Greased {
		return false // no client sends that; more probably it is something else than QUIC
	}
	conn := newQUICConn(f, head.Version)
	if head.Kind != quichello.Short && head.Kind != quichello.Handshake {
		conn.first, _ = quicid.NewID(head.DestID)
		conn.client, _ = quicid.NewID(head.SrcID)
		p.hello.Store(&clientTLS{conn: conn})
		return false
	}
	if len(p.plan.quic) == 0 {
		return false // nobody is recognised here
	}
	from := clientAddr(f)
	for _, t := range p.plan.quic {
		if m, n := t.quic.server(t.group, head.DestID); m != nil && p.plan.routes.TakesFrom(t.route, from) {
			if head.Kind != quichello.Short {
				n = len(head.DestID)
			}
			conn.member, conn.came = m, cameByServer
			conn.ledBy(head.DestID[:n])
			p.hello.Store(&clientTLS{conn: conn})
			h.QUICCounts.add(conn.came)
			return h.lead(f, p, t.Target)
		}
	}
	if to, id, ok := conn.socket.find(head.DestID, head.Kind != quichello.Short, from, time.Now()); ok {
		if t := p.plan.leads(to, from); t != nil {
			conn.member, conn.came = to.member, cameLearned
			p.hello.Store(&clientTLS{conn: conn})
			h.use(conn, id, to, time.Now())
			h.QUICCounts.add(conn.came)
			return h.lead(f, p, t.Target)
		}
	}
	if head.Greased {
		return false // more probably it is something else than QUIC
	}
	conn.came = cameUnknown
	if head.Kind != quichello.Short { // whose ID may have any length
		conn.ledBy(head.DestID)
	}
	p.hello.Store(&clientTLS{conn: conn})
	h.QUICCounts.add(conn.came)
	return false
}

// returned chooses the member that has the connection of a flow, or to which a flow without a route goes back for now. Neither a member nor a reason means
// that the group chooses one.
func (p *State) returned(w *Target, c upstream.Client) (*upstream.Member, spec.Reason) {
	if m := p.lease.BackForNow(); m != nil {
		return m, spec.ReasonNone
	}
	conn := p.clientTLS().conn
	if conn == nil || w.quic == nil {
		return nil, spec.ReasonNone
	}
	if m := conn.member; m != nil {
		conn.member = nil
		if m, reason := w.group.Return(&p.lease, c, m); reason != spec.ReasonNoMember {
			return m, reason
		}
		return nil, spec.ReasonNone
	}
	// A server may already have named itself to a client whose connection begins, by a Retry that another relay has carried.
	if len(w.quic.layouts) > 0 {
		if m, _ := w.quic.server(w.group, conn.first.Bytes()); m != nil {
			return w.group.Prefer(&p.lease, c, m), spec.ReasonNone
		}
	}
	return nil, spec.ReasonNone
}

// QUIC returns what is known of the connection of a flow.
func (p *State) QUIC() (q account.QUIC) {
	if conn := p.clientTLS().conn; conn != nil {
		if newest := conn.newest.Load(); newest != nil {
			q.ID = newest.String()
		} else {
			q.ID = conn.first.String()
		}
		q.Came = quicCameNames[conn.came]
		q.Version = quicid.VersionName(conn.version.Load())
	}
	return q
}

// QUICCounts counts flows that begin in the middle of a connection of QUIC, by how they were recognised. The zero value counts nothing.
type QUICCounts [numQUICCame]*atomic.Int64

// NewQUICCounts returns counters that are where word says.
func NewQUICCounts(word func(name string) *atomic.Int64) (c QUICCounts) {
	for i, name := range quicCameNames {
		if name != "" {
			c[i] = word("quic." + name)
		}
	}
	return c
}

func (c *QUICCounts) add(came quicCame) {
	if c[came] != nil {
		c[came].Add(1)
	}
}

// Load returns the numbers, by how flows were recognised.
func (c *QUICCounts) Load() (byServer, learned, unknown int64) {
	load := func(came quicCame) int64 {
		if c[came] == nil {
			return 0
		}
		return c[came].Load()
	}
	return load(cameByServer), load(cameLearned), load(cameUnknown)
}

// QUICIDs returns how many connection IDs open flows use that were learned.
func (h *Hooks) QUICIDs() int64 { return h.quicIDs.Load() }
