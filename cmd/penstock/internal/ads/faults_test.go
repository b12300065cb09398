package ads

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// Whatever a server answers that is not the protocol, the stream ends with a clear error, and is tried again.
func TestBadServers(t *testing.T) {
	testnet.CheckLeaks(t)
	status := func(s *fakeStream, code, text string) {
		s.w.Header().Set("Content-Type", "application/grpc")
		s.w.Header().Set("Grpc-Status", code)
		s.w.Header().Set("Grpc-Message", text)
	}
	for _, tt := range []struct {
		name, want string
		serve      func(s *fakeStream)
	}{
		{"not found", "the control plane answered 404 Not Found", func(s *fakeStream) { s.w.WriteHeader(404) }},
		{"a web page", `content of type "text/html"`, func(s *fakeStream) { s.w.Header().Set("Content-Type", "text/html"); s.w.WriteHeader(200) }},
		{"no such method", "UNIMPLEMENTED: unknown method (it must serve DeltaAggregatedResources", func(s *fakeStream) { status(s, "12", "unknown method") }},
		{"no permission", "PERMISSION_DENIED: not you, relay", func(s *fakeStream) { status(s, "7", "not you%2C relay") }},
		{"unknown status", "code 99", func(s *fakeStream) { status(s, "99", "") }},
		{"odd status", "UNKNOWN", func(s *fakeStream) { status(s, "many\tthings", "") }},
		{"status at the end", "UNAVAILABLE: going away", func(s *fakeStream) { s.open(); s.end("14", "going away") }},
		{"no status", "ended the stream without a status", func(s *fakeStream) { s.open() }},
		{"compressed", "compressed message (flag 1)", func(s *fakeStream) { s.open(); s.w.Write([]byte{1, 0, 0, 0, 1, 0}); s.flush(); s.drain() }},
		{"oversize", "message of 4294967295 bytes; allowed: up to 16777216", func(s *fakeStream) { s.open(); s.w.Write([]byte{0, 255, 255, 255, 255}); s.flush(); s.drain() }},
		{"cut", "the control plane closed the connection", func(s *fakeStream) { s.open(); s.w.Write([]byte{0, 0, 0, 0, 9, 1}); s.end("0", "") }},
		{"garbage", "invalid DeltaDiscoveryResponse: not a valid protobuf message", func(s *fakeStream) { s.open(); s.send([]byte("\xff\xffgarbage")); s.drain() }},
		{"no nonce", "no type_url or no nonce", func(s *fakeStream) { s.open(); s.send(response(endpointsURL, "", nil)); s.drain() }},
		{"a long name", "resources[0]: not a text of at most 4096 bytes", func(s *fakeStream) {
			s.open()
			s.send(response(endpointsURL, "1", nil, Resource{Name: "web" + strings.Repeat("x", MaxName)}))
			s.drain()
		}},
		{"a name that is no text", "removed_resources[0]: not a text", func(s *fakeStream) { s.open(); s.send(response(endpointsURL, "1", []string{"we\xff"})); s.drain() }},
		{"another type", "of a type that was not asked for: type.googleapis.com/envoy.config.cluster.v3.Cluster", func(s *fakeStream) { s.open(); s.send(response(clusterURL, "1", nil)); s.drain() }},
		{"reset", "stream: ", func(s *fakeStream) { s.open(); panic(http.ErrAbortHandler) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int64
				plane := memoryPlane{t, testnet.NewNetwork()}
				url := plane.fake("plane", func(f *fakeStream) {
					f.read()
					calls.Add(1)
					tt.serve(f)
				})
				_, errs := subscribed(t, plane.options(url))
				if err := <-errs; !strings.Contains(err.Error(), tt.want) || strings.ContainsAny(err.Error(), "\n\t") {
					t.Errorf("%v; want %q", err, tt.want)
				}
				testwait.Until(t, "another attempt", func() bool { return calls.Load() >= 2 })
			})
		})
	}
}

// A server without HTTP/2, and none at all.
func TestNoServer(t *testing.T) {
	testnet.CheckLeaks(t)
	old := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(old.Close)
	for _, url := range []string{old.URL, "http://127.0.0.1:1"} {
		_, errs := subscribed(t, Options{Registry: registryOf(url)})
		select {
		case err := <-errs:
			if !strings.HasPrefix(err.Error(), "stream: ") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v", err)
			}
		case <-time.After(patience):
			t.Fatal("no error")
		}
	}
}

// A server that sends the same wrong content each time it is told gets answers more and more slowly, and one that
// makes it good again gets one at once.
func TestRefusedAgain(t *testing.T) {
	testnet.CheckLeaks(t)
	good := []byte("web")
	bad := []byte("other")
	other := []byte("another")
	var mu sync.Mutex
	var delays []time.Duration
	var answers []said
	s := newFake(t, false, func(f *fakeStream) {
		f.read()
		f.open()
		for i := range 15 {
			value := bad
			if i >= 10 {
				value = other
			}
			if i >= 13 {
				value = good
			}
			f.send(response(endpointsURL, "n", nil, Resource{Name: "web", Version: "1", URL: endpointsURL, Value: value}))
			q, err := f.read()
			if err != nil {
				return
			}
			mu.Lock()
			answers = append(answers, q)
			mu.Unlock()
		}
		f.drain()
	})
	subscribed(t, Options{Registry: registryOf(s.URL), after: func(d time.Duration, do func()) {
		mu.Lock()
		delays = append(delays, d)
		mu.Unlock()
		go do()
	}})
	testwait.Until(t, "15 answers", func() bool { mu.Lock(); defer mu.Unlock(); return len(answers) >= 15 })
	mu.Lock()
	defer mu.Unlock()
	for i, q := range answers {
		if (q.refusal != "") != (i < 13) || q.nonce != "n" || len(q.subscribe) > 0 {
			t.Errorf("answer %d: %+v", i, q)
		}
	}
	half := 500 * time.Millisecond
	want := []time.Duration{half, 2 * half, 4 * half, 8 * half, 16 * half, 32 * half, 30 * time.Second, 30 * time.Second, 30 * time.Second, half, half, 2 * half}
	if !slices.Equal(delays, want) {
		t.Errorf("delays %v, want %v", delays, want)
	}
}

// A new stream does not claim the version that was refused: a control plane that has been started anew would take it
// for what runs. It names the resource, so that a removal is told.
func TestRefusedVersionIsNotClaimed(t *testing.T) {
	testnet.CheckLeaks(t)
	bad := []byte("other")
	firsts := make(chan said, 100)
	s := newFake(t, false, func(f *fakeStream) {
		q, _ := f.read()
		firsts <- q
		f.open()
		if len(q.known) == 0 {
			f.send(response(endpointsURL, "n", nil, Resource{Name: "web", Version: "7", URL: endpointsURL, Value: bad}))
			f.read()
			f.end("14", "")
			return
		}
		f.drain()
	})
	subscribed(t, Options{Registry: registryOf(s.URL)})
	if q := <-firsts; q.url != endpointsURL || !slices.Equal(q.subscribe, []string{"web"}) || len(q.known) != 0 {
		t.Errorf("%+v", q)
	}
	if q := <-firsts; len(q.known) != 1 || q.known["web"] != "" || !slices.Equal(q.subscribe, []string{"web"}) {
		t.Errorf("%+v", q)
	}
}

// The control plane that stops answering is left for the next one.
func TestFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plane := memoryPlane{t, testnet.NewNetwork()}
		var links []*testfleet.Proxy
		for _, name := range []string{"one", "two"} {
			url := plane.fake(name, func(f *fakeStream) {
				f.read()
				f.open()
				f.send(response(endpointsURL, "n", nil, Resource{Name: "web", URL: endpointsURL, Value: []byte(name)}))
				f.drain()
			})
			links = append(links, testfleet.NewMemoryProxy(t, plane.Network, "link-"+name+":80", url))
		}
		opt := plane.options(links[0].URL, links[1].URL)
		opt.ping = 500 * time.Millisecond
		answers, _ := subscribed(t, opt)
		by := func(want string) {
			t.Helper()
			for {
				select {
				case r := <-answers:
					if string(r.Value) == want {
						return
					}
				case <-time.After(patience):
					t.Fatalf("no answer by %s", want)
				}
			}
		}
		by("one")
		links[0].Freeze(true) // as a process that is stopped
		by("two")
		links[0].Freeze(false)
		links[1].Cut()
		by("one")
	})
}

// Servers of gRPC end connections with more than one ping in five minutes, of three in a row. To wait for that takes longer
// than a test may.
func TestPingsArePermitted(t *testing.T) {
	if pingAfter <= 5*time.Minute {
		t.Errorf("a ping after %v", pingAfter)
	}
}

// TLS, with an authority of its own and a token.
func TestCredentials(t *testing.T) {
	testnet.CheckLeaks(t)
	token := make(chan string, 100)
	s := newFake(t, true, func(f *fakeStream) {
		token <- f.r.Header.Get("Authorization")
		f.read()
		f.open()
		f.send(response(endpointsURL, "n", nil, Resource{Name: "web", URL: endpointsURL, Value: []byte("web")}))
		f.drain()
	})
	dir := t.TempDir()
	r := registryOf(s.URL)
	r.CA, r.TokenFile = filepath.Join(dir, "ca.pem"), filepath.Join(dir, "token")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	for path, text := range map[string][]byte{r.CA: ca, r.TokenFile: []byte("secret\n")} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	answers, errs := subscribed(t, Options{Registry: r})
	select {
	case r := <-answers:
		if r.Name != "web" || string(r.Value) != "web" {
			t.Errorf("%+v", r)
		}
	case err := <-errs:
		t.Fatal(err)
	case <-time.After(patience):
		t.Fatal("no answer")
	}
	if got := <-token; got != "Bearer secret" {
		t.Errorf("Authorization: %q", got)
	}
}

// Close ends a stream whatever it is doing, at once.
func TestClose(t *testing.T) {
	testnet.CheckLeaks(t)
	value := []byte("web")
	s := newFake(t, false, func(f *fakeStream) {
		f.read()
		f.open()
		f.send(response(endpointsURL, "n", nil, Resource{Name: "web", URL: endpointsURL, Value: value}))
		f.drain()
	})
	for range 100 {
		answered := make(chan bool, 1)
		c := newTestClient(t, Options{Registry: registryOf(s.URL), Node: Node{ID: "relay-1"}})
		c.Subscribe(Type{URL: endpointsURL, Handle: func(r *Response) error {
			r.Reply(nil)
			answered <- true
			return nil
		}}).Add("web")
		<-answered
		c.Close()
	}
}
