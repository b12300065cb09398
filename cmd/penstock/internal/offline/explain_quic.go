package offline

import (
	"fmt"

	"github.com/penstock/penstock/cmd/penstock/internal/quicid"
	"github.com/penstock/penstock/cmd/penstock/internal/route"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// addDatagrams explains what is read of a client's first datagrams, before it is known what the listener makes of it.
func (e *explanation) addDatagrams(l *spec.Listener, q *quicClient, m *route.Meta) {
	if q == nil || len(q.steps) == 0 || !l.Datagrams {
		return
	}
	e.QUIC = q
	e.Steps = append(e.Steps, q.steps...)
	m.SNI, m.ALPN = q.ServerName, q.ALPN
}

// addQUIC explains what becomes of a client of QUIC before it is routed, and reports whether that is all.
func (e *explanation) addQUIC(cfg *spec.Config, l *spec.Listener, routes *route.Table, m route.Meta, q *quicClient) bool {
	switch {
	case len(q.begun) > 0 || !l.Datagrams:
		return e.addConnectionID(cfg, l, routes, m, q.begun)
	case !routes.Needs(m.Client):
		e.addStep("quic: no route that may take this client depends on its name, which is not read")
	case q.wrong != nil:
		e.Refused = spec.ReasonQUICInvalid.String() + ": " + q.wrong.Error()
		return true
	case q.more:
		e.addStep("quic: the ClientHello is not complete: after %v the client is routed without a name", l.Sniff.Timeout)
	}
	return false
}

// addFirstID explains what the ID means to which a client sends that begins, in the group that it goes to.
func (e *explanation) addFirstID(g *spec.Group, q *quicClient) {
	if q == nil || len(q.first) == 0 || !g.QUIC.Routable() {
		return
	}
	if to, why := serverIn(g, q.first); to != nil {
		e.addStep("connection ID: group %s: %s: the client goes to member %s if that takes new flows, as the server may have named itself in a Retry", g.Name, why, to.Name)
	}
}

// addConnectionID explains where a client of QUIC goes whose first datagram is of a connection that has begun before, and reports
// whether its ID names a server. Which IDs were learned, only the running daemon knows.
func (e *explanation) addConnectionID(cfg *spec.Config, l *spec.Listener, routes *route.Table, m route.Meta, id []byte) bool {
	if !l.Datagrams {
		e.addStep("connection ID: the listener has streams, and QUIC is over UDP")
		return false
	}
	asked := false
	for i, r := range l.AllRoutes() {
		if i == len(l.Routes) {
			i = -1 // the default
		}
		for g := range r.Groups() {
			if !g.QUIC.Routable() {
				continue
			}
			asked = true
			if !routes.TakesFrom(i, m.Client) {
				e.addStep("connection ID: route %s: no: from does not have the client's address", r.Name)
				continue
			}
			to, why := serverIn(g, id)
			if e.addStep("connection ID: group %s: %s", g.Name, why); to == nil {
				continue
			}
			e.Route = r.Name
			e.destination = destination{Group: g.Name, Members: []string{to.Name}, Choice: "the server that the connection ID names, also if it is drained or down"}
			e.addPath(cfg, l, r, g)
			return true
		}
	}
	what := "no group has quic with ids"
	if asked {
		what = "it names no server"
	}
	e.addStep("connection ID: %s: the client goes to the member that has its connection if the running daemon has seen the ID in use, and is a new client otherwise", what)
	return false
}

// serverIn returns the member whose ID is in a connection ID; nil: there is none.
func serverIn(g *spec.Group, id []byte) (*spec.Member, string) {
	why := "no: it is of no configuration of the group, or too short"
	for _, layout := range quicid.Layouts(g.QUIC) {
		s, ok := layout.Server(id)
		if !ok {
			continue
		}
		server := string(s[:layout.ServerLen()])
		for i := range g.Members {
			if g.Members[i].QUICServerID == server {
				return &g.Members[i], fmt.Sprintf("yes: %s, server ID 0x%x", layout, server)
			}
		}
		why = fmt.Sprintf("no: %s, server ID 0x%x, which no member has", layout, server)
	}
	return nil, why
}
