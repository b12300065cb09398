package xds

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Envoy looks for the most specific filter chain; here the first route that matches is taken. So the
// conditions of each chain are taken apart into classes of equal specificity, and sorted.

// maxRoutes bounds the routes of one listener.
const maxRoutes = 4096

// A routePlan is a route: those conditions of a chain that are equally specific.
type routePlan struct {
	*chain
	name      string
	sni, alpn []string
	protocols []string // by the first bytes
	from      []netip.Prefix
	rank      rank
}

// A rank is how specific a route is. Server names come first, then whether it is TLS, then protocols, then addresses, as in
// Envoy.
type rank struct {
	sni       int // 1<<16: whole names; otherwise the length of what follows the wildcard; 0: any
	transport int // 2: it is known by the first bytes; 1: no TLS, which are all that no route before has taken; 0: any
	alpn      int
	bits      int // of prefixes; -1: any
}

func (a rank) compare(b rank) int {
	return cmp.Or(cmp.Compare(b.sni, a.sni), cmp.Compare(b.transport, a.transport), cmp.Compare(b.alpn, a.alpn), cmp.Compare(b.bits, a.bits))
}

// kinds returns the conditions of a chain besides names and addresses, as routes without these: more than one if they are alternatives.
func (c *chain) kinds() (list []routePlan) {
	if len(c.alpn) > 0 {
		r := routePlan{chain: c, alpn: c.alpn, rank: rank{alpn: 1}}
		if c.transport != "" {
			r.rank.transport = 2
		}
		list = append(list, r)
	}
	if len(c.http) > 0 {
		r := routePlan{chain: c, protocols: c.http, rank: rank{alpn: 1}}
		if c.transport != "" {
			r.rank.transport = 2
		}
		list = append(list, r)
	}
	if len(list) > 0 {
		return list
	}
	r := routePlan{chain: c}
	switch c.transport {
	case "tls":
		r.rank.transport = 2
		if len(c.sni) == 0 {
			r.protocols = []string{spec.ProtocolTLS}
		}
	case rawBuffer:
		r.rank.transport = 1
	}
	return []routePlan{r}
}

func rankOfName(s string) int {
	if end, wild := strings.CutPrefix(s, "*"); wild {
		return len(end)
	}
	return 1 << 16
}

// routes returns the routes of a listener, the most specific first.
func (l *listenerPlan) routes() (list []routePlan) {
	for _, c := range l.chains {
		names, prefixes := map[int][]string{}, map[int][]netip.Prefix{}
		for _, s := range c.sni {
			names[rankOfName(s)] = append(names[rankOfName(s)], s)
		}
		if len(c.sni) == 0 {
			names[0] = nil
		}
		for _, p := range c.from {
			prefixes[p.Bits()] = append(prefixes[p.Bits()], p)
		}
		if len(c.from) == 0 {
			prefixes[-1] = nil
		}
		kinds := c.kinds()
		if len(list)+len(names)*len(prefixes)*len(kinds) > maxRoutes {
			l.o.fail("filter_chains", "more than %d routes", maxRoutes)
			return list
		}
		var own []routePlan
		for sni, s := range names {
			for bits, p := range prefixes {
				for _, r := range kinds {
					r.sni, r.from, r.rank.sni, r.rank.bits = s, p, sni, bits
					own = append(own, r)
				}
			}
		}
		sort.SliceStable(own, func(i, j int) bool { return own[i].rank.compare(own[j].rank) < 0 })
		for i := range own {
			own[i].name = c.name
			if i > 0 {
				own[i].name = fmt.Sprintf("%.58s.%d", c.name, i+1)
			}
		}
		list = append(list, own...)
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].rank.compare(list[j].rank) < 0 })
	l.warnFallThrough()
	l.warnLeftOver()
	return withoutHidden(list)
}

// withoutHidden leaves out routes whose clients an earlier one takes by what they speak.
func withoutHidden(list []routePlan) (kept []routePlan) {
	for _, r := range list {
		if i := slices.IndexFunc(kept, func(e routePlan) bool { return e.takes(&r) }); i >= 0 {
			r.at.warn("", "no client gets to the route %s: the route %s takes them before, as in Envoy", r.name, kept[i].name)
			continue
		}
		kept = append(kept, r)
	}
	return kept
}

// takes reports whether a route by what clients speak takes all clients of another one.
func (r *routePlan) takes(other *routePlan) bool {
	speaks := other.protocols
	if len(other.sni)+len(other.alpn) > 0 {
		speaks = []string{spec.ProtocolTLS}
	}
	if len(r.protocols) == 0 || len(speaks) == 0 || slices.ContainsFunc(speaks, func(p string) bool { return !slices.Contains(r.protocols, p) }) {
		return false
	}
	return len(r.from) == 0 || len(other.from) > 0 && !slices.ContainsFunc(other.from, func(p netip.Prefix) bool {
		return !slices.ContainsFunc(r.from, func(wide netip.Prefix) bool { return wide.Bits() <= p.Bits() && wide.Contains(p.Addr()) })
	})
}

// warnFallThrough warns where Envoy would refuse a client that goes to a less specific route here.
func (l *listenerPlan) warnFallThrough() {
	for _, c := range l.chains {
		if len(c.sni) == 0 || len(c.from)+len(c.alpn) == 0 {
			continue
		}
		covered := slices.ContainsFunc(l.chains, func(other *chain) bool {
			return other != c && len(other.from)+len(other.alpn) == 0 && slices.ContainsFunc(other.sni, func(s string) bool { return slices.Contains(c.sni, s) })
		})
		if !covered {
			c.at.warn("server_names", "a client with one of these names that meets no other condition of the chain goes on to less specific routes, where Envoy would use the default filter chain, or refuse it")
		}
	}
}

// warnLeftOver warns where Envoy would refuse a client, because chains with its transport protocol have other conditions, too, that goes to
// a chain for all transport protocols here.
func (l *listenerPlan) warnLeftOver() {
	plain := func(c *chain) bool { return len(c.sni)+len(c.from)+len(c.alpn)+len(c.http) == 0 }
	anybody := l.to != nil && l.to.transport == "" && l.to.o.as.name != "default_filter_chain" ||
		slices.ContainsFunc(l.chains, func(c *chain) bool { return c.transport == "" && len(c.sni) == 0 })
	for _, transport := range []string{"tls", rawBuffer} {
		first := slices.IndexFunc(l.chains, func(c *chain) bool { return c.transport == transport && len(c.sni) == 0 })
		if !anybody || first < 0 || l.to != nil && l.to.transport == transport || slices.ContainsFunc(l.chains, func(c *chain) bool { return c.transport == transport && plain(c) }) {
			continue
		}
		l.chains[first].at.warn("transport_protocol", "a client of %s that meets no other condition of such chains goes on to chains for all transport protocols, where Envoy would use the default filter chain, or refuse it", transport)
	}
}

// section returns a route.
func (r *routePlan) section(to string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "{name: %s", quote(r.name))
	if len(r.from) > 0 {
		list := make([]string, len(r.from))
		for i, p := range r.from {
			list[i] = p.String()
		}
		b.WriteString(", from: " + quoteList(list))
	}
	if len(r.sni) > 0 {
		b.WriteString(", sni: " + quoteList(r.sni))
	}
	if len(r.protocols) > 0 {
		b.WriteString(", protocol: " + quoteList(r.protocols))
	}
	if len(r.alpn) > 0 {
		b.WriteString(", alpn: " + quoteList(r.alpn))
	}
	b.WriteString(", to: " + to + ", timeouts: {" + r.timeouts() + "}}")
	return b.String()
}

// timeouts returns the keys of timeouts.
func (c *chain) timeouts() string {
	text := "idle: " + duration(c.idle)
	if !c.use.udp {
		text += ", half-closed: " + duration(c.idle)
	}
	if c.life > 0 {
		text += ", life: " + exact(c.life)
	}
	return text
}
