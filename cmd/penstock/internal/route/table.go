// Package route decides which group serves a client. A [Table] is built from the routes of
// one listener and never changes; lookups take no lock and allocate nothing.
package route

import (
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/gaissmai/bart"

	"github.com/penstock/penstock/cmd/penstock/internal/firstbytes"
	"github.com/penstock/penstock/cmd/penstock/internal/lists"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Meta is what is known about a client when it is routed.
type Meta struct {
	Client netip.Addr // zero: it has none (a Unix socket), and matches no prefix
	SNI    string     // lower-case, without a trailing dot; empty: none was sent
	ALPN   []string   // the protocols that the client offers
	// Protocol is the one that ALPN chooses, or has chosen, where TLS is terminated; empty: none. It is what a
	// condition on protocols means, but for routes that pass TLS: for those it is what the client offers.
	Protocol string
	// Secured says that the client's TLS was terminated: routes that pass TLS do not match, and Names reports
	// whether one of the client's names, which its certificate has, fits one of the patterns of a route. Before
	// that, a condition on these names counts as met.
	Secured bool
	Names   func(patterns []string) bool // nil: it has none
	First   *firstbytes.Seen             // nil: its first bytes were not looked at, and no condition on them holds
	Halting bool                         // its ClientHello is not complete, and may still become so
}

// A Table finds the first route, in the file's order, whose conditions all hold.
//
// Each route is indexed by one of its conditions only: by its server names if it has any, or else
// by its hosts, or else by its prefixes, or else by its protocols. So a client has few candidates, whose other
// conditions are then checked. The lists hold indexes of routes in the file's order.
type Table struct {
	routes        []*spec.Route
	byName        nameIndex
	byHost        nameIndex
	bySource      sourceTable
	byALPN        map[string][]int32
	unconditional int32   // the first route without a condition; routes after it are never reached
	needHello     []int32 // routes with names or protocols
	byIdentity    []int32 // routes with a condition on the names of clients, and no other one

	first     []firstbytes.Conditions // of each route; nil: no route has any
	byFirst   []int32                 // routes with conditions on first bytes, and none by which they could be looked up
	needFirst [numKinds][]int32       // routes with conditions on first bytes, by what they wait for
	silences  []time.Duration         // of the routes, each once, the shortest first

	byList []int32 // routes with lists in from, and without server names and hosts
	all    *lists.Table
	lists  map[int32][]*lists.List // of from, by route; nil: no route has any

	defaultRoute *spec.Route
	secured      *Table // for clients whose TLS is terminated; nil: there are none
	terminates   bool   // TLS is terminated, but for routes that pass it
	identities   bool   // it is the table of those
}

// sourceRoutes lists the routes that may match the clients of a prefix.
type sourceRoutes struct {
	all        []int32
	withoutSNI []int32 // those of them without server names and hosts
}

// client is what is looked up for a Meta, once.
type client struct {
	sourceRoutes
	address  netip.Addr // canonical
	alpn     []string
	protocol string
	names    func(patterns []string) bool
	first    *firstbytes.Seen
	halting  bool
}

// What conditions on first bytes wait for.
const (
	kindProtocol = iota
	kindPrefix
	kindHost
	kindSilence
	numKinds
)

// nameIndex lists the routes of names.
type nameIndex struct {
	exact           map[string][]int32
	wildcards       map[string][]int32 // by what follows "*."
	longestWildcard int                // of the keys of wildcards, in bytes
}

func newNameIndex() nameIndex {
	return nameIndex{exact: map[string][]int32{}, wildcards: map[string][]int32{}}
}

func (x *nameIndex) add(name string, i int32) {
	if base, ok := strings.CutPrefix(name, "*."); ok {
		x.wildcards[base] = appendOnce(x.wildcards[base], i)
		x.longestWildcard = max(x.longestWildcard, len(base))
	} else {
		x.exact[name] = appendOnce(x.exact[name], i)
	}
}

// sourceTable is a bart.Table. Its generic code would be compiled in every package that knows of a Table, if that said so.
type sourceTable interface {
	Insert(netip.Prefix, sourceRoutes)
	Modify(netip.Prefix, func(sourceRoutes, bool) (sourceRoutes, bool))
	All() iter.Seq2[netip.Prefix, sourceRoutes]
	Supernets(netip.Prefix) iter.Seq2[netip.Prefix, sourceRoutes]
	Lookup(netip.Addr) (sourceRoutes, bool)
}

// noRoute is greater than any route's index.
const noRoute = int32(1<<31 - 1)

// New returns the table of a listener, which must not change afterwards, and whose lists are in all.
func New(l *spec.Listener, all *lists.Table) *Table {
	t := newTable(l.Routes, l.Default, false, all)
	if t.terminates = l.TLS != nil; t.terminates {
		terminated := slices.DeleteFunc(slices.Clone(l.Routes), func(r *spec.Route) bool { return r.PassTLS })
		t.secured = newTable(terminated, l.Default, true, all)
		t.secured.terminates = true
	}
	return t
}

func newTable(routes []*spec.Route, def *spec.Route, identities bool, all *lists.Table) *Table {
	t := &Table{
		routes: routes,
		byName: newNameIndex(), byHost: newNameIndex(), bySource: new(bart.Table[sourceRoutes]), byALPN: map[string][]int32{},
		unconditional: noRoute, defaultRoute: def, identities: identities, all: all,
	}
	if slices.ContainsFunc(routes, func(r *spec.Route) bool { return r.AsksFirst() || r.NeedsHost() }) || def != nil && def.NeedsHost() {
		t.first = make([]firstbytes.Conditions, len(routes))
	}
	for i, r := range routes {
		t.add(int32(i), r)
		t.addLists(int32(i), r, all)
	}
	slices.Sort(t.silences)
	t.silences = slices.Compact(t.silences)
	t.mergeSupernets()
	return t
}

func (t *Table) add(i int32, r *spec.Route) {
	if len(r.SNI) > 0 || len(r.ALPN) > 0 {
		t.needHello = append(t.needHello, i)
	}
	for _, p := range r.From {
		if p.List != "" {
			continue
		}
		t.bySource.Modify(spec.CanonicalPrefix(p.Prefix), func(o sourceRoutes, _ bool) (sourceRoutes, bool) {
			o.all = appendOnce(o.all, i)
			if len(r.SNI)+len(r.Hosts) == 0 {
				o.withoutSNI = appendOnce(o.withoutSNI, i)
			}
			return o, false
		})
	}
	if r.AsksFirst() {
		t.addFirst(i, r)
	}
	for _, name := range r.SNI {
		t.byName.add(name, i)
	}
	if len(r.SNI) == 0 {
		for _, name := range r.Hosts {
			t.byHost.add(name, i)
		}
	}
	if len(r.SNI)+len(r.Hosts)+len(r.From) > 0 {
		return
	}
	for _, proto := range r.ALPN {
		t.byALPN[proto] = appendOnce(t.byALPN[proto], i)
	}
	switch {
	case len(r.ALPN) > 0:
	case r.AsksFirst():
		t.byFirst = append(t.byFirst, i)
	case t.identities && len(r.ClientNames) > 0:
		t.byIdentity = append(t.byIdentity, i)
	default:
		t.unconditional = min(t.unconditional, i)
	}
}

// addFirst adds a route's conditions on first bytes.
func (t *Table) addFirst(i int32, r *spec.Route) {
	t.first[i] = firstbytes.Conditions{Protocols: firstbytes.SetOf(r.Protocols), Prefixes: r.Prefixes, Host: len(r.Hosts) > 0, Silence: r.Silence}
	for kind, has := range [numKinds]bool{kindProtocol: len(r.Protocols) > 0, kindPrefix: len(r.Prefixes) > 0, kindHost: len(r.Hosts) > 0, kindSilence: r.Silence > 0} {
		if has {
			t.needFirst[kind] = append(t.needFirst[kind], i)
		}
	}
	if r.Silence > 0 {
		t.silences = append(t.silences, r.Silence)
	}
}

// Silences returns how long clients send nothing that have routes for that, each once, the shortest first.
func (t *Table) Silences() []time.Duration { return t.silences }

// appendOnce appends i unless it is the last element.
func appendOnce(at []int32, i int32) []int32 {
	if n := len(at); n > 0 && at[n-1] == i {
		return at
	}
	return append(at, i)
}

// mergeSupernets adds the routes of the enclosing prefixes to each prefix, so that the longest
// match has all of them.
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

// Take returns what Find returns, for a client that is routed now: if a list has chosen its route, the client is counted there.
func (t *Table) Take(m Meta) (*spec.Route, bool) { return t.find(m, true) }

// Find returns the first route that matches, or the listener's default. It returns false if there
// is neither.
func (t *Table) Find(m Meta) (*spec.Route, bool) { return t.find(m, false) }

func (t *Table) find(m Meta, count bool) (*spec.Route, bool) {
	if m.Secured && t.secured != nil {
		t = t.secured
	}
	c := t.client(m)
	best := t.best(m, &c)
	if best == noRoute {
		return t.defaultRoute, t.defaultRoute != nil
	}
	if count {
		t.countHit(best, &c)
	}
	return t.routes[best], true
}

// best returns the first route that matches, or noRoute.
func (t *Table) best(m Meta, c *client) int32 {
	best := t.firstMatch(t.byIdentity, t.byClient(c), c)
	best = t.named(&t.byName, m.SNI, best, c)
	return t.named(&t.byHost, m.First.Host(), best, c)
}

// named returns the first match before best among the routes of a name, or best.
func (t *Table) named(x *nameIndex, name string, best int32, c *client) int32 {
	if name == "" {
		return best
	}
	best = t.firstMatch(x.exact[name], best, c)
	for rest := name; len(x.wildcards) > 0; {
		i := strings.IndexByte(rest, '.')
		if i < 0 {
			break
		}
		if rest = rest[i+1:]; len(rest) <= x.longestWildcard {
			best = t.firstMatch(x.wildcards[rest], best, c)
		}
	}
	return best
}

// TakesFrom reports whether a route of the listener, by its index, takes clients with an address, whatever they send; -1 is the
// default, which takes all.
func (t *Table) TakesFrom(i int, from netip.Addr) bool {
	if i < 0 {
		return true
	}
	c := t.client(Meta{Client: from})
	return t.sourceMatches(int32(i), &c)
}

// Needs reports whether the route or the member of a client depends on its first bytes: whether a
// route with conditions on them that may match the client comes before the first that matches
// anyway, or the route or a group there hashes the server name. If not, the daemon need not wait for
// them.
func (t *Table) Needs(from netip.Addr) bool {
	m := Meta{Client: from, Halting: true}
	if t.first != nil {
		m.First = firstbytes.New()
	}
	return t.Pending(m)
}

// Pending reports whether the client's next bytes may change what Find returns. A route for clients that send nothing is certain as soon
// as it matches.
func (t *Table) Pending(m Meta) bool {
	if m.Secured && t.secured != nil {
		t = t.secured
	}
	c := t.client(m)
	best := t.best(m, &c)
	r := t.defaultRoute
	if best != noRoute {
		if r = t.routes[best]; r.Silence > 0 {
			return false
		}
	}
	if m.Halting && (r != nil && r.NeedsSNI() || t.mayMatch(t.needHello, best, &c)) {
		return true
	}
	if t.first == nil {
		return false
	}
	protocol, host := m.First.Pending()
	if host && r != nil && r.NeedsHost() {
		return true
	}
	return protocol && t.mayMatch(t.needFirst[kindProtocol], best, &c) || host && t.mayMatch(t.needFirst[kindHost], best, &c) ||
		t.mayMatch(t.needFirst[kindPrefix], best, &c) || t.mayMatch(t.needFirst[kindSilence], best, &c)
}

// mayMatch reports whether a route of a list before best may match once more of the client's bytes are known.
func (t *Table) mayMatch(at []int32, best int32, c *client) bool {
	for _, i := range at {
		if i >= best {
			break
		}
		if t.sourceMatches(i, c) && (t.first == nil || t.mayBegin(i, c)) && (c.halting || t.routes[i].SNI == nil && t.alpnMatches(i, c)) {
			return true
		}
	}
	return false
}

// mayBegin reports whether the first bytes may be those of a route, among them the host that is known.
func (t *Table) mayBegin(i int32, c *client) bool {
	if c.first.Holds(&t.first[i]) == firstbytes.No {
		return false
	}
	r, host := t.routes[i], c.first.Host()
	return len(r.Hosts) == 0 || host == "" || slices.ContainsFunc(r.Hosts, func(pattern string) bool { return nameMatches(pattern, host) })
}

func (t *Table) client(m Meta) client {
	c := client{alpn: m.ALPN, protocol: m.Protocol, names: m.Names, first: m.First, halting: m.Halting}
	if m.Client.IsValid() {
		c.address = spec.CanonicalAddr(m.Client)
		c.sourceRoutes, _ = t.bySource.Lookup(c.address)
	}
	return c
}

// byClient returns the first match among the routes without server names.
func (t *Table) byClient(c *client) int32 {
	best := t.firstMatch(c.withoutSNI, t.unconditional, c)
	best = t.firstMatch(t.byList, best, c)
	if len(t.byFirst) > 0 {
		best = t.firstMatch(t.byFirst, best, c)
	}
	for _, proto := range c.alpn {
		best = t.firstMatch(t.byALPN[proto], best, c)
	}
	if c.protocol != "" {
		best = t.firstMatch(t.byALPN[c.protocol], best, c)
	}
	return best
}

// firstMatch returns the first route of a list that matches and is before best, or best.
func (t *Table) firstMatch(at []int32, best int32, c *client) int32 {
	for _, i := range at {
		if i >= best {
			break
		}
		if t.sourceMatches(i, c) && t.alpnMatches(i, c) && t.namesMatch(i, c) && t.beginMatches(i, c) {
			return i
		}
	}
	return best
}

// sourceMatches reports whether the route's prefixes contain the client.
func (t *Table) sourceMatches(i int32, c *client) bool {
	if len(t.routes[i].From) == 0 {
		return true
	}
	_, ok := slices.BinarySearch(c.all, i)
	return ok || t.inLists(i, c) != nil
}

// alpnMatches reports whether the client's protocol is one of the route's, or one of those that it offers.
func (t *Table) alpnMatches(i int32, c *client) bool {
	r := t.routes[i]
	switch {
	case len(r.ALPN) == 0:
		return true
	case t.byAgreement(r):
		return slices.Contains(r.ALPN, c.protocol)
	}
	return slices.ContainsFunc(c.alpn, func(proto string) bool { return slices.Contains(r.ALPN, proto) })
}

// byAgreement reports whether the protocols of a route are those that ALPN has chosen, and not those that a client offers.
func (t *Table) byAgreement(r *spec.Route) bool { return t.terminates && !r.PassTLS }

// beginMatches reports whether the client's first bytes are certainly those of the route, and its host, if the route was not found by it.
func (t *Table) beginMatches(i int32, c *client) bool {
	if t.first == nil || t.first[i].Empty() {
		return true
	}
	return c.first.Holds(&t.first[i]) == firstbytes.Yes
}

// namesMatch reports whether the names of the client's certificate are those of the route.
func (t *Table) namesMatch(i int32, c *client) bool {
	wanted := t.routes[i].ClientNames
	return !t.identities || len(wanted) == 0 || c.names != nil && c.names(wanted)
}
