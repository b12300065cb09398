package config

import (
	"slices"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Where TLS ends at a listener, its protocols, those of its routes and those of its members must meet.

// warnALPN reports routes whose protocols no client can agree on with the listener, and those that lead to members that are offered
// other protocols than their clients agree on.
func (r *reader) warnALPN(l *listener) {
	if l.TLS == nil || l.Datagrams {
		return
	}
	taken := map[string]bool{} // protocols whose clients an earlier route takes, all of them
	for _, route := range l.Routes {
		r.warnOffer(l, route, taken, r.position(&route.To, route))
		if len(route.From)+len(route.SNI)+len(route.ClientNames) == 0 {
			for _, p := range route.ALPN {
				taken[p] = true
			}
		}
		if len(route.ALPN) == 0 || route.PassTLS || slices.ContainsFunc(route.ALPN, func(p string) bool { return slices.Contains(l.TLS.ALPN, p) }) {
			continue
		}
		problem := "no client matches: TLS ends at the listener, which has no alpn of its own, so that no protocol is agreed on"
		if len(l.TLS.ALPN) > 0 {
			problem = "no client matches: TLS ends at the listener, and only protocols of its own alpn are agreed on: " + plain(strings.Join(l.TLS.ALPN, ", "))
		}
		r.warn(r.position(&route.ALPN, route), fault{problem: problem, allowed: "a protocol in alpn of the listener's tls; or tls: pass, where what clients offer counts"})
	}
	if l.Default != nil {
		r.warnOffer(l, l.Default, taken, r.position(&l.To, l))
	}
}

// warnOffer reports a route whose clients may have agreed on another protocol than its members are offered.
func (r *reader) warnOffer(l *listener, route *spec.Route, taken map[string]bool, at *place) {
	if route.PassTLS {
		return
	}
	for g := range route.Groups() {
		if g.TLS == nil || g.TLS.ALPN.List == "" {
			continue
		}
		offer := g.TLS.ALPN
		i := slices.IndexFunc(l.TLS.ALPN, func(p string) bool {
			return !taken[p] && !offer.Has(p) && (len(route.ALPN) == 0 || slices.Contains(route.ALPN, p))
		})
		if i >= 0 {
			p := plain(l.TLS.ALPN[i])
			r.warn(at, fault{
				problem: "clients that agree on " + p + " with the listener are refused if the member chooses what the group " + plain(g.Name) + " offers: " + plain(offer.List),
				allowed: "alpn: client in tls of the group; or a route before, with alpn: " + p,
			})
		}
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
