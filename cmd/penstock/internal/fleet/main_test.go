package fleet

import (
	"context"
	"flag"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

func TestMain(m *testing.M) {
	flag.Set("test.parallel", "6") // the tests wait for leases most of the time; a flag of the command line comes after this
	testnet.Main(m)
}

// patience is how long anything may take on a busy machine.
const patience = testnet.Patience

const testKey = "/penstock/test"

// A world is an etcd server and what a test runs with it.
type world struct {
	*testing.T
	server *testfleet.Server
	client *etcd.Client // of the operator
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	return newWorldBeside(t)
}

// newWorldBeside returns another world for the same test.
func newWorldBeside(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, server: testfleet.Etcd(t)}
	w.client = w.open()
	return w
}

func (w *world) open() *etcd.Client { return w.openAt(w.server.URL) }

func (w *world) openAt(url string) *etcd.Client {
	w.Helper()
	c, err := etcd.New(etcd.Config{
		Remote:  remote.Config{Servers: []string{url}},
		Backoff: remote.Backoff{Min: 10 * time.Millisecond, Max: 200 * time.Millisecond}, Silence: 500 * time.Millisecond, Timeout: patience / 2,
	})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(c.Close)
	return c
}

// post sends a request that the client does not have.
func (w *world) post(path, body string) {
	w.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := c.Post(w.server.URL+path, "application/json", strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		w.Fatalf("%s: %s", path, res.Status)
	}
}

func (w *world) operator() *Operator { return &Operator{w.client, testKey, "test"} }

// until waits until ok holds.
func (w *world) until(what string, ok func() bool) {
	w.Helper()
	testwait.Until(w, what, ok)
}

func (w *world) nodes() []Node {
	w.Helper()
	list, err := w.operator().Nodes(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return list
}

// A member of the fleet.
type relay struct {
	*Presence
	stop  func()
	lease chan etcd.LeaseID
}

// relay runs a Presence. Its lease is short.
func (w *world) relay(id string, change func(*PresenceConfig)) *relay {
	r := &relay{lease: make(chan etcd.LeaseID, 100)}
	cfg := PresenceConfig{
		Client: w.open(), Key: testKey, Node: spec.Node{ID: id, Zone: "a"}, TTL: 6 * time.Second, Least: 50 * time.Millisecond,
		Report: func() Report { return Report{State: "ready", Penstock: "test", Host: Host{Name: "host-of-" + id}} },
		Carry:  func(context.Context, Order) Answer { return Answer{State: "done"} },
		Drain:  func(*DrainOrder) {},
		Leased: func(l etcd.LeaseID) { r.lease <- l },
	}
	if change != nil {
		change(&cfg)
	}
	r.Presence = NewPresence(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	r.stop = func() {
		cancel()
		<-done
	}
	w.Cleanup(r.stop)
	return r
}
