package config

import (
	"slices"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Where TLS ends at a listener, its protocols and those of its routes must meet.

// warnALPN reports routes whose protocols no client can agree on with the listener.
func (r *reader) warnALPN(l *listener) {
	if l.TLS == nil || l.Datagrams {
		return
	}
	for _, route := range l.Routes {
		if len(route.ALPN) == 0 || route.PassTLS || slices.ContainsFunc(route.ALPN, func(p string) bool { return slices.Contains(l.TLS.ALPN, p) }) {
			continue
		}
		problem := "no client matches: TLS ends at the listener, which has no alpn of its own, so that no protocol is agreed on"
		if len(l.TLS.ALPN) > 0 {
			problem = "no client matches: TLS ends at the listener, and only protocols of its own alpn are agreed on: " + plain(strings.Join(l.TLS.ALPN, ", "))
		}
		r.warn(r.at(&route.ALPN, route), fault{problem: problem, allowed: "a protocol in alpn of the listener's tls; or tls: pass, where what clients offer counts"})
	}
}

// hides reports whether route a of a listener matches every client that b matches. A condition that a does not have
// matches everybody.
func (l *listener) hides(a, b *spec.Route) bool {
	if l.TLS != nil && len(a.ALPN) > 0 && b.PassTLS && !a.PassTLS {
		return false // a client that offers a protocol need not agree on it
	}
	return hides(a, b)
}
