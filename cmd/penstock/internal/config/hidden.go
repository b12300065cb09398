package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// everywhere contains all addresses: what a route without from matches.
var everywhere = spec.NetworksOf(netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"))

// checkHidden reports routes that no client reaches because an earlier route matches all of
// their clients.
func (r *reader) checkHidden(l *listener) {
	index := map[string][]*spec.Route{}
	for _, route := range l.Routes {
		if r.isInvalid(&route.From, route.From == nil) || r.isInvalid(&route.SNI, route.SNI == nil) || r.isInvalid(&route.ALPN, route.ALPN == nil) || r.isInvalid(&route.ClientNames, route.ClientNames == nil) ||
			r.isInvalid(&route.Protocols, route.Protocols == nil) || r.isInvalid(&route.Prefixes, route.Prefixes == nil) || r.isInvalid(&route.Hosts, route.Hosts == nil) || r.isInvalid(&route.Silence, route.Silence == 0) || !r.isSet(&route.To) {
			continue
		}
		for _, key := range wider(route) {
			i := slices.IndexFunc(index[key], func(earlier *spec.Route) bool { return l.hides(earlier, route) })
			if i >= 0 {
				name := index[key][i].Name
				r.fail(r.position(route), fault{problem: fmt.Sprintf("unreachable: the earlier route %s matches the same clients", plain(name)), allowed: "the more specific route first"})
				break
			}
		}
		if route.Silence > 0 {
			r.checkLater(l, route, index["silence"])
		}
		for _, key := range keys(route) {
			index[key] = append(index[key], route)
		}
	}
	if all := index[""]; len(all) > 0 && r.isSet(&l.To) {
		r.fail(r.position(&l.To), fault{problem: fmt.Sprintf("unreachable: the route %s matches all clients", plain(all[0].Name)), allowed: "either to, or a last route without conditions"})
	}
}

// isInvalid reports whether the file has a list that could not be read.
func (r *reader) isInvalid(list any, empty bool) bool { return empty && r.isSet(list) }

// keys returns the index keys of a route: its server names, or else its protocols, or else the names of clients, or else
// its conditions on first bytes, or else its ranges; "" if it matches everybody.
func keys(route *spec.Route) (keys []string) {
	switch {
	case len(route.SNI) > 0:
		for _, name := range route.SNI {
			keys = append(keys, "sni "+name)
		}
	case len(route.ALPN) > 0:
		for _, name := range route.ALPN {
			keys = append(keys, "alpn "+name)
		}
	case len(route.ClientNames) > 0:
		for _, name := range route.ClientNames {
			keys = append(keys, "client "+name)
		}
	case route.AsksFirst():
		return firstKeysOf(route)
	case len(route.From) > 0:
		for _, p := range route.From {
			keys = append(keys, "from "+p.String())
		}
	default:
		keys = []string{""}
	}
	return keys
}

// wider returns the index keys of all routes that may hide this one. A route that hides it
// matches the first of its names, of its protocols and of its ranges.
func wider(route *spec.Route) []string {
	keys := []string{""}
	if len(route.SNI) > 0 {
		name := route.SNI[0]
		keys = append(keys, "sni "+name)
		for rest := strings.TrimPrefix(name, "*."); ; {
			_, after, ok := strings.Cut(rest, ".")
			if !ok {
				break
			}
			keys = append(keys, "sni *."+after)
			rest = after
		}
	}
	if len(route.ALPN) > 0 {
		keys = append(keys, "alpn "+route.ALPN[0])
	}
	if len(route.ClientNames) > 0 {
		keys = append(keys, "client "+route.ClientNames[0]) // equal names only: patterns that include it are not looked for
	}
	keys = append(keys, widerFirst(route)...)
	from := route.From
	if len(from) == 0 {
		from = everywhere
	}
	if from[0].List != "" {
		return append(keys, "from "+from[0].String())
	}
	for bits := range from[0].Bits() + 1 {
		p, _ := from[0].Addr().Prefix(bits)
		keys = append(keys, "from "+p.String())
	}
	return keys
}

// hides is listener.hides where both are asked of the same protocols.
func hides(a, b *spec.Route) bool {
	if len(a.From) > 0 {
		from := b.From
		if len(from) == 0 {
			from = everywhere
		}
		if !covers(a.From, from) {
			return false
		}
	}
	if len(a.SNI) > 0 && (len(b.SNI) == 0 || !allMatch(b.SNI, func(name string) bool {
		return slices.ContainsFunc(a.SNI, func(pattern string) bool { return takes(pattern, name) })
	})) {
		return false
	}
	if !hidesFirst(a, b) {
		return false
	}
	if len(a.ClientNames) > 0 && (len(b.ClientNames) == 0 || !allMatch(b.ClientNames, func(name string) bool { return slices.Contains(a.ClientNames, name) })) {
		return false
	}
	return len(a.ALPN) == 0 || len(b.ALPN) > 0 && allMatch(b.ALPN, func(p string) bool { return slices.Contains(a.ALPN, p) })
}

// takes reports whether a pattern matches every name that name, itself possibly a pattern,
// matches.
func takes(pattern, name string) bool {
	if pattern == name {
		return true
	}
	end, ok := strings.CutPrefix(pattern, "*")
	return ok && strings.HasSuffix(strings.TrimPrefix(name, "*"), end)
}

// allMatch reports whether f is true for each value of a list.
func allMatch[V any](list []V, f func(V) bool) bool {
	return !slices.ContainsFunc(list, func(v V) bool { return !f(v) })
}
