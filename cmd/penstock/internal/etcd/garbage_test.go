package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// fake answers as a test says, and counts requests.
type fake struct {
	*httptest.Server
	requests atomic.Int64
}

func newFake(t *testing.T, handler http.HandlerFunc) *fake {
	t.Helper()
	testnet.CheckLeaks(t)
	f := &fake{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.requests.Add(1)
		handler(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

const goodList = `{"header":{"cluster_id":"1","revision":"7"},"kvs":[{"key":"L2EvMA==","value":"eA==","create_revision":"5","mod_revision":"5","version":"1"}],"count":"1"}`

// watching answers lists well, and watches with a text, after which the connection stays open for a moment.
func watching(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v3/watch" {
			io.WriteString(w, goodList)
			return
		}
		io.WriteString(w, text)
	}
}

// forever writes a text until the client has had enough.
func forever(path, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path {
			io.WriteString(w, goodList)
			return
		}
		if r.URL.Path == "/v3/watch" {
			io.WriteString(w, created)
		}
		for {
			if _, err := io.WriteString(w, text); err != nil {
				return
			}
		}
	}
}

const created = `{"result":{"header":{"cluster_id":"1","revision":"7"},"created":true}}` + "\n"

// Whatever a server answers: an error on one line, no change that was not one, and a wait after each attempt.
func TestGarbage(t *testing.T) {
	answer := func(status int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			io.WriteString(w, text)
		}
	}
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"a page":                   {answer(200, "<html>\n<body>Welcome!</body></html>"), "not one of etcd"},
		"a page of an error":       {answer(502, "<html>\nBad gateway</html>"), "502 Bad Gateway: <html> Bad gateway"},
		"nothing":                  {answer(200, ""), "not one of etcd"},
		"an error without a text":  {answer(500, ""), "500"},
		"a redirect":               {answer(302, ""), "302"},
		"an error of etcd":         {answer(503, `{"code":14,"message":"no\nleader"}`), "no leader"},
		"an error of a stream":     {answer(503, `{"error":{"grpc_code":14,"message":"no leader"}}`), "no leader"},
		"JSON of something else":   {answer(200, `{"hello":"world"}`), "no revision"},
		"JSON that ends":           {answer(200, goodList[:60]), "not one of etcd"},
		"numbers that are none":    {answer(200, strings.Replace(goodList, `"5"`, `"x"`, 1)), "not a number"},
		"keys that are not base64": {answer(200, strings.Replace(goodList, "L2Ev", "@@@@", 1)), "not one of etcd"},
		"a large answer":           {answer(200, strings.Repeat(" ", 5<<20)), "too large"},
		"an endless answer":        {forever("/v3/kv/range", strings.Repeat("{", 1000)), "too large"},

		"a watch that is a page":      {watching("<html>"), "invalid character"},
		"a watch that ends":           {watching(created), "the watch ended: EOF"},
		"a watch that ends in JSON":   {watching(created + created[:30]), "unexpected EOF"},
		"a watch without a beginning": {watching(`{"result":{"header":{"revision":"8"}}}`), "not that of a watch"},
		"a watch of an empty message": {watching(created + `{}`), "the server answered"},
		"a watch of errors":           {watching(`{"error":{"grpc_code":2,"message":"oh"}}`), "oh"},
		"a watch that is canceled":    {watching(`{"result":{"header":{"revision":"7"},"created":true,"canceled":true,"cancel_reason":"no\npermission"}}`), "canceled the watch: no permission"},
		"a watch that goes back":      {watching(created + `{"result":{"events":[{"kv":{"key":"L2EvMA==","mod_revision":"7"}}]}}`), "went back"},
		"a watch of another order": {watching(created + `{"result":{"fragment":true,"events":[{"kv":{"key":"L2EvMA==","mod_revision":"9"}}]}}` + "\n" + `{"result":{"events":[{"kv":{"key":"L2EvMA==","mod_revision":"8"}}]}}`),
			"went back"},
		"an endless message":      {forever("/v3/watch", "1111111111"), "too large"},
		"endless spaces":          {forever("/v3/watch", "          "), "too large"},
		"a stream of no changes":  {forever("/v3/watch", created), "without a change"},
		"a stream of fragments":   {forever("/v3/watch", `{"result":{"fragment":true}}`), "without a change"},
		"a watch that is refused": {answerWatch(403, `{"code":7,"message":"permission denied"}`), "permission denied"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, c.handler)
			cfg := quick(f.URL)
			cfg.MaxMessage = 1 << 20
			cfg.Backoff = remote.Backoff{Min: time.Millisecond, Max: 5 * time.Millisecond}
			cfg.Silence = patience // nobody probes while a long message comes, however long a busy machine takes to read it
			client := open(t, cfg)
			ctx, cancel := context.WithCancel(t.Context())
			var errs []error
			lists, changes := 0, 0
			client.Follow(ctx, "/a/", func(ch Change) {
				if !ch.All || len(ch.KVs) != 1 {
					changes++
				}
				lists++
			}, func(err error, _ time.Time) {
				if err == nil {
					return
				}
				if errs = append(errs, err); len(errs) == 3 {
					cancel()
				}
			})
			for _, err := range errs {
				if text := err.Error(); !strings.Contains(text, c.want) || strings.ContainsAny(text, "\n\r\x00") || len(text) > 500 {
					t.Errorf("%q, want %q", text, c.want)
				}
			}
			// A list, a watch, and a probe in each attempt; or a list whose pages become smaller.
			if n := f.requests.Load(); changes > 0 || lists > 1 && c.want != "went back" || n > 4*int64(len(errs)) {
				t.Errorf("%d changes, %d lists, %d requests for %d errors", changes, lists, n, len(errs))
			}
		})
	}
}

func answerWatch(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v3/watch" {
			io.WriteString(w, goodList)
			return
		}
		w.WriteHeader(status)
		io.WriteString(w, text)
	}
}

// A server whose watch is always compacted is not asked without end.
func TestAlwaysCompacted(t *testing.T) {
	f := newFake(t, watching(created+`{"result":{"canceled":true,"compact_revision":"100"}}`))
	cfg := quick(f.URL)
	cfg.Backoff = remote.Backoff{Min: 20 * time.Millisecond, Max: 40 * time.Millisecond}
	client := open(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	lists, begin := 0, time.Now()
	client.Follow(ctx, "/a/", func(Change) {
		if lists++; lists == 6 {
			cancel()
		}
	}, nil)
	if took := time.Since(begin); took < 5*2*time.Millisecond { // a tenth of the least bound between two lists
		t.Errorf("6 lists in %v", took)
	}
}

// A transaction that may have been done is not sent to another server; one that nobody can have received is.
func TestTransactionsAreNotRepeated(t *testing.T) {
	broken := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			conn.Close()
		}
	})
	good := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"header":{"revision":"8"},"succeeded":true,"responses":[{"response_put":{}}]}`)
	})
	c := open(t, quick(broken.URL, good.URL))
	c.current.Store(0)
	if _, err := c.Put(t.Context(), "/a", nil, 0); err == nil || good.requests.Load() > 0 {
		t.Errorf("%v, %d requests", err, good.requests.Load())
	}
	c = open(t, quick("http://127.0.0.1:1", good.URL))
	c.current.Store(0)
	if _, err := c.Put(t.Context(), "/a", nil, 0); err != nil || good.requests.Load() != 1 {
		t.Errorf("%v, %d requests", err, good.requests.Load())
	}
}

// A server of another cluster among the servers is left alone while another one answers.
func TestServerOfAnotherCluster(t *testing.T) {
	at := func(cluster string, revision int) *fake {
		return newFake(t, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, `{"header":{"cluster_id":%q,"revision":"%d"},"kvs":[{"key":"YQ==","value":"eA==","mod_revision":"%d","version":"1"}]}`, cluster, revision, revision)
		})
	}
	ours, other := at("1", 7), at("2", 9)
	c := open(t, quick(ours.URL, other.URL))
	c.current.Store(0)
	for range 5 {
		if kv, _, err := c.Get(t.Context(), "a"); err != nil || kv.Mod != 7 {
			t.Fatalf("%+v, %v", kv, err)
		}
		c.failOver(0)
	}
	ours.Close()
	var stale *StaleError
	if _, _, err := c.Get(t.Context(), "a"); !errors.As(err, &stale) || !stale.Other {
		t.Error(err)
	}
}

// A change that comes after the server has said that everything up to it was sent is not lost: all keys
// are listed again.
func TestChangesAfterTheirProgress(t *testing.T) {
	var lists atomic.Int64
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v3/watch" && lists.Load() == 1:
			io.WriteString(w, created+`{"result":{"header":{"cluster_id":"1","revision":"9"}}}`+"\n"+`{"result":{"header":{"cluster_id":"1","revision":"9"},"events":[{"kv":{"key":"L2EvMA==","value":"eQ==","mod_revision":"8"}}]}}`)
		case r.URL.Path == "/v3/watch":
			io.WriteString(w, strings.Replace(created, `"7"`, `"9"`, 1))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case lists.Add(1) == 1:
			io.WriteString(w, goodList)
		default:
			io.WriteString(w, strings.NewReplacer(`"7"`, `"9"`, "eA==", "eQ==", `"mod_revision":"5"`, `"mod_revision":"8"`).Replace(goodList))
		}
	})
	cfg := quick(f.URL)
	cfg.Silence = time.Hour
	client := open(t, cfg)
	m := follow(t, client, "/a/")
	testwait.Until(t, "the change", m.equals(map[string]string{"/a/0": "y"}))
	testwait.Until(t, "contact", m.connected)
}

// A server that begins a watch with an older revision is asked at once whether it was restored from a
// backup: until the watch is silent for long, members that are long gone could be used.
func TestWatchOfOlderRevision(t *testing.T) {
	for name, header := range map[string]string{"older": `"cluster_id":"1","revision":"3"`, "other": `"cluster_id":"2","revision":"9"`} {
		t.Run(name, func(t *testing.T) { watchOfOlder(t, header) })
	}
}

func watchOfOlder(t *testing.T, header string) {
	var lists atomic.Int64
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v3/watch":
			fmt.Fprintf(w, `{"result":{"header":{%s},"created":true}}`, header)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case lists.Add(1) == 1:
			io.WriteString(w, goodList)
		default:
			fmt.Fprintf(w, `{"header":{%s}}`, header)
		}
	})
	cfg := quick(f.URL)
	cfg.Silence = time.Hour
	m := follow(t, open(t, cfg), "/a/")
	testwait.Until(t, "loss of contact", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		var stale *StaleError
		return len(m.errs) > 0 && errors.As(m.errs[0], &stale)
	})
}

// A server that gives tokens and takes none is asked twice, and not without end.
func TestTokensThatAreNeverGood(t *testing.T) {
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v3/auth/authenticate" {
			io.WriteString(w, `{"token":"t"}`)
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
		io.WriteString(w, `{"code":16,"message":"invalid auth token"}`)
	})
	cfg := quick(f.URL)
	cfg.Timeout = patience
	cfg.Remote.UserFile = t.TempDir() + "/user"
	if err := os.WriteFile(cfg.Remote.UserFile, []byte("u:p\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, _, err := open(t, cfg).Get(ctx, "a"); err == nil || !strings.Contains(err.Error(), "invalid auth token") {
		t.Error(err)
	}
	if n := f.requests.Load(); n != 4 {
		t.Errorf("%d requests, want 4", n)
	}
}
