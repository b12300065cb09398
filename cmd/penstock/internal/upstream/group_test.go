package upstream

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// names is a resolver that knows a few.
type names map[string][]string

func (n names) LookupNetIP(_ context.Context, _, host string) (ips []netip.Addr, err error) {
	texts, ok := n[host]
	if !ok {
		return nil, errors.New("no such host")
	}
	for _, s := range texts {
		ips = append(ips, netip.MustParseAddr(s))
	}
	return ips, nil
}

var known = names{
	"one":   {"192.0.2.1"},
	"three": {"2001:db8::1", "192.0.2.3", "::ffff:192.0.2.3", "192.0.2.2"},
	"none":  {},
}

func group(t *testing.T, urls ...string) *Group {
	t.Helper()
	var es []spec.Endpoint
	for _, u := range urls {
		e, err := spec.ParseUpstream(u)
		if err != nil {
			t.Fatal(err)
		}
		es = append(es, e)
	}
	g, err := NewGroup(t.Context(), known, es)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestInTurn(t *testing.T) {
	g := group(t, "tcp://192.0.2.9:1", "unix:@a", "echo:")
	want := []string{"tcp://192.0.2.9:1", "unix:@a", "echo:"}
	for flow := range 7 {
		var f relay.Flow
		for attempt := range 3 {
			got := g.Pick(&f, attempt)
			if w := want[(flow+attempt)%3]; got == nil || got.String() != w {
				t.Errorf("flow %d, attempt %d: %v, want %s", flow, attempt, got, w)
			}
		}
		if got := g.Pick(&f, 3); got != nil {
			t.Errorf("flow %d is sent to %v after all were tried", flow, got)
		}
	}
}

func TestPickAllocatesNothing(t *testing.T) {
	g := group(t, "unix:@a", "unix:@b")
	var f relay.Flow
	if n := testing.AllocsPerRun(1000, func() {
		g.Pick(&f, 0)
		g.Pick(&f, 1)
	}); n != 0 {
		t.Errorf("%v allocations a flow", n)
	}
}

func TestResolve(t *testing.T) {
	g := group(t, "tcp://three:80", "tcp://one:81", "discard:")
	want := []string{"tcp://192.0.2.3:80", "tcp://192.0.2.2:80", "tcp://[2001:db8::1]:80", "tcp://192.0.2.1:81", "discard:"}
	if g.Len() != len(want) {
		t.Fatalf("%d upstreams, want %d", g.Len(), len(want))
	}
	for i, w := range want {
		if got := g.members[i].addr.String(); got != w {
			t.Errorf("upstream %d is %s, want %s", i, got, w)
		}
	}
	for host, want := range map[string]string{
		"none":    "tcp://none:80: the name has no address",
		"unknown": "tcp://unknown:80: no such host",
	} {
		_, err := Resolve(t.Context(), known, spec.Endpoint{Kind: spec.TCP, Host: host, Port: 80})
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", host, err, want)
		}
	}
}
