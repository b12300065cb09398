package fleet

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
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

func TestMain(m *testing.M) { testnet.Main(m) }

// patience is how long anything may take on a busy machine.
const patience = testnet.Patience

const testKey = "/penstock/test"

// A world is an etcd server and what a test runs with it.
type world struct {
	*testing.T
	network *testnet.Network      // nil: the real one
	server  *testfleet.MemoryEtcd // on network
	url     string                // of the server
	client  *etcd.Client          // of the operator
}

// newWorld returns a world in memory, which must be made in a bubble of testing/synctest.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, network: testnet.NewNetwork()}
	w.server = testfleet.NewMemoryEtcd(t, w.network)
	w.url = w.server.URL
	w.client = w.open()
	return w
}

// newRealWorld returns a world with a real server.
func newRealWorld(t *testing.T) (*world, *testfleet.Server) {
	t.Helper()
	t.Parallel() // it waits most of the time
	server := testfleet.Etcd(t)
	w := &world{T: t, url: server.URL}
	w.client = w.open()
	return w, server
}

func (w *world) open() *etcd.Client { return w.openAt(w.url) }

func (w *world) openAt(url string) *etcd.Client {
	return w.openWith(etcd.Config{
		Remote:  remote.Config{Servers: []string{url}},
		Backoff: remote.Backoff{Min: 10 * time.Millisecond, Max: 200 * time.Millisecond}, Silence: 500 * time.Millisecond, Timeout: patience / 2,
	})
}

func (w *world) openWith(cfg etcd.Config) *etcd.Client {
	w.Helper()
	cfg.Remote.DialContext = w.transport().DialContext
	c, err := etcd.New(cfg)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(c.Close)
	return c
}

// transport makes requests in the world's network, each by a connection of its own.
func (w *world) transport() *http.Transport {
	t := &http.Transport{DisableKeepAlives: true}
	if w.network != nil {
		t.DialContext = w.network.DialContext
	}
	return t
}

// front starts a server in memory that stands before etcd, and returns its URL. What handle does not answer, it passes on.
func (w *world) front(handle func(rw http.ResponseWriter, r *http.Request, etcd http.Handler)) string {
	w.Helper()
	origin, err := url.Parse(w.url)
	if err != nil {
		w.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(origin)
	forward.Transport = w.transport()
	forward.FlushInterval = -1 // watches
	forward.ErrorLog = log.New(io.Discard, "", 0)
	l, err := w.network.Listen("front:80")
	if err != nil {
		w.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { handle(rw, r, forward) }), ErrorLog: forward.ErrorLog}
	go s.Serve(l)
	w.Cleanup(func() { s.Close() })
	return "http://front"
}

// post sends a request that the client does not have.
func (w *world) post(path, body string) {
	w.Helper()
	c := &http.Client{Transport: w.transport()}
	res, err := c.Post(w.url+path, "application/json", strings.NewReader(body))
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
