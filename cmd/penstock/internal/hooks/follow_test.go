package hooks

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
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
		p := new(State)
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
