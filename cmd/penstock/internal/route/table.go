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
	routes  []*spec.Route
	names   map[string][]int32 // whole names
	below   map[string][]int32 // what is behind the "*." of a wildcard
	longest int                // of the keys of below, in bytes
	from    bart.Table[origin]
	alpn    map[string][]int32
	any     int32   // the first route without a condition; none behind it is ever reached
	hello   []int32 // routes that ask for names or protocols

	fallback *spec.Route
}

// origin has the routes that ask for a prefix and may have the clients of this one.
type origin struct {
	all      []int32
	nameless []int32 // those of them that are filed here
}

// client is what the table asks of a Meta, looked up once.
type client struct {
	origin
	alpn []string
}

// none is behind every route.
const none = int32(1<<31 - 1)

// New makes the table of a listener, which must not change any more.
func New(l *spec.Listener) *Table {
	t := &Table{
		routes: l.Routes,
		names:  map[string][]int32{}, below: map[string][]int32{}, alpn: map[string][]int32{},
		any: none, fallback: l.Default,
	}
	for i, r := range l.Routes {
		t.file(int32(i), r)
	}
	t.settle()
	return t
}

func (t *Table) file(i int32, r *spec.Route) {
	if len(r.SNI) > 0 || len(r.ALPN) > 0 {
		t.hello = append(t.hello, i)
	}
	for _, p := range r.From {
		t.from.Modify(spec.PlainPrefix(p), func(o origin, _ bool) (origin, bool) {
			o.all = pile(o.all, i)
			if len(r.SNI) == 0 {
				o.nameless = pile(o.nameless, i)
			}
			return o, false
		})
	}
	for _, name := range r.SNI {
		if base, ok := strings.CutPrefix(name, "*."); ok {
			t.below[base] = pile(t.below[base], i)
			t.longest = max(t.longest, len(base))
		} else {
			t.names[name] = pile(t.names[name], i)
		}
	}
	if len(r.SNI) > 0 || len(r.From) > 0 {
		return
	}
	for _, proto := range r.ALPN {
		t.alpn[proto] = pile(t.alpn[proto], i)
	}
	if len(r.ALPN) == 0 {
		t.any = min(t.any, i)
	}
}

// pile puts the last route so far onto a pile, once.
func pile(at []int32, i int32) []int32 {
	if n := len(at); n > 0 && at[n-1] == i {
		return at
	}
	return append(at, i)
}

// settle gives each prefix the routes of the shorter ones around it too, so that
// the longest match has all.
func (t *Table) settle() {
	whole := map[netip.Prefix]origin{}
	for p := range t.from.All() {
		var o origin
		for _, around := range t.from.Supernets(p) { // p is one of them
			o.all = append(o.all, around.all...)
			o.nameless = append(o.nameless, around.nameless...)
		}
		for _, list := range []*[]int32{&o.all, &o.nameless} {
			slices.Sort(*list)
			*list = slices.Clip(slices.Compact(*list))
		}
		whole[p] = o
	}
	for p, o := range whole {
		t.from.Insert(p, o)
	}
}

// Find gives the first route that matches, or the listener's default. It is false
// if there is neither.
func (t *Table) Find(m Meta) (*spec.Route, bool) {
	c := t.client(m)
	best := t.byClient(&c)
	if m.SNI != "" {
		best = t.first(t.names[m.SNI], best, &c)
		for rest := m.SNI; len(t.below) > 0; {
			i := strings.IndexByte(rest, '.')
			if i < 0 {
				break
			}
			if rest = rest[i+1:]; len(rest) <= t.longest {
				best = t.first(t.below[rest], best, &c)
			}
		}
	}
	if best == none {
		return t.fallback, t.fallback != nil
	}
	return t.routes[best], true
}

// Needs tells whether a client's ClientHello decides where it goes: a route that
// asks for a name or a protocol, and may have this client, stands before the
// first that takes it anyway. If not, a client that speaks second need not wait.
func (t *Table) Needs(from netip.Addr) bool {
	c := t.client(Meta{Client: from})
	best := t.byClient(&c)
	for _, i := range t.hello {
		if i >= best {
			break
		}
		if t.holds(i, &c) {
			return true
		}
	}
	return false
}

func (t *Table) client(m Meta) client {
	c := client{alpn: m.ALPN}
	if m.Client.IsValid() {
		c.origin, _ = t.from.Lookup(spec.Plain(m.Client))
	}
	return c
}

// byClient is the first match among the routes that ask for no name.
func (t *Table) byClient(c *client) int32 {
	best := t.first(c.nameless, t.any, c)
	for _, proto := range c.alpn {
		best = t.first(t.alpn[proto], best, c)
	}
	return best
}

// first is the first route of a pile that matches, if it is before best.
func (t *Table) first(at []int32, best int32, c *client) int32 {
	for _, i := range at {
		if i >= best {
			break
		}
		if t.holds(i, c) && t.speaks(i, c) {
			return i
		}
	}
	return best
}

// holds tells whether the client may be from where it is.
func (t *Table) holds(i int32, c *client) bool {
	if len(t.routes[i].From) == 0 {
		return true
	}
	_, ok := slices.BinarySearch(c.all, i)
	return ok
}

// speaks tells whether the client offers what the route asks for.
func (t *Table) speaks(i int32, c *client) bool {
	wanted := t.routes[i].ALPN
	return len(wanted) == 0 || slices.ContainsFunc(c.alpn, func(proto string) bool { return slices.Contains(wanted, proto) })
}
