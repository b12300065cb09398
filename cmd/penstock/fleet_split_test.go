package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	neturl "net/url"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testwait"
)

// One command changes the weights of parts on all relays of a fleet that have the same configuration. They are there after a crash, when etcd
// does not answer, and on a relay that starts later or again; what is changed while etcd does not answer holds on that relay, until the fleet has
// another change; any relay undoes it for all.
func TestFleetSplit(t *testing.T) {
	t.Parallel()
	blue, green := speak(t, "blue"), speak(t, "green")
	server := testfleet.Etcd(t)
	origin, err := neturl.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	var away, deaf atomic.Bool // etcd, for r0; deaf: it answers, and tells nothing that changes
	front := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(origin) },
		ModifyResponse: func(r *http.Response) error {
			return awayError(away.Load() || deaf.Load() && strings.HasSuffix(r.Request.URL.Path, "/watch"))
		},
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		FlushInterval: -1,
	})
	t.Cleanup(front.Close)
	t.Cleanup(front.CloseClientConnections)
	f := &relays{T: t, etcd: server, url: "etcd://" + strings.TrimPrefix(server.URL, "http://") + "/penstock/test"}
	const text = `
registries: {main: {etcd: ["{4}"]}}
fleet: {etcd: /penstock/test}
keeper: {keep-after: 0, max-restart-delay: 100ms, healthy-after: 0}
reload: {watch: false}
listeners: {web: {listen: "tcp://127.0.0.1:0", to: [{group: blue, weight: {2}}, {group: green, weight: {3}}]}}
groups: {blue: {members: ["{0}"]}, green: {members: ["{1}"]}}
`
	start := func(node, at string, weights ...any) *kept {
		t.Helper()
		k := &kept{configured: &configured{dir: shortDir(t)}}
		k.file = k.dir + "/penstock.yaml"
		k.write(t, text, blue.url(), green.url(), weights[0], weights[1], at)
		k.begin(t, exec.Command(binary, "run", "-c", k.file, "--node", node))
		k.endWorker(t)
		testwait.Until(t, "the relay is in the fleet", func() bool {
			s, err := k.admin.Status(k.ctx())
			return err == nil && s.Fleet != nil && s.Fleet.Present
		})
		return k
	}
	weights := func(k *kept) [2]int {
		t.Helper()
		p := parts(t, k.configured, "web")
		return [2]int{p[0].Weight, p[1].Weight}
	}
	become := func(k *kept, what string, blue, green int) {
		t.Helper()
		if !testwait.For(func() bool { return k.answers() && weights(k) == [2]int{blue, green} }) {
			t.Fatalf("%s: never %d to %d: %v", what, blue, green, weights(k))
		}
	}
	good := func(k *kept, want string, args ...string) {
		t.Helper()
		if code, out := k.command(args...); code != 0 || !strings.Contains(out, want) {
			t.Fatalf("penstock %s: exit code %d: %s; want %q", strings.Join(args, " "), code, out, want)
		}
	}
	r0, r1, other := start("r0", front.URL, 100, 0), start("r1", server.URL, 100, 0), start("other", server.URL, 10, 0)

	good(r0, "yes", "split", "web", "blue=0", "green=5")
	become(r1, "the other relay", 0, 5)
	c := r1.to("web")
	if n := name(t, c); n != "green" {
		t.Errorf("a new client is at %s", n)
	}
	good(r1, "green has weight 5 instead of 0, in the whole fleet", "diff")
	r1.said("the fleet has set weights of parts")
	if w := weights(other); w != [2]int{10, 0} {
		t.Errorf("another configuration has %v", w)
	}
	if out := f.good("log"); !strings.Contains(out, "split") || !strings.Contains(out, "web/default") || !strings.Contains(out, "at r0") {
		t.Errorf("penstock fleet log: %s", out)
	}
	become(start("r2", server.URL, 100, 0), "a relay that starts later", 0, 5)
	r1.cmd.Process.Signal(syscall.SIGTERM)
	r1.cmd.Wait()
	r1 = start("r1", server.URL, 100, 0)
	become(r1, "a relay that starts again", 0, 5)

	// Without etcd, a relay goes on with what it has, and has what it is told.
	away.Store(true)
	front.CloseClientConnections()
	r0.end(syscall.SIGKILL)
	r0.started(1)
	become(r0, "after a crash", 0, 5)
	good(r0, "the fleet was not told: ", "split", "web", "green=7", "blue=1")
	become(r0, "changed without etcd", 1, 7)
	if w := weights(r1); w != [2]int{0, 5} {
		t.Errorf("the other relay has %v", w)
	}
	r0.upgrade()
	become(r0, "after an upgrade", 1, 7)
	away.Store(false)
	testwait.Until(t, "contact again", func() bool {
		s, err := r0.admin.Status(r0.ctx())
		return err == nil && s.Fleet != nil && s.Fleet.Present && s.Fleet.Error == ""
	})
	become(r0, "with etcd again", 1, 7)

	// A relay to which nothing was told changes one part: the other one stays as it is in the fleet, not as this relay knows it.
	good(r1, "yes", "split", "web", "green=30", "blue=3")
	become(r0, "the next change", 3, 30)
	deaf.Store(true)
	front.CloseClientConnections()
	good(r1, "yes", "split", "web", "green=31")
	good(r0, "yes", "split", "web", "blue=4")
	become(r1, "both changes", 4, 31)
	become(r0, "both changes", 4, 31)
	deaf.Store(false)

	// A value that cannot be read changes nothing, also for a relay that reads all again.
	client, err := etcd.New(etcd.Config{Remote: remote.Config{Servers: []string{server.URL}}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Put(t.Context(), "/penstock/test/splits/web/default", []byte("[{"), 0); err != nil {
		t.Fatal(err)
	}
	r1.said("weights of the fleet cannot be read; those of before hold")
	r1.end(syscall.SIGKILL)
	r1.started(1)
	become(r1, "after a crash, with a value that cannot be read", 4, 31)

	// Another change of the fleet holds for all; a relay with another configuration has its own.
	good(r1, "yes", "split", "web", "green=20", "blue=0")
	become(r0, "the next change", 0, 20)
	good(other, "yes", "split", "web", "green=30")
	become(other, "the other configuration", 10, 30)
	become(r0, "not of this configuration", 0, 20)
	r0.write(t, text, blue.url(), green.url(), 10, 0, front.URL)
	r0.reload()
	become(r0, "with the other configuration", 10, 30)
	good(r0, "10", "split", "web", "--restore")
	become(other, "undone", 10, 0)
	become(r1, "not of this configuration", 0, 20)
	r, err := r1.admin.SetSplit(r1.ctx(), "web", "default", api.SplitChange{State: "file"})
	if err != nil || r.FleetWeights || r.Error != "" || r.Parts[0].Weight != 100 {
		t.Errorf("%+v, %v", r, err)
	}
}

func awayError(away bool) error {
	if away {
		return io.ErrUnexpectedEOF
	}
	return nil
}
