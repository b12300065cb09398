// Package route says where a client goes. A [Table] is made from the routes of one
// listener and never changes; asking it takes no lock and allocates nothing.
package route

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/gaissmai/bart"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Meta is what is known of a client when it is routed.
type Meta struct {
	Client netip.Addr // zero: it has none (a Unix socket); no prefix holds it
	SNI    string     // lower-case, without a dot at its end; empty: none was sent
	ALPN   []string
}

// Table finds the first route, in the file's order, whose every condition holds.
//
// Each route is filed under one of its conditions only: under its names if it asks
// for names, or else under its prefixes, or else under its protocols. So few routes
// are candidates for a client, and those are asked for their other conditions. A
// pile is a list of routes in the file's order, by index.
type Table struct {
	routes          []*spec.Route
	byName          map[string][]int32 // whole names
	wildcards       map[string][]int32 // what is behind the "*." of a wildcard
	longestWildcard int                // of the keys of below, in bytes
	bySource        bart.Table[sourceRoutes]
	byALPN          map[string][]int32
	unconditional   int32   // the first route without a condition; none behind it is ever reached
	needHello       []int32 // routes that ask for names or protocols

	defaultRoute *spec.Route
}

// origin has the routes that ask for a prefix and may have the clients of this one.
type sourceRoutes struct {
	all        []int32
	withoutSNI []int32 // those of them that are filed here
}

// client is what the table asks of a Meta, looked up once.
type client struct {
	sourceRoutes
	alpn []string
}

// none is behind every route.
const noRoute = int32(1<<31 - 1)

// New makes the table of a listener, which must not change any more.
func New(l *spec.Listener) *Table {
	t := &Table{
		routes: l.Routes,
		byName: map[string][]int32{}, wildcards: map[string][]int32{}, byALPN: map[string][]int32{},
		unconditional: noRoute, defaultRoute: l.Default,
	}
	for i, r := range l.Routes {
		t.add(int32(i), r)
	}
	t.mergeSupernets()
	return t
}

func (t *Table) add(i int32, r *spec.Route) {
	if len(r.SNI) > 0 || len(r.ALPN) > 0 {
		t.needHello = append(t.needHello, i)
	}
	for _, p := range r.From {
		t.bySource.Modify(spec.CanonicalPrefix(p), func(o sourceRoutes, _ bool) (sourceRoutes, bool) {
			o.all = appendOnce(o.all, i)
			if len(r.SNI) == 0 {
				o.withoutSNI = appendOnce(o.withoutSNI, i)
			}
			return o, false
		})
	}
	for _, name := range r.SNI {
		if base, ok := strings.CutPrefix(name, "*."); ok {
			t.wildcards[base] = appendOnce(t.wildcards[base], i)
			t.longestWildcard = max(t.longestWildcard, len(base))
		} else {
			t.byName[name] = appendOnce(t.byName[name], i)
		}
	}
	if len(r.SNI) > 0 || len(r.From) > 0 {
		return
	}
	for _, proto := range r.ALPN {
		t.byALPN[proto] = appendOnce(t.byALPN[proto], i)
	}
	if len(r.ALPN) == 0 {
		t.unconditional = min(t.unconditional, i)
	}
}

// pile puts the last route so far onto a pile, once.
func appendOnce(at []int32, i int32) []int32 {
	if n := len(at); n > 0 && at[n-1] == i {
		return at
	}
	return append(at, i)
}

// settle gives each prefix the routes of the shorter ones around it too, so that
// the longest match has all.
func (t *Table) mergeSupernets() {
	whole := map[netip.Prefix]sourceRoutes{}
	for p := range t.bySource.All() {
		var o sourceRoutes
		for _, around := range t.bySource.Supernets(p) { // p is one of them
			o.all = append(o.all, around.all...)
			o.withoutSNI = append(o.withoutSNI, around.withoutSNI...)
		}
		for _, list := range []*[]int32{&o.all, &o.withoutSNI} {
			slices.Sort(*list)
			*list = slices.Clip(slices.Compact(*list))
		}
		whole[p] = o
	}
	for p, o := range whole {
		t.bySource.Insert(p, o)
	}
}

// Find gives the first route that matches, or the listener's default. It is false
// if there is neither.
func (t *Table) Find(m Meta) (*spec.Route, bool) {
	c := t.client(m)
	best := t.byClient(&c)
	if m.SNI != "" {
		best = t.firstMatch(t.byName[m.SNI], best, &c)
		for rest := m.SNI; len(t.wildcards) > 0; {
			i := strings.IndexByte(rest, '.')
			if i < 0 {
				break
			}
			if rest = rest[i+1:]; len(rest) <= t.longestWildcard {
				best = t.firstMatch(t.wildcards[rest], best, &c)
			}
		}
	}
	if best == noRoute {
		return t.defaultRoute, t.defaultRoute != nil
	}
	return t.routes[best], true
}

// Needs tells whether a client's ClientHello decides where it goes: a route that
// asks for a name or a protocol, and may have this client, stands before the
// first that takes it anyway. If not, a client that speaks second need not wait.
func (t *Table) Needs(from netip.Addr) bool {
	c := t.client(Meta{Client: from})
	best := t.byClient(&c)
	for _, i := range t.needHello {
		if i >= best {
			break
		}
		if t.sourceMatches(i, &c) {
			return true
		}
	}
	return false
}

func (t *Table) client(m Meta) client {
	c := client{alpn: m.ALPN}
	if m.Client.IsValid() {
		c.sourceRoutes, _ = t.bySource.Lookup(spec.CanonicalAddr(m.Client))
	}
	return c
}

// byClient is the first match among the routes that ask for no name.
func (t *Table) byClient(c *client) int32 {
	best := t.firstMatch(c.withoutSNI, t.unconditional, c)
	for _, proto := range c.alpn {
		best = t.firstMatch(t.byALPN[proto], best, c)
	}
	return best
}

// first is the first route of a pile that matches, if it is before best.
func (t *Table) firstMatch(at []int32, best int32, c *client) int32 {
	for _, i := range at {
		if i >= best {
			break
		}
		if t.sourceMatches(i, c) && t.alpnMatches(i, c) {
			return i
		}
	}
	return best
}

// holds tells whether the client may be from where it is.
func (t *Table) sourceMatches(i int32, c *client) bool {
	if len(t.routes[i].From) == 0 {
		return true
	}
	_, ok := slices.BinarySearch(c.all, i)
	return ok
}

// speaks tells whether the client offers what the route asks for.
func (t *Table) alpnMatches(i int32, c *client) bool {
	wanted := t.routes[i].ALPN
	return len(wanted) == 0 || slices.ContainsFunc(c.alpn, func(proto string) bool { return slices.Contains(wanted, proto) })
}
