package admit

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

func prefixes(list ...string) (ps []spec.Network) {
	for _, s := range list {
		ps = append(ps, spec.Network{Prefix: netip.MustParsePrefix(s)})
	}
	return ps
}

func ip(s string) netip.Addr {
	if s == "" {
		return netip.Addr{}
	}
	return netip.MustParseAddr(s)
}

// gates makes a gate with bounds of its own, and of all.
func gate(total spec.Limits, l spec.Listener) (*Total, *Controller) {
	t := NewTotal(total, nil)
	return t, NewController(t, &l, nil, nil)
}

// enter wants one answer, and gives the ticket.
func enter(t *testing.T, g *Controller, peer string, now time.Time, want spec.Reason) Admission {
	t.Helper()
	ticket, why := g.Admit(ip(peer), now)
	if why != want || why != spec.ReasonNone && ticket != (Admission{}) {
		t.Fatalf("%q: %q, %+v, want %q", peer, why, ticket, want)
	}
	return ticket
}

// empty wants every gauge at zero.
func empty(t *testing.T, total *Total, g *Controller) {
	t.Helper()
	if total.Flows() != 0 || g.Flows() != 0 || g.Sources() != 0 {
		t.Errorf("%d flows in all, %d of the listener, %d sources", total.Flows(), g.Flows(), g.Sources())
	}
}

func TestAllows(t *testing.T) {
	for _, c := range []struct {
		allow, deny []spec.Network
		yes, no     []string
	}{
		{nil, nil, []string{"192.0.2.1", "2001:db8::1", ""}, nil},
		{prefixes("10.0.0.0/8"), nil, []string{"10.1.2.3", "::ffff:10.1.2.3"}, []string{"11.0.0.1", "2001:db8::1", ""}},
		{nil, prefixes("10.0.0.0/8", "2001:db8::/32"), []string{"11.0.0.1", "2001:db9::1", ""}, []string{"10.1.2.3", "::ffff:10.1.2.3", "2001:db8::1%eth0"}},
		{prefixes("10.0.0.0/8"), prefixes("10.1.0.0/16"), []string{"10.2.0.1"}, []string{"10.1.0.1", "192.0.2.1"}},
		{prefixes("10.1.2.3/32"), prefixes("10.0.0.0/8"), nil, []string{"10.1.2.3"}}, // deny wins, also over what is longer
		{prefixes("::ffff:10.0.0.0/104"), prefixes("::/0"), []string{"10.1.2.3"}, []string{"::1"}},
		{prefixes("0.0.0.0/0"), nil, []string{"10.1.2.3"}, []string{"2001:db8::1", ""}},
	} {
		_, g := gate(spec.Limits{}, spec.Listener{Allow: c.allow, Deny: c.deny})
		for _, a := range c.yes {
			if !g.Allows(ip(a)) {
				t.Errorf("allow %v, deny %v: %q is refused", c.allow, c.deny, a)
			}
		}
		for _, a := range c.no {
			if g.Allows(ip(a)) {
				t.Errorf("allow %v, deny %v: %q is let in", c.allow, c.deny, a)
			}
			enter(t, g, a, time.Now(), spec.ReasonDenied)
		}
	}
}

// The sets are what asking each prefix in turn is.
func TestAllowsIsTheNaiveLoop(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	addr := func() netip.Addr {
		if rnd.IntN(2) == 0 {
			return netip.AddrFrom4([4]byte{10, byte(rnd.IntN(4)), byte(rnd.IntN(4)), byte(rnd.Uint32())})
		}
		return netip.AddrFrom16([16]byte{0x20, byte(rnd.IntN(4)), byte(rnd.IntN(4)), 15: byte(rnd.Uint32())})
	}
	for range 200 {
		var lists [2][]spec.Network
		for i := range lists {
			for range rnd.IntN(20) {
				a := addr()
				lists[i] = append(lists[i], spec.Network{Prefix: netip.PrefixFrom(a, rnd.IntN(a.BitLen()+1))})
			}
		}
		_, g := gate(spec.Limits{}, spec.Listener{Allow: lists[0], Deny: lists[1]})
		for range 200 {
			a := addr()
			in := func(p spec.Network) bool { return p.Contains(a) }
			if want := (len(lists[0]) == 0 || slices.ContainsFunc(lists[0], in)) && !slices.ContainsFunc(lists[1], in); g.Allows(a) != want {
				t.Fatalf("allow %v, deny %v: %v", lists[0], lists[1], a)
			}
		}
	}
}

// Each bound has its reason; who leaves makes room.
func TestBounds(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		total, own spec.Limits
		want       spec.Reason
		others     spec.Reason // for a peer from elsewhere
		leaving    bool        // whether leaving helps
	}{
		"flows":          {total: spec.Limits{Flows: 3}, want: spec.ReasonFlows, others: spec.ReasonFlows, leaving: true},
		"listener flows": {own: spec.Limits{Flows: 3}, want: spec.ReasonListenerFlows, others: spec.ReasonListenerFlows, leaving: true},
		"source flows":   {own: spec.Limits{Source: spec.SourceLimits{Flows: 3}}, want: spec.ReasonSourceFlows, leaving: true},
		"rate":           {total: spec.Limits{NewFlows: 1, Burst: 3}, want: spec.ReasonRate, others: spec.ReasonRate},
		"listener rate":  {own: spec.Limits{NewFlows: 2.5}, want: spec.ReasonListenerRate, others: spec.ReasonListenerRate},
		"source rate":    {own: spec.Limits{Source: spec.SourceLimits{NewFlows: 0.5, Burst: 3}}, want: spec.ReasonSourceRate},
	} {
		t.Run(name, func(t *testing.T) {
			total, g := gate(c.total, spec.Listener{Limits: c.own})
			var tickets []Admission
			for range 3 {
				tickets = append(tickets, enter(t, g, "192.0.2.1", now, spec.ReasonNone))
			}
			enter(t, g, "192.0.2.1", now, c.want)
			enter(t, g, "::ffff:192.0.2.1", now, c.want)
			if total.Flows() != 3 || g.Flows() != 3 {
				t.Errorf("%d flows in all, %d of the listener", total.Flows(), g.Flows())
			}
			other, why := g.Admit(ip("192.0.2.2"), now)
			if why != c.others {
				t.Errorf("from elsewhere: %q, want %q", why, c.others)
			}
			other.Release()
			tickets[0].Release()
			tickets[0].Release() // nothing
			if c.leaving {
				tickets[0] = enter(t, g, "192.0.2.1", now, spec.ReasonNone)
				enter(t, g, "192.0.2.1", now, c.want)
			} else {
				enter(t, g, "192.0.2.1", now, c.want)
				later := enter(t, g, "192.0.2.1", now.Add(3*time.Second), spec.ReasonNone)
				later.Release()
			}
			for i := range tickets {
				tickets[i].Release()
			}
			if c.own.Source.NewFlows == 0 {
				empty(t, total, g)
			}
		})
	}
}

// An IPv6 source is a /64, and a peer without an address is none.
func TestSourceIsA64(t *testing.T) {
	now := time.Now()
	total, g := gate(spec.Limits{}, spec.Listener{Limits: spec.Limits{Source: spec.SourceLimits{Flows: 1}}})
	var tickets []Admission
	for _, a := range []string{"2001:db8:0:1::1", "2001:db8:0:2::1", "0.0.0.0", "::", "", ""} {
		tickets = append(tickets, enter(t, g, a, now, spec.ReasonNone))
	}
	for _, a := range []string{"2001:db8:0:1:ffff::2", "2001:db8:0:2:0:0:0:2%eth0", "::ffff:0.0.0.0", "::1"} {
		enter(t, g, a, now, spec.ReasonSourceFlows)
	}
	for i := range tickets {
		tickets[i].Release()
	}
	empty(t, total, g)
}

// One that asks for too much does not use up what all have.
func TestGreedySource(t *testing.T) {
	now := time.Now()
	_, g := gate(spec.Limits{NewFlows: 1, Burst: 10}, spec.Listener{Limits: spec.Limits{NewFlows: 1, Burst: 10, Source: spec.SourceLimits{NewFlows: 1, Burst: 1}}})
	enter(t, g, "192.0.2.1", now, spec.ReasonNone)
	for range 100 {
		enter(t, g, "192.0.2.1", now, spec.ReasonSourceRate)
	}
	for i := range 9 {
		enter(t, g, fmt.Sprintf("192.0.2.%d", 10+i), now, spec.ReasonNone)
	}
	enter(t, g, "192.0.2.99", now, spec.ReasonListenerRate)
}

// Behind a proxy the client is who the header names, not the peer.
func TestExpectsProxy(t *testing.T) {
	now := time.Now()
	total, g := gate(spec.Limits{Flows: 5}, spec.Listener{
		Deny: prefixes("10.0.0.0/8", "203.0.113.0/24"), ProxyFrom: prefixes("10.0.0.1/32"),
		Limits: spec.Limits{Source: spec.SourceLimits{Flows: 1}},
	})
	direct := enter(t, g, "192.0.2.1", now, spec.ReasonNone)
	if direct.ExpectsProxy() {
		t.Error("a direct client must begin with a header")
	}
	enter(t, g, "10.0.0.2", now, spec.ReasonDenied)

	// The proxy itself is in deny, and has more than one flow.
	tickets := []Admission{direct}
	for client, want := range map[string]spec.Reason{
		"192.0.2.1":   spec.ReasonSourceFlows,
		"192.0.2.2":   spec.ReasonNone,
		"203.0.113.9": spec.ReasonDenied,
		"":            spec.ReasonNone,
	} {
		ticket := enter(t, g, "::ffff:10.0.0.1", now, spec.ReasonNone)
		if !ticket.ExpectsProxy() {
			t.Fatal("the proxy need not begin with a header")
		}
		if why := g.Identify(&ticket, ip(client), now); why != want {
			t.Errorf("%q behind the proxy: %q, want %q", client, why, want)
		}
		tickets = append(tickets, ticket)
	}
	enter(t, g, "10.0.0.1", now, spec.ReasonFlows)
	for i := range tickets {
		tickets[i].Release()
	}
	empty(t, total, g)
	if !g.ExpectsProxy(netip.Addr{}) {
		t.Error("a peer on a Unix socket need not begin with a header")
	}
	if _, g := gate(spec.Limits{}, spec.Listener{}); g.ExpectsProxy(netip.Addr{}) || g.ExpectsProxy(ip("10.0.0.1")) {
		t.Error("a peer must begin with a header that nobody asks for")
	}
}

// A new gate counts on where the old one is, and a ticket may come back to either.
func TestReload(t *testing.T) {
	now := time.Now()
	old := spec.Limits{Flows: 10, NewFlows: 0.001, Burst: 10, Source: spec.SourceLimits{Flows: 10, NewFlows: 0.001, Burst: 10}}
	total1, g1 := gate(old, spec.Listener{Limits: old})
	var tickets []Admission
	for range 4 {
		tickets = append(tickets, enter(t, g1, "192.0.2.1", now, spec.ReasonNone))
	}

	// Stricter: six tokens are left of ten, and four of the new bucket's five.
	strict := old
	strict.Flows, strict.Burst = 5, 5
	total2 := NewTotal(strict, total1)
	g2 := NewController(total2, &spec.Listener{Limits: strict}, nil, g1)
	if total2.Flows() != 4 || g2.Flows() != 4 || g2.Sources() != 1 {
		t.Fatalf("%d flows in all, %d of the listener, %d sources", total2.Flows(), g2.Flows(), g2.Sources())
	}
	tickets = append(tickets, enter(t, g2, "192.0.2.1", now, spec.ReasonNone))
	enter(t, g2, "192.0.2.1", now, spec.ReasonListenerFlows)
	for i := range tickets[:3] {
		tickets[i].Release()
	}
	if total1.Flows() != 2 || total2.Flows() != 2 || g1.Flows() != 2 || g2.Flows() != 2 {
		t.Errorf("%d and %d flows in all, %d and %d of the listener", total1.Flows(), total2.Flows(), g1.Flows(), g2.Flows())
	}

	// The old one is as it was, for a configuration may not be taken after all.
	late := enter(t, g1, "192.0.2.2", now, spec.ReasonNone)
	late.Release()

	// A bucket that was empty is not full because the file is read again.
	drained, g := gate(spec.Limits{}, spec.Listener{Limits: spec.Limits{NewFlows: 0.001, Burst: 3}})
	for range 3 {
		enter(t, g, "192.0.2.1", now, spec.ReasonNone)
	}
	g = NewController(drained, &spec.Listener{Limits: spec.Limits{NewFlows: 0.001, Burst: 3}}, nil, g)
	enter(t, g, "192.0.2.1", now, spec.ReasonListenerRate)

	// A source that was in debt for long is helped by a milder file.
	_, g = gate(spec.Limits{}, spec.Listener{Limits: spec.Limits{Source: spec.SourceLimits{NewFlows: 1e-6}}})
	enter(t, g, "192.0.2.1", now, spec.ReasonNone)
	enter(t, g, "192.0.2.1", now.Add(time.Hour), spec.ReasonSourceRate)
	g = NewController(drained, &spec.Listener{Limits: spec.Limits{Source: spec.SourceLimits{NewFlows: 1}}}, nil, g)
	enter(t, g, "192.0.2.1", now.Add(time.Hour+2*time.Second), spec.ReasonSourceRate) // its debt is a burst now
	enter(t, g, "192.0.2.1", now.Add(time.Hour+4*time.Second), spec.ReasonNone)

	// Flows from before a bound do not count for their source, and leave well.
	total, g := gate(spec.Limits{}, spec.Listener{})
	before := enter(t, g, "192.0.2.1", now, spec.ReasonNone)
	g = NewController(total, &spec.Listener{Limits: spec.Limits{Source: spec.SourceLimits{Flows: 1}}}, nil, g)
	after := enter(t, g, "192.0.2.1", now, spec.ReasonNone)
	before.Release()
	enter(t, g, "192.0.2.1", now, spec.ReasonSourceFlows)
	after.Release()
	empty(t, total, g)
}

// However many come at once, no bound is passed, and in the end nobody is in.
func TestManyAtOnce(t *testing.T) {
	const bound, workers, rounds = 20, 16, 2000
	total, g := gate(spec.Limits{Flows: bound}, spec.Listener{Limits: spec.Limits{Flows: bound, Source: spec.SourceLimits{Flows: 3}}})
	var in, refused atomic.Int64
	var bySource [16]atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 0))
			g := g
			for i := range rounds {
				if i == rounds/2 { // a reload in between
					g = NewController(total, &spec.Listener{Limits: spec.Limits{Flows: bound, Source: spec.SourceLimits{Flows: 3}}}, nil, g)
				}
				source := rnd.IntN(len(bySource))
				ticket, why := g.Admit(netip.AddrFrom4([4]byte{192, 0, 2, byte(source)}), time.Now())
				if why != spec.ReasonNone {
					refused.Add(1)
					continue
				}
				if n := in.Add(1); n > bound {
					t.Errorf("%d flows are in", n)
				}
				if n := bySource[source].Add(1); n > 3 {
					t.Errorf("%d flows of a source are in", n)
				}
				bySource[source].Add(-1)
				in.Add(-1)
				ticket.Release()
			}
		})
	}
	wg.Wait()
	t.Logf("%d refused", refused.Load())
	empty(t, total, g)
}

// everything asks for all that there is, and refuses nobody.
func everything() spec.Listener {
	return spec.Listener{
		Allow: prefixes("0.0.0.0/0", "::/0"), Deny: prefixes("10.0.0.0/8"), ProxyFrom: prefixes("10.0.0.1/32"),
		Limits: spec.Limits{Flows: 1e6, NewFlows: 1e9, Source: spec.SourceLimits{Flows: 1e6, NewFlows: 1e9}},
	}
}

func TestControllerDoesNotAllocate(t *testing.T) {
	now := time.Now()
	_, g := gate(spec.Limits{Flows: 1e6, NewFlows: 1e9}, everything())
	for _, a := range []string{"192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1", "10.0.0.2", "10.0.0.1"} {
		peer := ip(a)
		if n := testing.AllocsPerRun(100, func() {
			ticket, _ := g.Admit(peer, now)
			if ticket.ExpectsProxy() {
				g.Identify(&ticket, netip.AddrFrom4([4]byte{192, 0, 2, 1}), now)
			}
			ticket.Release()
		}); n != 0 {
			t.Errorf("%s: %v allocations", a, n)
		}
	}
}

// BenchmarkController is a flow in and out, from as many goroutines as there are CPUs:
// each from a source of its own, or all from one.
func BenchmarkController(b *testing.B) {
	for _, c := range []struct {
		name   string
		limits spec.Limits
	}{
		{"none", spec.Limits{}},
		{"flows", spec.Limits{Flows: 1e6}},
		{"rate", spec.Limits{NewFlows: 1e9}},
		{"source", spec.Limits{Source: spec.SourceLimits{Flows: 1e6, NewFlows: 1e9}}},
		{"all", everything().Limits},
	} {
		for _, sources := range []string{"one", "own"} {
			b.Run("limits="+c.name+"/sources="+sources, func(b *testing.B) {
				all := c.limits
				all.Source = spec.SourceLimits{}
				_, g := gate(all, spec.Listener{Limits: c.limits})
				var workers atomic.Uint32
				now := time.Now()
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					peer := [4]byte{192, 0, 2, 1}
					if sources == "own" {
						binary.BigEndian.PutUint32(peer[:], workers.Add(1))
					}
					for pb.Next() {
						ticket, _ := g.Admit(netip.AddrFrom4(peer), now)
						ticket.Release()
					}
				})
			})
		}
	}
}

func BenchmarkAllows(b *testing.B) {
	for _, n := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprintf("prefixes=%d", n), func(b *testing.B) {
			rnd := rand.New(rand.NewPCG(1, 0))
			addr := func() netip.Addr {
				var a [4]byte
				binary.BigEndian.PutUint32(a[:], rnd.Uint32())
				return netip.AddrFrom4(a)
			}
			var l spec.Listener
			for range n {
				l.Deny = append(l.Deny, spec.Network{Prefix: netip.PrefixFrom(addr(), 16+rnd.IntN(17))})
			}
			_, g := gate(spec.Limits{}, l)
			peers := make([]netip.Addr, 1<<12)
			for i := range peers {
				peers[i] = addr()
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				g.Allows(peers[i%len(peers)])
			}
		})
	}
}
