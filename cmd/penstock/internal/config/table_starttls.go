package config

import (
	"slices"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// startTLSType is a protocol, or a mapping with it.
var startTLSType = func() typ[spec.StartTLS] {
	word := choice(func(word string) spec.StartTLS { return spec.StartTLS{Protocol: word, Clear: "refuse"} }, spec.PostgreSQL)
	keys := keysOf("listener.starttls",
		required(field("protocol", oneOf(spec.PostgreSQL), "", "postgresql: clients send SSLRequest and get an S before TLS begins.", func(t *spec.StartTLS) *string { return &t.Protocol })),
		field("clear", oneOf("refuse", "cancel", "allow"), "refuse", "What happens to what is in the clear. refuse: it is refused, sessions with an error that says why. cancel: requests to cancel a query go on, by the routes for clients without a server name. allow: sessions do so, too.", func(t *spec.StartTLS) *string { return &t.Clear }),
	)
	return scalarOr(word, keys.filled()).shown(func(t spec.StartTLS) string {
		switch {
		case t.Protocol == "":
			return "none"
		case t.Clear != "refuse":
			return "{protocol: " + t.Protocol + ", clear: " + t.Clear + "}"
		}
		return t.Protocol
	})
}()

// checkStartTLS reports what does not fit a listener whose clients ask for TLS.
func (r *reader) checkStartTLS(l *listener) {
	if l.StartTLS.Protocol == "" {
		return
	}
	if l.Datagrams {
		r.fail(r.position(&l.StartTLS, l), fault{problem: "does not apply to datagrams", allowed: "on stream listeners only"})
		return
	}
	if t := l.TLS; t != nil {
		if !slices.Contains(t.ALPN, spec.PostgreSQL) {
			r.warn(r.position(&t.ALPN, t), fault{problem: "without postgresql, clients with libpq 17 or later are refused", allowed: "postgresql in alpn, or no alpn"})
		}
		if t.Clients != nil && !t.Clients.Optional && l.StartTLS.Clear != "refuse" {
			r.fail(r.position(&l.StartTLS.Clear, &l.StartTLS), fault{problem: "what is in the clear has no certificate, which the listener demands", allowed: "clear: refuse, or verify: optional in tls.clients"})
		}
	}
	if l.StartTLS.Clear != "refuse" && l.To == nil && !slices.ContainsFunc(l.Routes, routesClear) {
		r.warn(r.position(&l.StartTLS.Clear, &l.StartTLS), fault{problem: "what is in the clear has no server name, and there is no route for it: it is refused", allowed: "to, or a route without sni, alpn and client-names"})
	}
	check := func(to []spec.Part, at *place) {
		for g := range spec.GroupsOf(to) {
			if g.TLS == nil {
				continue
			}
			r.fail(at, fault{problem: "TLS passes through to " + plain(g.Name) + ", which has tls of its own: there would be TLS within TLS", allowed: "tls of the listener, or a group without tls"})
		}
	}
	for _, route := range l.Routes {
		if l.TLS == nil || route.PassTLS {
			check(route.To, r.position(&route.To, route))
		}
	}
	if l.TLS == nil {
		check(l.To, r.position(&l.To, l))
	}
}

// routesClear reports whether a route fits clients without TLS.
func routesClear(r *spec.Route) bool { return len(r.SNI)+len(r.ALPN)+len(r.ClientNames) == 0 }
