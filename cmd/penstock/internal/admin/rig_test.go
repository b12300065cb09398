package admin

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

func TestMain(m *testing.M) { testnet.Main(m) }

const (
	token     = "full-token-0123456789"
	readToken = "read-token-0123456789"

	eventually = testwait.Patience
)

// rig is a server on a real Unix socket and on real loopback TCP.
type rig struct {
	t      testing.TB
	server *Server
	source *synthetic
	events *Events
	path   string // of the Unix socket
	tcp    string // HOST:PORT
	unix   *http.Client
	client *api.Client
}

func newRig(t testing.TB, source *synthetic, prepare ...func(*Server)) *rig {
	t.Helper()
	if source.level == "" {
		source.level = "info"
	}
	r := &rig{t: t, source: source, events: new(Events), path: filepath.Join(t.TempDir(), "admin.sock")}
	r.server = New(source, Config{Token: token, ReadToken: readToken, Events: r.events, Started: epoch,
		Page: fstest.MapFS{"index.html": {Data: []byte("<!doctype html><title>Penstock</title>")}, "a.js": {Data: []byte("1")}}})
	for _, f := range prepare {
		f(r.server)
	}
	served := make(chan error, 2)
	serve := func(at spec.Endpoint) net.Addr {
		l, err := Listen(at, 0)
		if err != nil {
			t.Fatal(err)
		}
		go func() { served <- r.server.Serve(l) }()
		return l.Addr()
	}
	serve(spec.Endpoint{Kind: spec.Unix, Path: r.path})
	r.tcp = serve(spec.Endpoint{Kind: spec.TCP, Host: "127.0.0.1"}).String()
	r.unix = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", r.path)
	}}}
	var err error
	if r.client, err = api.NewClient("unix://"+r.path, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.unix.CloseIdleConnections()
		r.client.Close()
		ctx, cancel := context.WithTimeout(context.Background(), eventually)
		defer cancel()
		r.server.Close(ctx)
		for range 2 {
			if err := <-served; err != nil {
				t.Error("Serve:", err)
			}
		}
	})
	return r
}

// answer is a response that has been read.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask sends a request over the Unix socket. A body that starts like JSON is sent as such.
func (r *rig) ask(method, path, body string) answer {
	r.t.Helper()
	req, err := http.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if strings.HasPrefix(body, "{") {
		req.Header.Set("Content-Type", "application/json")
	}
	return r.do(r.unix, req)
}

func (r *rig) do(c *http.Client, req *http.Request) answer {
	r.t.Helper()
	resp, err := c.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}
