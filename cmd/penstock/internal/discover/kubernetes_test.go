package discover

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testnet"
)

func shopWeb(k *testfleet.Kubernetes) spec.Discover {
	return spec.Discover{
		Registry: spec.Registry{Kind: "kubernetes", Servers: k.URL, CA: k.CAFile()},
		Key:      "shop/web", Network: spec.TCP,
	}
}

// slice returns an EndpointSlice of IPv4 with one port; endpoints are JSON.
func slice(port int, endpoints ...string) string {
	return fmt.Sprintf(`{"addressType":"IPv4","ports":[{"name":"http","protocol":"TCP","port":%d}],"endpoints":[%s]}`, port, strings.Join(endpoints, ","))
}

// endpoint returns an endpoint with conditions, each true or false.
func endpoint(ip string, ready, serving, terminating bool) string {
	return fmt.Sprintf(`{"addresses":[%q],"conditions":{"ready":%v,"serving":%v,"terminating":%v}}`, ip, ready, serving, terminating)
}

func up(ip string) string { return endpoint(ip, true, true, false) }

func TestKubernetesFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		k := testfleet.NewMemoryKubernetes(t, network)
		k.Put("shop", "web-1", "web", slice(80, up("10.0.0.1"), `{"addresses":["10.0.0.2"],"zone":"a","nodeName":"n1","targetRef":{"kind":"Pod","name":"web-x"}}`))
		k.Put("shop", "api-1", "api", slice(80, up("10.9.0.1")))
		k.Put("bank", "web-1", "web", slice(80, up("10.9.0.2")))
		w := watchFor(t, network, shopWeb(k))
		w.wants("10.0.0.1:80, 10.0.0.2:80@a")
		if got, want := w.seen().list[1].Metadata, `{"node":"n1","pod":"web-x"}`; got != want {
			t.Errorf("metadata %s, want %s", got, want)
		}
		k.Put("shop", "web-2", "web", slice(8080, up("10.0.0.3")))
		w.wants("10.0.0.1:80, 10.0.0.2:80@a, 10.0.0.3:8080")
		k.Put("shop", "web-1", "web", slice(80, up("10.0.0.1")))
		w.wants("10.0.0.1:80, 10.0.0.3:8080")
		// A watch that ends is resumed from where it was, also after a bookmark, without a list.
		k.Bookmark()
		synctest.Wait()
		k.CloseWatches()
		synctest.Wait()
		k.Delete("shop", "web-2")
		w.wants("10.0.0.1:80")
		list, lists := watches(k.Requests())
		if lists != 1 || len(list) != 2 {
			t.Fatalf("%d lists and %d watches", lists, len(list))
		}
		var versions [2]int
		for i, r := range list {
			q := r.URL.Query()
			if q.Get("allowWatchBookmarks") != "true" || q.Get("timeoutSeconds") == "" || q.Get("resourceVersion") == "" {
				t.Errorf("watch %s", r.URL)
			}
			versions[i], _ = strconv.Atoi(q.Get("resourceVersion"))
		}
		if versions[1] != versions[0]+12 { // two changes, and the bookmark
			t.Errorf("watched from version %d, and then from %d", versions[0], versions[1])
		}
		k.Delete("shop", "web-1") // what becomes of the members is the group's decision: see lookups.vanish
		w.wants("")
	})
}

func TestKubernetesPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		k := testfleet.NewMemoryKubernetes(t, network)
		const n = 2*kubePage + 3
		for i := range n {
			k.Put("shop", fmt.Sprintf("web-%d", i), "web", slice(80, up(fmt.Sprintf("10.0.%d.1", i))))
		}
		w := watchFor(t, network, shopWeb(k))
		w.until("all members", func() bool { return len(w.list) == n })
		if got := len(k.Requests()); got < 3 || got > 4 {
			t.Errorf("%d requests, want 3 pages and a watch", got)
		}
	})
}

// TestKubernetesGone: a version that the server no longer has is listed again, however it says so, and changes that were
// missed meanwhile are found.
func TestKubernetesGone(t *testing.T) {
	for _, asStatus := range []bool{true, false} {
		t.Run(fmt.Sprint(asStatus), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := testnet.NewNetwork()
				k := testfleet.NewMemoryKubernetes(t, network)
				k.GoneAsStatus = asStatus
				k.Put("shop", "web-1", "web", slice(80, up("10.0.0.1")))
				k.Put("shop", "web-2", "web", slice(80, up("10.0.0.2")))
				w := watchFor(t, network, shopWeb(k))
				w.wants("10.0.0.1:80, 10.0.0.2:80")
				k.Stop()
				w.fails("refused")
				w.keeps("10.0.0.1:80, 10.0.0.2:80")
				k.Delete("shop", "web-2")
				k.Put("shop", "web-3", "web", slice(80, up("10.0.0.3")))
				k.Compact()
				k.Start()
				w.wants("10.0.0.1:80, 10.0.0.3:80")
				k.Compact() // during a watch
				k.Put("shop", "web-1", "web", slice(80, up("10.0.0.4")))
				w.wants("10.0.0.3:80, 10.0.0.4:80")
			})
		})
	}
}

func TestKubernetesTokenRotates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		k := testfleet.NewMemoryKubernetes(t, network, "first")
		k.Put("shop", "web-1", "web", slice(80, up("10.0.0.1")))
		d := shopWeb(k)
		d.Registry.TokenFile = filepath.Join(t.TempDir(), "token")
		write(t, d.Registry.TokenFile, "first\n")
		w := watchFor(t, network, d)
		w.wants("10.0.0.1:80")
		k.Put("shop", "web-0", "web", slice(80, up("10.0.0.9")))
		w.wants("10.0.0.1:80, 10.0.0.9:80") // which only the watch can say
		k.Put("shop", "web-0", "web", slice(80))
		k.SetTokens("second")
		k.Put("shop", "web-2", "web", slice(80, up("10.0.0.2")))
		w.wants("10.0.0.1:80, 10.0.0.2:80") // the watch goes on
		k.CloseWatches()
		w.fails("401")
		w.keeps("10.0.0.1:80, 10.0.0.2:80")
		write(t, d.Registry.TokenFile, "second\n")
		w.until("contact", func() bool { return w.err == nil })
		k.Delete("shop", "web-2")
		w.wants("10.0.0.1:80")
	})
}

func TestInCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		k := testfleet.NewMemoryKubernetes(t, network, "in-cluster-token")
		k.Put("shop", "web-1", "web", slice(80, up("10.0.0.1")))
		account := t.TempDir()
		write(t, filepath.Join(account, "token"), "in-cluster-token")
		write(t, filepath.Join(account, "ca.crt"), string(k.CA()))
		u, err := url.Parse(k.URL)
		if err != nil {
			t.Fatal(err)
		}
		source := New(Options{dial: network.DialContext}).kubernetes(spec.Discover{Registry: spec.Registry{Kind: "kubernetes", Servers: "in-cluster"}, Key: "shop/web", Network: spec.TCP})
		source.account = account
		source.getenv = func(name string) string {
			return map[string]string{"KUBERNETES_SERVICE_HOST": u.Hostname(), "KUBERNETES_SERVICE_PORT": u.Port()}[name]
		}
		w := newWatched(t)
		w.run(source)
		w.wants("10.0.0.1:80")

		outside := New(Options{}).kubernetes(spec.Discover{Registry: spec.Registry{Kind: "kubernetes", Servers: "in-cluster"}, Key: "shop/web", Network: spec.TCP})
		outside.getenv = func(string) string { return "" }
		w = newWatched(t)
		w.run(outside)
		w.fails("KUBERNETES_SERVICE_HOST")
	})
}

// TestKubernetesFaults: whatever a server answers, the members stay, the error says what it was, requests are few, and
// the source recovers.
func TestKubernetesFaults(t *testing.T) {
	page := func(kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			fmt.Fprint(w, body)
		}
	}
	const js = "application/json"
	for _, c := range []struct {
		name  string
		fault http.HandlerFunc
		err   string
	}{
		{"not JSON", page(js, "\x00\xff{]"), "invalid character"},
		{"truncated", page(js, `{"kind":"EndpointSliceList","metadata":{"resourceVersion":"1"},"items":[{"metadata":`), "unexpected EOF"},
		{"a proxy's page", page("text/html; charset=utf-8", "<html>Sign in\n</html>"), "there may be a proxy"},
		{"no resourceVersion", page(js, `{"kind":"EndpointSliceList","metadata":{},"items":[],"type":"ADDED","object":{}}`), "no resourceVersion"},
		{"another kind", page(js, `{"kind":"PodList","type":"MOVED","object":{"metadata":{"resourceVersion":"7"}}}`), "kind \"PodList\""},
		{"500", func(w http.ResponseWriter, r *http.Request) { http.Error(w, "etcdserver: leader changed", 500) }, "leader changed"},
		{"forbidden", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", js)
			w.WriteHeader(403)
			fmt.Fprint(w, `{"kind":"Status","message":"endpointslices.discovery.k8s.io is forbidden: User \"x\" cannot list"}`)
		}, "cannot list"},
		{"always gone", func(w http.ResponseWriter, r *http.Request) { http.Error(w, "Gone", http.StatusGone) }, "410"},
		{"closed", func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }, ""},
		{"5 MB", page(js, `{"kind":"EndpointSliceList","items":[`+strings.Repeat(`{"metadata":{"name":"x"}},`, 200000)), "unexpected EOF"},
		{"a slice of 5 MB", page(js, `{"kind":"EndpointSliceList","items":[{"kind":"`+strings.Repeat("x", 5<<20)+`"}]}`), "too large"},
		{"an event of 5 MB", page(js, `{"type":"ADDED","object":{"kind":"`+strings.Repeat("x", 5<<20)+`"}}`), "too large"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				network := testnet.NewNetwork()
				k := testfleet.NewMemoryKubernetes(t, network)
				k.Put("shop", "web-1", "web", slice(80, up("10.0.0.1")))
				w := watchFor(t, network, shopWeb(k))
				w.wants("10.0.0.1:80")
				before := len(k.Requests())
				k.Fault(c.fault)
				errors := 3
				if strings.Contains(c.name, "5 MB") { // which takes seconds with the race detector
					errors = 1
				}
				w.until("enough errors, one with "+c.err, func() bool { return w.errors >= errors && w.err != nil && strings.Contains(w.err.Error(), c.err) })
				w.keeps("10.0.0.1:80")
				w.mu.Lock()
				requests, told := len(k.Requests())-before, w.errors
				w.mu.Unlock()
				if requests > 3*told+6 { // a failure is waited for, so that each error has its request, or a list and a watch
					t.Errorf("%d requests until error %d", requests, told)
				}
				k.Fault(nil)
				k.Put("shop", "web-1", "web", slice(80, up("10.0.0.2")))
				w.wants("10.0.0.2:80")
			})
		})
	}
}

// TestKubernetesConnections: the watches of all services of a registry have one connection, also after it was closed.
func TestKubernetesConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		k := testfleet.NewMemoryKubernetes(t, network)
		d := shopWeb(k)
		dials := &dialler{network: network}
		sources := New(Options{dial: dials.DialContext})
		var all []*watched
		for i := range 5 {
			name := fmt.Sprintf("s%d", i)
			k.Put("shop", name, name, slice(80, up("10.0.0.1")))
			d.Key = "shop/" + name
			w := newWatched(t)
			w.run(sources.Discoverer(d))
			w.wants("10.0.0.1:80")
			all = append(all, w)
		}
		if n := dials.made.Swap(0); n != 1 {
			t.Errorf("%d connections", n)
		}
		k.Stop()
		for _, w := range all {
			w.until("an error", func() bool { return w.err != nil })
		}
		k.Start()
		for i, w := range all {
			name := fmt.Sprintf("s%d", i)
			k.Put("shop", name, name, slice(80, up("10.0.0.2")))
			w.wants("10.0.0.2:80")
		}
		if n := dials.made.Load(); n > 2 { // two may be made at the same time, before either is known to be HTTP/2
			t.Errorf("%d connections after a restart", n)
		}
	})
}

// TestKubernetesRedirect: a token goes to no other server.
func TestKubernetesRedirect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		other := testfleet.NewMemoryKubernetes(t, network)
		k := testfleet.NewMemoryKubernetes(t, network)
		d := shopWeb(k)
		d.Registry.TokenFile = filepath.Join(t.TempDir(), "token")
		write(t, d.Registry.TokenFile, "secret")
		k.Fault(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+r.URL.Path, http.StatusFound)
		})
		w := watchFor(t, network, d)
		w.fails("redirects are not followed")
		if n := len(other.Requests()); n != 0 {
			t.Errorf("%d requests to where the redirect led", n)
		}
	})
}

// TestKubernetesEndlessEvents: a server that sends events without end is read no faster than pace allows.
func TestKubernetesEndlessEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		k := testfleet.NewMemoryKubernetes(t, network)
		k.Put("shop", "web-1", "web", slice(80, up("10.0.0.1")))
		w := watchFor(t, network, shopWeb(k))
		w.wants("10.0.0.1:80")
		k.Fault(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Type", "application/json")
			if r.URL.Query().Get("watch") == "" {
				http.Error(rw, "no", 500)
				return
			}
			for i := 1; r.Context().Err() == nil; i++ {
				body := slice(80, up(fmt.Sprintf("10.1.%d.%d", i>>8%256, i%256)))
				_, err := fmt.Fprintf(rw, `{"type":"MODIFIED","object":{"metadata":{"name":"web-1","resourceVersion":"%d","labels":{"kubernetes.io/service-name":"web"}},%s}`, i, body[1:])
				if err != nil {
					return
				}
			}
		})
		w.until("many lists", func() bool { return w.lists > 5 })
		if list := w.seen().list; len(list) != 1 {
			t.Errorf("members %q", showTargets(list))
		}
	})
}

func TestPace(t *testing.T) {
	p := pace{since: time.Now()}
	n := 0
	for ; p.units < maxPace; n++ {
		p.units += 1 + int64(100)>>14
	}
	if n != maxPace {
		t.Errorf("room for %d small events", n)
	}
	p = pace{}
	for n = 0; p.units < maxPace-65; n++ { // the next one waits
		if err := p.wait(t.Context(), 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	if n > 20 {
		t.Errorf("%d MB without a pause", n)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	next := path + ".next" // as Kubernetes does: a file is never seen half written
	if err := os.WriteFile(next, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}
