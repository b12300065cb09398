package route

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

func prefixes(list ...string) (ps []spec.Network) {
	for _, s := range list {
		ps = append(ps, spec.Network{Prefix: netip.MustParsePrefix(s)})
	}
	return ps
}

// listener has a route of each kind, and each answer depends on the order.
func listener() *spec.Listener {
	return &spec.Listener{
		Routes: []*spec.Route{
			{Name: "office-admin", From: prefixes("10.0.0.0/8", "2001:db8::/32"), SNI: []string{"admin.example.org"}},
			{Name: "admin-refused", SNI: []string{"admin.example.org"}, ALPN: []string{"acme-tls/1"}},
			{Name: "www", SNI: []string{"www.example.org", "example.org"}},
			{Name: "deep", SNI: []string{"*.deep.example.org"}},
			{Name: "any", SNI: []string{"*.example.org"}},
			{Name: "lab", From: prefixes("192.0.2.0/24")},
			{Name: "lab-host", From: prefixes("192.0.2.7/32")},
			{Name: "mapped", From: prefixes("::ffff:198.51.100.0/120")},
			{Name: "h2", ALPN: []string{"h2", "h3"}},
		},
		Default: &spec.Route{Name: "default"},
	}
}

func TestFind(t *testing.T) {
	table := New(listener(), nil)
	for _, c := range []struct {
		client, sni, alpn, want string
	}{
		{"10.1.2.3", "admin.example.org", "", "office-admin"},
		{"::ffff:10.1.2.3", "admin.example.org", "", "office-admin"},
		{"2001:db8::1%eth0", "admin.example.org", "", "office-admin"},
		{"203.0.113.1", "admin.example.org", "http/1.1 acme-tls/1", "admin-refused"},
		{"203.0.113.1", "admin.example.org", "", "any"},
		{"203.0.113.1", "www.example.org", "h2", "www"},
		{"203.0.113.1", "example.org", "", "www"},
		{"203.0.113.1", "a.b.deep.example.org", "", "deep"},
		{"203.0.113.1", "deep.example.org", "", "any"},
		{"203.0.113.1", "notexample.org", "", "default"},
		{"203.0.113.1", "org", "", "default"},
		{"192.0.2.7", "", "h2", "lab"},
		{"192.0.2.7", "x.example.org", "", "any"},
		{"198.51.100.9", "", "", "mapped"},
		{"203.0.113.1", "", "spdy h3", "h2"},
		{"203.0.113.1", "", "", "default"},
		{"", "", "", "default"},
		{"", "admin.example.org", "", "any"},
	} {
		m := Meta{SNI: c.sni, ALPN: strings.Fields(c.alpn)}
		if c.client != "" {
			m.Client = netip.MustParseAddr(c.client)
		}
		r, ok := table.Find(m)
		if !ok || r.Name != c.want {
			t.Errorf("%+v: %v, want %s", m, r, c.want)
		}
		if e := table.Explain(m); e.Route != r {
			t.Errorf("%+v: explained as %+v, found %v", m, e, r)
		}
	}
	l := listener()
	l.Default = nil
	if r, ok := New(l, nil).Find(Meta{}); ok || r != nil {
		t.Errorf("no route and no default: %v", r)
	}
}

// A client whose way is clear without its ClientHello is not asked for one.
func TestNeeds(t *testing.T) {
	for _, c := range []struct {
		client string
		routes []*spec.Route
		want   bool
	}{
		{"10.0.0.1", nil, false},
		{"10.0.0.1", []*spec.Route{{From: prefixes("10.0.0.0/8")}, {SNI: []string{"a"}}}, false},
		{"11.0.0.1", []*spec.Route{{From: prefixes("10.0.0.0/8")}, {SNI: []string{"a"}}}, true},
		{"10.0.0.1", []*spec.Route{{SNI: []string{"a"}}, {From: prefixes("10.0.0.0/8")}}, true},
		{"10.0.0.1", []*spec.Route{{SNI: []string{"a"}, From: prefixes("11.0.0.0/8")}}, false},
		{"10.0.0.1", []*spec.Route{{ALPN: []string{"h2"}}}, true},
		{"10.0.0.1", []*spec.Route{{}, {ALPN: []string{"h2"}}}, false},
		{"10.0.0.1", []*spec.Route{{From: prefixes("10.0.0.0/8"), ALPN: []string{"h2"}}, {From: prefixes("10.0.0.0/8")}}, true},
	} {
		if got := New(&spec.Listener{Routes: c.routes}, nil).Needs(netip.MustParseAddr(c.client)); got != c.want {
			t.Errorf("%s in %+v: %v", c.client, c.routes, got)
		}
	}
}

// Where TLS is terminated, a condition on protocols is one on what is agreed on; where it passes, on what is offered.
func TestAgreedProtocol(t *testing.T) {
	l := &spec.Listener{TLS: &spec.ServerTLS{}, Routes: []*spec.Route{
		{Name: "h2", ALPN: []string{"h2", "h3"}},
		{Name: "challenge", ALPN: []string{"acme-tls/1"}, PassTLS: true},
		{Name: "old", ALPN: []string{"http/1.1"}, From: prefixes("10.0.0.0/8")},
		{Name: "named", ALPN: []string{"http/1.1"}, SNI: []string{"a.example.org"}},
	}, Default: &spec.Route{Name: "default"}}
	table := New(l, nil)
	for _, c := range []struct {
		offers, agreed, client, sni string
		before, after               string // the handshake
	}{
		{"h2 http/1.1", "h2", "", "", "h2", "h2"},
		{"h2 http/1.1", "http/1.1", "", "", "default", "default"},
		{"h2 http/1.1", "http/1.1", "10.0.0.1", "", "old", "old"},
		{"h2 http/1.1", "http/1.1", "", "a.example.org", "named", "named"},
		{"h2 http/1.1", "", "", "a.example.org", "default", "default"},
		{"h2 acme-tls/1", "", "", "", "challenge", "default"},
		{"h2 acme-tls/1", "h2", "", "", "h2", "h2"},
		{"", "", "", "", "default", "default"},
	} {
		m := Meta{SNI: c.sni, ALPN: strings.Fields(c.offers), Protocol: c.agreed}
		if c.client != "" {
			m.Client = netip.MustParseAddr(c.client)
		}
		for _, want := range []string{c.before, c.after} {
			if r, ok := table.Find(m); !ok || r.Name != want {
				t.Errorf("%+v: %v, want %s", m, r, want)
			}
			m.Secured = true
		}
	}
}

// naive is what the documentation says.
func naive(l *spec.Listener, m Meta) *spec.Route {
	m.Client = spec.CanonicalAddr(m.Client)
	t := &Table{terminates: l.TLS != nil}
	for _, r := range l.Routes {
		if _, ok := t.matches(r, m); ok {
			return r
		}
	}
	return l.Default
}

// draw makes routes and clients from few labels, addresses and protocols, so that
// much overlaps.
type draw struct{ next func(n int) int }

func (d draw) name() string {
	labels := make([]string, 1+d.next(4))
	for i := range labels {
		labels[i] = string(rune('a' + d.next(3)))
	}
	return strings.Join(labels, ".")
}

func (d draw) addr() netip.Addr {
	switch d.next(8) {
	case 0:
		return netip.Addr{}
	case 1:
		return netip.AddrFrom16([16]byte{0: 0x20, 1: byte(d.next(3)), 15: byte(d.next(4))})
	case 2:
		return netip.AddrFrom16([16]byte{10: 0xff, 11: 0xff, 12: 10, 13: byte(d.next(3)), 15: byte(d.next(4))})
	}
	return netip.AddrFrom4([4]byte{10, byte(d.next(3)), 0, byte(d.next(4))})
}

func (d draw) proto() string { return []string{"h2", "http/1.1", "x"}[d.next(3)] }

func (d draw) meta() Meta {
	m := Meta{Client: d.addr()}
	if d.next(4) > 0 {
		m.SNI = d.name()
	}
	for range d.next(3) {
		m.ALPN = append(m.ALPN, d.proto())
	}
	if len(m.ALPN) > 0 && d.next(3) > 0 {
		m.Protocol = m.ALPN[d.next(len(m.ALPN))]
	}
	if m.Secured = d.next(3) == 0; m.Secured && d.next(4) > 0 {
		own := d.name()
		m.Names = func(patterns []string) bool { return slices.Contains(patterns, own) }
	}
	return m
}

func (d draw) route(i int) *spec.Route {
	r := &spec.Route{Name: fmt.Sprint("r", i)}
	if d.next(2) == 0 {
		for range 1 + d.next(3) {
			wild := []string{"", "*."}[d.next(2)]
			r.SNI = append(r.SNI, wild+d.name())
		}
	}
	if d.next(2) == 0 {
		for range 1 + d.next(3) {
			if a := d.addr(); a.IsValid() {
				r.From = append(r.From, spec.Network{Prefix: netip.PrefixFrom(a, a.BitLen()-d.next(a.BitLen()+1))})
			}
		}
	}
	if d.next(3) == 0 {
		for range 1 + d.next(2) {
			r.ALPN = append(r.ALPN, d.proto())
		}
	}
	switch d.next(4) {
	case 0:
		r.PassTLS = true
	case 1:
		for range 1 + d.next(4) {
			r.ClientNames = append(r.ClientNames, d.name())
		}
	}
	return r
}

func (d draw) listener(routes int) *spec.Listener {
	l := &spec.Listener{TLS: &spec.ServerTLS{}}
	for i := range routes {
		l.Routes = append(l.Routes, d.route(i))
	}
	if d.next(2) == 0 {
		l.Default = &spec.Route{Name: "default"}
	}
	return l
}

// check compares a table with the naive loop.
func check(t *testing.T, l *spec.Listener, table *Table, m Meta) {
	t.Helper()
	want := naive(l, m)
	got, ok := table.Find(m)
	if got != want || ok != (want != nil) {
		t.Fatalf("%+v: found %+v, want %+v", m, got, want)
	}
	e := table.Explain(m)
	if e.Route != want || e.Outcome == "" || len(e.Steps) > MaxSteps+1 {
		t.Fatalf("%+v: explained as %+v, want %+v", m, e, want)
	}
	// Without its hello a client goes elsewhere only if the hello is needed.
	blind := naive(l, Meta{Client: m.Client, Secured: m.Secured, Names: m.Names})
	if blind != want && !m.Secured && !table.Needs(m.Client) {
		t.Fatalf("%+v: goes to %v, without its hello to %v, and that is not needed", m, want, blind)
	}
}

func TestFindIsTheNaiveLoop(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	d := draw{rnd.IntN}
	for range 100 {
		l := d.listener(rnd.IntN(40))
		table := New(l, nil)
		for range 100 {
			check(t, l, table, d.meta())
		}
	}
}

func FuzzFind(f *testing.F) {
	f.Add([]byte{}, "a.example.org", []byte{10, 0, 0, 1}, "h2")
	f.Add([]byte("\x09\x00\x01\x00\x00\x05\x06\x07"), ".", []byte{}, "")
	f.Fuzz(func(t *testing.T, routes []byte, sni string, client []byte, alpn string) {
		d := draw{func(n int) int {
			if len(routes) == 0 {
				return 0
			}
			i := int(routes[0])
			routes = routes[1:]
			return i % n
		}}
		l := d.listener(d.next(12))
		// What the client says stands in some route, too.
		for i, r := range l.Routes {
			switch i % 4 {
			case 1:
				r.SNI = append(r.SNI, sni)
			case 2:
				r.SNI = append(r.SNI, "*."+sni)
			}
		}
		m := Meta{SNI: sni, ALPN: []string{alpn}, Protocol: []string{"", alpn}[d.next(2)]}
		m.Client, _ = netip.AddrFromSlice(client)
		table := New(l, nil)
		check(t, l, table, m)
		m.SNI = "x." + sni
		check(t, l, table, m)
	})
}

// An explanation is bounded, and its last steps are there.
func TestExplainIsBounded(t *testing.T) {
	l := &spec.Listener{}
	for i := range 1000 {
		l.Routes = append(l.Routes, &spec.Route{Name: fmt.Sprint("r", i), SNI: []string{fmt.Sprintf("n%d.example.org", i)}})
	}
	e := New(l, nil).Explain(Meta{SNI: "n900.example.org"})
	if len(e.Steps) != MaxSteps || e.LeftOut != 901-MaxSteps || e.Route.Name != "r900" {
		t.Fatalf("%d steps, %d left out, %+v", len(e.Steps), e.LeftOut, e.Route)
	}
	if first, last := e.Steps[0], e.Steps[MaxSteps-1]; first.Route.Name != "r0" || last.Route.Name != "r900" || !last.Matched {
		t.Fatalf("from %+v to %+v", first, last)
	}
}

// What explain says is part of the interface.
func TestExplainWords(t *testing.T) {
	l := listener()
	l.Routes[2].SNI = []string{"a.test", "b.test", "c.test", "d.test", "e.test"}
	e := New(l, nil).Explain(Meta{Client: netip.MustParseAddr("192.0.2.7"), SNI: "admin.test", ALPN: []string{"http/1.1"}})
	var got []string
	for _, s := range e.Steps {
		got = append(got, fmt.Sprintf("%s %v: %s", s.Route.Name, s.Matched, s.Why))
	}
	want := []string{
		`office-admin false: 192.0.2.7 is not in 10.0.0.0/8, 2001:db8::/32`,
		`admin-refused false: "admin.test" is not admin.example.org`,
		`www false: "admin.test" is not a.test, b.test, c.test or 2 others`,
		`deep false: "admin.test" is not *.deep.example.org`,
		`any false: "admin.test" is not *.example.org`,
		`lab true: 192.0.2.7 is in 192.0.2.0/24`,
	}
	if !slices.Equal(got, want) || e.Outcome != "route lab is the first that matches" {
		t.Errorf("%s: got\n%s\nwant\n%s", e.Outcome, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// shapes are listeners of 1,000 routes, and a client whose route is far behind.
func shapes() map[string]func() (*spec.Listener, Meta) {
	const n = 1000
	each := func(m Meta, make func(i int) *spec.Route) func() (*spec.Listener, Meta) {
		return func() (*spec.Listener, Meta) {
			l := &spec.Listener{}
			for i := range n {
				l.Routes = append(l.Routes, make(i))
			}
			return l, m
		}
	}
	net24 := func(i int) []spec.Network {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], 10<<24|uint32(i)<<8)
		return []spec.Network{{Prefix: netip.PrefixFrom(netip.AddrFrom4(b), 24)}}
	}
	client := netip.MustParseAddr("10.3.231.9") // in the last /24
	m := Meta{Client: client, SNI: "www.n999.example.org", ALPN: []string{"h2", "http/1.1"}}
	return map[string]func() (*spec.Listener, Meta){
		"names":     each(m, func(i int) *spec.Route { return &spec.Route{SNI: []string{fmt.Sprintf("www.n%d.example.org", i)}} }),
		"wildcards": each(m, func(i int) *spec.Route { return &spec.Route{SNI: []string{fmt.Sprintf("*.n%d.example.org", i)}} }),
		"prefixes":  each(m, func(i int) *spec.Route { return &spec.Route{From: net24(i)} }),
		"one-name":  each(m, func(i int) *spec.Route { return &spec.Route{SNI: []string{m.SNI}, From: net24(i)} }),
		"mixed": each(m, func(i int) *spec.Route {
			switch i % 3 {
			case 0:
				return &spec.Route{SNI: []string{fmt.Sprintf("*.n%d.example.org", i)}}
			case 1:
				return &spec.Route{SNI: []string{fmt.Sprintf("n%d.example.org", i)}, ALPN: []string{"h2"}}
			}
			return &spec.Route{From: net24(i)}
		}),
	}
}

func TestFindDoesNotAllocate(t *testing.T) {
	for name, make := range shapes() {
		l, m := make()
		table := New(l, nil)
		if want := l.Routes[999]; naive(l, m) != want {
			t.Fatalf("%s: the client is not at the last route", name)
		}
		if n := testing.AllocsPerRun(100, func() { table.Find(m); table.Needs(m.Client) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkFind(b *testing.B) {
	for name, make := range shapes() {
		l, m := make()
		for _, impl := range []string{"table", "naive"} {
			b.Run("routes=1000/shape="+name+"/impl="+impl, func(b *testing.B) {
				table := New(l, nil)
				b.ReportAllocs()
				for b.Loop() {
					if impl == "table" {
						table.Find(m)
					} else {
						naiveFast(l, m)
					}
				}
			})
		}
	}
}

// naiveFast is the loop without the words of ask.
func naiveFast(l *spec.Listener, m Meta) *spec.Route {
	for _, r := range l.Routes {
		if (len(r.From) == 0 || slices.ContainsFunc(r.From, func(p spec.Network) bool { return p.Contains(m.Client) })) &&
			(len(r.SNI) == 0 || slices.ContainsFunc(r.SNI, func(s string) bool { return nameMatches(s, m.SNI) })) &&
			(len(r.ALPN) == 0 || slices.ContainsFunc(m.ALPN, func(s string) bool { return slices.Contains(r.ALPN, s) })) {
			return r
		}
	}
	return nil
}
