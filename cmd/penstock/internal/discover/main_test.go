package discover

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// etcdClient returns a client that is closed when the test ends.
func etcdClient(t *testing.T, network *testnet.Network, servers ...string) *etcd.Client {
	t.Helper()
	c, err := etcd.New(etcd.Config{Remote: remote.Config{Servers: servers, DialContext: network.DialContext}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
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

// find watches a source in a network in memory until the test ends, which must be in a bubble of testing/synctest.
func find(t *testing.T, network *testnet.Network, what spec.Discover) *group {
	t.Helper()
	g := &group{t: t, least: 1 << 30}
	s := New(Options{dial: network.DialContext, LeftOut: func(_ spec.Discover, problem string) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.wrong = append(g.wrong, problem)
	}})
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
