package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// everywhere is what a route without from takes.
var everywhere = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// checkHidden finds routes that no client reaches, since an earlier one takes
// every client that they would.
func (r *reader) checkHidden(l *listener) {
	index := map[string][]*spec.Route{}
	for _, route := range l.Routes {
		if r.unread(&route.From, route.From == nil) || r.unread(&route.SNI, route.SNI == nil) || r.unread(&route.ALPN, route.ALPN == nil) || !r.said(&route.To) {
			continue
		}
		for _, key := range wider(route) {
			i := slices.IndexFunc(index[key], func(earlier *spec.Route) bool { return hides(earlier, route) })
			if i >= 0 {
				name := index[key][i].Name
				r.fail(r.at(route), fault{problem: fmt.Sprintf("no client gets here: the earlier route %s takes all of them", plain(name)), allowed: "the narrower route first"})
				break
			}
		}
		for _, key := range keys(route) {
			index[key] = append(index[key], route)
		}
	}
	if all := index[""]; len(all) > 0 && r.said(&l.To) {
		r.fail(r.at(&l.To), fault{problem: fmt.Sprintf("no client gets here: the route %s takes all of them", plain(all[0].Name)), allowed: "to, or a last route without conditions"})
	}
}

// unread tells whether the file has a list that could not be read.
func (r *reader) unread(list any, empty bool) bool { return empty && r.said(list) }

// keys are where a route stands in the index: under each of its server names, or
// else protocols, or else ranges; under "" if it takes everybody.
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
	case len(route.From) > 0:
		for _, p := range route.From {
			keys = append(keys, "from "+p.String())
		}
	default:
		keys = []string{""}
	}
	return keys
}

// wider are the keys of all routes that may hide this one. Whatever hides it
// takes the first of its names, the first of its protocols and the first of its
// ranges.
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
	from := route.From
	if len(from) == 0 {
		from = everywhere
	}
	for bits := range from[0].Bits() + 1 {
		p, _ := from[0].Addr().Prefix(bits)
		keys = append(keys, "from "+p.String())
	}
	return keys
}

// hides tells whether a takes every client that b would. A condition that a does
// not have takes everybody.
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
	if len(a.SNI) > 0 && (len(b.SNI) == 0 || !all(b.SNI, func(name string) bool {
		return slices.ContainsFunc(a.SNI, func(pattern string) bool { return takes(pattern, name) })
	})) {
		return false
	}
	return len(a.ALPN) == 0 || len(b.ALPN) > 0 && all(b.ALPN, func(p string) bool { return slices.Contains(a.ALPN, p) })
}

// takes tells whether a pattern takes every name that another pattern, or a
// name, does.
func takes(pattern, name string) bool {
	if pattern == name {
		return true
	}
	end, ok := strings.CutPrefix(pattern, "*")
	return ok && strings.HasSuffix(strings.TrimPrefix(name, "*"), end)
}

func all[V any](list []V, f func(V) bool) bool {
	return !slices.ContainsFunc(list, func(v V) bool { return !f(v) })
}
