package discover

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// etcdClient returns a client, with times for tests.
func etcdClient(t *testing.T, network *testnet.Network, servers ...string) *etcd.Client {
	t.Helper()
	cfg := etcd.Config{Remote: remote.Config{Servers: servers, DialContext: network.DialContext}}
	quickEtcd(&cfg)
	c, err := etcd.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func quickEtcd(cfg *etcd.Config) {
	cfg.Silence, cfg.Backoff = 200*time.Millisecond, remote.Backoff{Min: 10 * time.Millisecond, Max: 100 * time.Millisecond}
}

// A group is what a source tells, as a group would see it.
type group struct {
	t *testing.T

	mu      sync.Mutex
	members []upstream.Target
	lists   int
	least   int // of the members of all lists but the first
	err     error
	errs    int
	wrong   []string
}

// find watches a source until the test ends.
func find(t *testing.T, what spec.Discover) *group { return findIn(t, nil, what) }

// findIn is find in a network in memory; nil: the real one.
func findIn(t *testing.T, network *testnet.Network, what spec.Discover) *group {
	t.Helper()
	g := &group{t: t, least: 1 << 30}
	opt := Options{Interval: 10 * time.Millisecond, etcd: quickEtcd, LeftOut: func(_ spec.Discover, problem string) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.wrong = append(g.wrong, problem)
	}}
	if network != nil {
		opt.dial = network.DialContext
	}
	s := New(opt)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { s.Discoverer(what).Watch(ctx, g.update) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		if len(s.clients) > 0 {
			t.Errorf("%d clients are left", len(s.clients))
		}
	})
	return g
}

func (g *group) update(list []upstream.Target, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = err
	if err != nil {
		g.errs++
		return
	}
	if g.lists++; g.lists > 1 {
		g.least = min(g.least, len(list))
	}
	g.members = list
}

// names waits until the group has the members of these names, in order, and no error.
func (g *group) names(want ...string) []upstream.Target {
	g.t.Helper()
	var got []string
	var err error
	var list []upstream.Target
	if !testwait.For(func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		got, list, err = nil, g.members, g.err
		for _, m := range list {
			got = append(got, m.Name)
		}
		if g.lists == 0 {
			err = errors.New("no list yet")
		}
		return slices.Equal(got, want) && err == nil
	}) {
		g.t.Fatalf("members %q, %v; want %q", got, err, want)
	}
	return list
}

// fails waits until the source tells an error.
func (g *group) fails() error {
	g.t.Helper()
	var err error
	testwait.Until(g.t, "an error", func() bool {
		g.mu.Lock()
		err = g.err
		g.mu.Unlock()
		return err != nil
	})
	return err
}

func (g *group) complaints() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.wrong)
}
