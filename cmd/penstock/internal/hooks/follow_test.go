package hooks

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/relay"
)

// A flow that waits for its name goes there only while its group has the destination that said so.
func TestTargetIsOutdated(t *testing.T) {
	there := spec.Group{Name: "g", Balance: spec.Balancers[0].Name, Destination: &spec.Destination{Port: 443, Allow: []string{"a.test"}}}
	members := spec.Group{Name: "g", Balance: spec.Balancers[0].Name, Members: []spec.Member{{To: spec.Endpoint{Kind: spec.TCP, Host: "192.0.2.1", Port: 443}, Weight: 1}}}
	other := there
	other.Destination = &spec.Destination{Port: 443, Allow: []string{"b.test"}}
	for _, c := range []struct {
		what        string
		before, now *spec.Group // nil: it is removed
		outdated    bool
	}{
		{"the same", &there, &there, false},
		{"other names", &there, &other, true},
		{"members instead", &there, &members, true},
		{"removed", &there, nil, true},
		{"of members, removed", &members, nil, false}, // there is none to pick, see Hooks.upstream
		{"a destination instead", &members, &there, true},
	} {
		set := upstream.NewSet(upstream.Options{})
		set.Apply([]*spec.Group{c.before})
		w := newTarget(&spec.Route{Name: "r"}, c.before, &spec.Listener{}, set, nil)
		var now []*spec.Group
		if c.now != nil {
			now = append(now, c.now)
		}
		set.Apply(now)
		if w.outdated() != c.outdated {
			t.Errorf("%s: outdated %v", c.what, !c.outdated)
		}
		set.Close()
	}
}

// A flow that has lost the route to its address, and has no other one, gets that address again. Each time it asks, it may try all the others
// once more.
func TestNameWithoutRoute(t *testing.T) {
	all := []netip.Addr{netip.MustParseAddr("93.184.216.34"), netip.MustParseAddr("93.184.216.35"), netip.MustParseAddr("93.184.216.36")}
	for _, c := range []struct {
		what    string
		retries int
		all     []netip.Addr
		lost    bool // the route; else a firewall refuses
		want    string
	}{
		{"all are tried", 2, all, true, "34 35 36 34 35 36 34"},
		{"as many as may be", 1, all, true, "34 35 34 35 34"},
		{"none may be", 0, all, true, "34 34 34"},
		{"there is one", 2, all[:1], true, "34 34 34"},
		{"of another process", 2, nil, true, "34 34 34"},
		{"a firewall", 2, all, false, "34 35 36"},
	} {
		n := &namedHost{network: relay.UDP, port: 53, all: c.all, addrs: c.all, known: true}
		g := &spec.Group{Retries: c.retries}
		g.Timeouts.Retries = time.Second
		p := &State{plan: &Plan{Spec: &spec.Listener{Datagrams: true}}}
		p.target.Store(&Target{To: g, named: n})
		p.series.Store(account.NewCounters().Series(account.Key{}))
		to := &relay.Addr{Network: relay.UDP, AddrPort: netip.AddrPortFrom(all[0], 53)}
		if c.all == nil {
			n.tried = 1
		} else if first, reason := n.next(g); reason != spec.ReasonNone || *first != *to {
			t.Fatalf("%s: begins at %v, %v", c.what, first, reason)
		}
		own, got := *to, "34"
		for range strings.Count(c.want, " ") {
			if *to != own {
				new(Hooks).attempted(p, 0, syscall.ENETUNREACH)
			} else if c.lost {
				n.away = to
				new(Hooks).attempted(p, 0, os.NewSyscallError("send", syscall.ENETUNREACH))
			}
			var reason spec.Reason
			if to, reason = n.next(g); reason != spec.ReasonNone {
				t.Fatalf("%s: after %s: %v", c.what, got, reason)
			}
			got += " " + strings.TrimPrefix(to.AddrPort.Addr().String(), "93.184.216.")
		}
		if got != c.want {
			t.Errorf("%s: goes to %s, want %s", c.what, got, c.want)
		}
		if to, reason := n.next(g); !c.lost && (to != nil || reason == spec.ReasonNone) {
			t.Errorf("%s: and then to %v, %v", c.what, to, reason)
		}
	}
}

// Further addresses of a name are tried as often, and for as long, as further members are.
func TestRetriesOfNames(t *testing.T) {
	addrs := []netip.Addr{netip.MustParseAddr("93.184.216.34"), netip.MustParseAddr("93.184.216.35")}
	failed := errors.New("refused")
	for _, c := range []struct {
		what           string
		retries, tried int
		budget, took   time.Duration
		addrs          []netip.Addr
		want           spec.Reason
	}{
		{"another one", 1, 1, 0, time.Hour, addrs, spec.ReasonNone},
		{"within the time", 1, 1, time.Second, 400 * time.Millisecond, addrs, spec.ReasonNone},
		{"the time is over", 3, 1, time.Second, 500 * time.Millisecond, addrs, spec.ReasonRetries},
		{"one too many", 1, 2, 0, 0, addrs, spec.ReasonRetries},
		{"no other one", 1, 1, 0, 0, nil, spec.ReasonConnectFailed},
		{"no retries", 0, 1, 0, 0, addrs, spec.ReasonConnectFailed},
	} {
		n := &namedHost{addrs: c.addrs, tried: c.tried, known: true}
		g := &spec.Group{Retries: c.retries}
		g.Timeouts.Retries = c.budget
		p := &State{plan: &Plan{Spec: &spec.Listener{Datagrams: true}}}
		p.target.Store(&Target{To: g, named: n})
		p.series.Store(account.NewCounters().Series(account.Key{}))
		for range 2 {
			new(Hooks).attempted(p, c.took, failed)
		}
		new(Hooks).attempted(p, time.Hour, nil) // which takes nothing of that time
		if got := n.exhausted(g); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}
