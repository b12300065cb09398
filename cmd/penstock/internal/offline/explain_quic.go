package offline

import (
	"fmt"

	"github.com/penstock/penstock/cmd/penstock/internal/quicid"
	"github.com/penstock/penstock/cmd/penstock/internal/route"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

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
