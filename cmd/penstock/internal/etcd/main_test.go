package etcd

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testnet"
)

func TestMain(m *testing.M) {
	flag.Set("test.parallel", "6") // the tests wait most of the time; a flag of the command line comes after this
	testnet.Main(m)
}

// patience is how long anything may take on a busy machine.
const patience = testnet.Patience

// quick has times for tests.
func quick(servers ...string) Config {
	return Config{
		Remote:  remote.Config{Servers: servers},
		Backoff: remote.Backoff{Min: 10 * time.Millisecond, Max: 100 * time.Millisecond},
		Silence: 200 * time.Millisecond,
		Timeout: patience / 2,
	}
}

func open(t *testing.T, cfg Config) *Client {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func start(t *testing.T, flags ...string) (*testfleet.Server, *Client) {
	t.Helper()
	t.Parallel()
	s := testfleet.Etcd(t, flags...)
	return s, open(t, quick(s.URL))
}

// A memory is an etcd server in memory, in the test's bubble, and its network.
type memory struct {
	*testfleet.MemoryEtcd
	network *testnet.Network
}

func startMemory(t *testing.T) (memory, *Client) {
	t.Helper()
	network := testnet.NewNetwork()
	m := memory{testfleet.NewMemoryEtcd(t, network), network}
	return m, open(t, m.quick(m.URL))
}

// quick is as the function, in the server's network.
func (m memory) quick(servers ...string) Config {
	cfg := quick(servers...)
	cfg.Remote.DialContext = m.network.DialContext
	return cfg
}

// proxy starts a proxy in front of the server.
func (m memory) proxy(t *testing.T, host string) *testfleet.Proxy {
	t.Helper()
	return testfleet.NewMemoryProxy(t, m.network, host+":80", m.URL)
}

func mustPut(t *testing.T, c *Client, key, value string, lease LeaseID) int64 {
	t.Helper()
	revision, err := c.Put(t.Context(), key, []byte(value), lease)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

// admin sends a request that the client does not offer.
func admin(t *testing.T, c *Client, path string, in any) {
	t.Helper()
	if err := c.call(context.Background(), path, in, new(struct{}), true); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}
