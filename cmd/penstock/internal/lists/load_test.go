package lists

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

func open(s spec.List) *List { return NewTable([]*spec.List{&s}, nil, nil).Named(s.Name) }

// has fails unless the list has exactly some addresses of these.
func has(t *testing.T, l *List, in, out string) {
	t.Helper()
	for _, a := range strings.Fields(in) {
		if !l.Set().Contains(netip.MustParseAddr(a)) {
			t.Errorf("%s is not in the list", a)
		}
	}
	for _, a := range strings.Fields(out) {
		if l.Set().Contains(netip.MustParseAddr(a)) {
			t.Errorf("%s is in the list", a)
		}
	}
}

// A file is read again when it has changed, and a bad one changes nothing, however often it is looked at.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.txt")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	l := open(spec.List{Name: "bad", File: path})
	now := time.Unix(1e9, 0)
	look := func(want bool) error {
		t.Helper()
		now = now.Add(2 * time.Second)
		looked, err := l.Look(context.Background(), now, Host{})
		if looked != want {
			t.Fatalf("it was looked at: %v, want %v (%v)", looked, want, err)
		}
		return err
	}
	if err := look(true); err == nil || l.Status().Err == nil || !l.Status().Loaded.IsZero() {
		t.Fatalf("no file: %v", err)
	}
	write("10.0.0.0/8\n")
	if err := look(true); err != nil {
		t.Fatal(err)
	}
	has(t, l, "10.1.2.3", "192.0.2.1")
	look(false)
	if looked, _ := l.Look(context.Background(), now.Add(time.Second), Host{}); looked {
		t.Error("it was looked at too early")
	}
	write("<html>\n")
	for range 2 {
		if err := look(true); err == nil || !strings.Contains(err.Error(), "1 of 1 lines") {
			t.Fatalf("%v", err)
		}
		has(t, l, "10.1.2.3", "192.0.2.1")
	}
	if s := l.Status(); s.Failures != 3 || s.Since.IsZero() {
		t.Errorf("%+v", s)
	}
	write("192.0.2.0/24\n")
	if err := look(true); err != nil || l.Status().Err != nil {
		t.Fatal(err)
	}
	has(t, l, "192.0.2.1", "10.1.2.3")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	look(true)
	has(t, l, "192.0.2.1", "10.1.2.3")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := look(true); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Error(err)
	}
}

// A file that is too large for a list is not read, however often it is looked at.
func TestLargeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 2<<30); err != nil {
		t.Skip(err)
	}
	l := open(spec.List{Name: "large", File: path})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := l.Load(context.Background(), time.Unix(1e9, 0), Host{})
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "2147483648 bytes; allowed: up to 268435456") || after.TotalAlloc-before.TotalAlloc > 64<<20 {
		t.Errorf("%v; %d bytes were allocated", err, after.TotalAlloc-before.TotalAlloc)
	}
}

func TestURL(t *testing.T) {
	var answer atomic.Pointer[http.HandlerFunc]
	serve := func(h http.HandlerFunc) { answer.Store(&h) }
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*answer.Load())(w, r) }))
	defer s.Close()
	token := filepath.Join(t.TempDir(), "token")
	os.WriteFile(token, []byte("secret\n"), 0o600)
	l := open(spec.List{Name: "bad", URL: s.URL + "/list.txt?x=1", KeyFile: token})
	load := func() error { return l.Load(context.Background(), time.Now(), Host{}) }
	serve(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" || r.URL.String() != "/list.txt?x=1" {
			w.WriteHeader(401)
		}
		w.Write([]byte("10.0.0.0/8\n"))
	})
	if err := load(); err != nil {
		t.Fatal(err)
	}
	for want, h := range map[string]http.HandlerFunc{
		"500": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"leads to http://other.example/": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://other.example/", http.StatusFound)
		},
		"EOF": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.Write([]byte("192.0.2.1\n"))
		},
		"1 of 1 lines": func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("Sorry\n")) },
	} {
		serve(h)
		if err := load(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		has(t, l, "10.1.2.3", "192.0.2.1")
	}
}

// Decisions come and go, and expire; after a failure everything is asked for.
func TestCrowdSec(t *testing.T) {
	var text atomic.Pointer[string]
	var asked atomic.Pointer[string]
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		url := r.URL.String()
		asked.Store(&url)
		if r.Header.Get("X-Api-Key") != "key" {
			w.WriteHeader(403)
			return
		}
		w.Write([]byte(*text.Load()))
	}))
	defer s.Close()
	key := filepath.Join(t.TempDir(), "key")
	os.WriteFile(key, []byte("key\n"), 0o600)
	l := open(spec.List{Name: "crowd", CrowdSec: s.URL, KeyFile: key})
	now := time.Unix(1e9, 0)
	load := func(answer, startup string) error {
		t.Helper()
		text.Store(&answer)
		err := l.Load(context.Background(), now, Host{})
		if want := "/v1/decisions/stream?startup=" + startup; *asked.Load() != want {
			t.Errorf("%s was asked for, want %s", *asked.Load(), want)
		}
		return err
	}
	if err := load(`{"new":[{"id":1,"scope":"Ip","value":"192.0.2.1","type":"ban","duration":"1h0m0s"},{"id":2,"scope":"Range","value":"198.51.100.0/24","type":"ban","duration":"3h"},
		{"id":3,"scope":"Ip","value":"192.0.2.3","type":"captcha","duration":"3h"},{"id":4,"scope":"Country","value":"XX","type":"ban","duration":"3h"},{"id":5,"scope":"Ip","value":"x","type":"ban","duration":"3h"}],"deleted":null}`, "true"); err != nil {
		t.Fatal(err)
	}
	has(t, l, "192.0.2.1 198.51.100.9", "192.0.2.3")
	if s := l.Status(); s.Report.Bad != 1 || l.Set().Len() != 2 {
		t.Errorf("%+v", s)
	}
	if err := load(`{"new":[{"id":6,"scope":"Ip","value":"2001:db8::1","type":"ban","duration":"10h"}],"deleted":[{"id":2,"scope":"Range","value":"198.51.100.0/24","type":"ban","duration":"-1s"}]}`, "false"); err != nil {
		t.Fatal(err)
	}
	has(t, l, "192.0.2.1 2001:db8::1", "198.51.100.9")
	now = now.Add(time.Hour)
	if err := load(`{"new":null,"deleted":null}`, "false"); err != nil {
		t.Fatal(err)
	}
	has(t, l, "2001:db8::1", "192.0.2.1")
	now = now.Add(time.Minute)
	if err := load(`{"new":null,"deleted":null}`, "false"); err != nil || !l.Status().Loaded.Equal(now) {
		t.Errorf("nothing has changed, which is what was said at %v: loaded at %v, %v", now, l.Status().Loaded, err)
	}
	if err := load(`{`, "false"); err == nil {
		t.Error("half an answer is not an error")
	}
	has(t, l, "2001:db8::1", "192.0.2.1")
	if err := load(`{"new":[{"id":7,"scope":"Ip","value":"192.0.2.7","type":"ban","duration":"10h"}]}`, "true"); err != nil {
		t.Fatal(err)
	}
	has(t, l, "192.0.2.7", "2001:db8::1")
}

// CrowdSec 1.4.6 was asked what is here: of two decisions about an address it tells that the first was deleted, if an operator deletes both.
// A decision about a range that has only this address is another one, and so is one that does not ban.
func TestDecisionsAboutTheSame(t *testing.T) {
	now := time.Unix(1e9, 0)
	var d decisions
	for _, step := range []struct{ answer, want string }{
		{`{"deleted":null,"new":[{"duration":"59m58.232285376s","id":7,"origin":"cscli","scope":"Ip","type":"ban","value":"192.0.2.77"}]}`, "192.0.2.77/32"},
		{`{"deleted":null,"new":[{"duration":"1h59m57.872293229s","id":8,"origin":"cscli","scope":"Ip","type":"ban","value":"192.0.2.77"}]}`, "192.0.2.77/32"},
		{`{"deleted":[{"duration":"-1s","id":5,"scope":"Ip","type":"captcha","value":"192.0.2.77"},{"duration":"-1s","id":6,"scope":"Range","type":"ban","value":"192.0.2.77/32"}],"new":null}`, "192.0.2.77/32"},
		{`{"deleted":[{"duration":"-1.112175473s","id":7,"origin":"cscli","scope":"Ip","type":"ban","value":"192.0.2.77"}],"new":null}`, ""},
		{`{"deleted":[{"duration":"-2.182711909s","id":7,"origin":"cscli","scope":"Ip","type":"ban","value":"192.0.2.77"}],"new":null}`, ""},
	} {
		if _, _, err := d.apply([]byte(step.answer), now); err != nil {
			t.Fatal(err)
		}
		var got string
		for on := range d.known {
			got += on.network.String()
		}
		if got != step.want {
			t.Fatalf("after %s: %q, want %q", step.answer, got, step.want)
		}
	}
}

func FuzzDecisions(f *testing.F) {
	f.Add([]byte(`{"new":[{"id":1,"scope":"Ip","value":"192.0.2.1","type":"ban","duration":"1h"}],"deleted":[{"id":1}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var d decisions
		now := time.Unix(1e9, 0)
		if _, _, err := d.apply(text, now); err != nil {
			return
		}
		for on, until := range d.known {
			if !on.network.IsValid() || !until.After(now) {
				t.Fatalf("%+v until %v", on, until)
			}
		}
		if changed, _, err := d.apply([]byte(`{}`), now); changed || err != nil || !json.Valid(text) {
			t.Fatalf("it has changed: %v", err)
		}
	})
}

// A reload goes on with the lists that are the same, and with the hits of others.
func TestTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	os.WriteFile(path, []byte("10.0.0.1\n"), 0o600)
	a := &spec.List{Name: "a", File: path}
	one := NewTable([]*spec.List{a}, nil, nil)
	if err := one.Named("a").Load(context.Background(), time.Now(), Host{}); err != nil {
		t.Fatal(err)
	}
	n := NewNetworks([]spec.Network{{Prefix: netip.MustParsePrefix("192.0.2.0/24")}, {List: "a"}}, one)
	addr := netip.MustParseAddr("10.0.0.1")
	if allocs := testing.AllocsPerRun(100, func() { n.Contains(addr) }); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
	if !n.Contains(netip.MustParseAddr("192.0.2.9")) || n.Contains(netip.MustParseAddr("10.0.0.2")) || one.Named("a").Hits() != 101 {
		t.Errorf("%d hits", one.Named("a").Hits())
	}
	same := *a
	two := NewTable([]*spec.List{&same}, one, nil)
	if two.Named("a") != one.Named("a") || two.Named("b") != nil || (*Table)(nil).Named("a") != nil {
		t.Error("the list is another one")
	}
	same.Every = time.Hour
	three := NewTable([]*spec.List{&same}, two, nil)
	if l := three.Named("a"); l == one.Named("a") || l.Hits() != 101 {
		t.Error("the list is the same")
	}
	if s, ok := one.Find([]spec.Network{{List: "a"}}, addr); !ok || s != "list:a (10.0.0.1/32, line 1 of "+path+")" {
		t.Error(s, ok)
	}
}

// While a list is loaded from a server that does not answer, clients are looked up, and how the list is can be asked.
func TestStatusWhileLoading(t *testing.T) {
	asked, goOn := make(chan bool), make(chan bool)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- true
		<-goOn
		w.Write([]byte("10.0.0.0/8\n"))
	}))
	defer s.Close()
	l := open(spec.List{Name: "bad", URL: s.URL + "/list.txt"})
	done := make(chan error)
	go func() { done <- l.Load(context.Background(), time.Now(), Host{}) }()
	<-asked
	if s := l.Status(); !s.Loaded.IsZero() || l.Contains(netip.MustParseAddr("10.0.0.1")) {
		t.Errorf("%+v", s)
	}
	close(goOn)
	if err := <-done; err != nil || l.Status().Loaded.IsZero() {
		t.Errorf("%v, %+v", err, l.Status())
	}
}

// A list goes on with what another one of the same file has: it is not read again until it has changed. One of another file, or one that was
// loaded itself, stays as it is.
func TestGoOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.txt")
	if err := os.WriteFile(path, []byte("192.0.2.0/24\nnonsense\n"+strings.Repeat("198.51.100.1\n", 10)), 0o600); err != nil {
		t.Fatal(err)
	}
	s, now := spec.List{Name: "bad", File: path}, time.Unix(1e9, 0)
	first, next, other := open(s), open(s), open(spec.List{Name: "bad", File: path + ".other"})
	next.GoOn(nil)
	next.GoOn(first)
	if !next.Status().Loaded.IsZero() {
		t.Fatal("it goes on with a list that was never loaded")
	}
	if err := first.Load(t.Context(), now, Host{}); err != nil {
		t.Fatal(err)
	}
	next.GoOn(first)
	other.GoOn(first)
	has(t, next, "192.0.2.7", "198.51.100.2")
	has(t, other, "", "192.0.2.7")
	if next.Set() != first.Set() || next.Status().Report.Bad != 1 || !next.Status().Loaded.Equal(now) {
		t.Errorf("%+v", next.Status())
	}
	if looked, err := next.Look(t.Context(), now.Add(time.Hour), Host{}); looked || err != nil {
		t.Errorf("it was read again, %v", err)
	}
	if err := os.WriteFile(path, []byte("203.0.113.0/24\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if looked, err := next.Look(t.Context(), now.Add(2*time.Hour), Host{}); !looked || err != nil {
		t.Errorf("it was not read again: %v", err)
	}
	next.GoOn(first)
	has(t, next, "203.0.113.1", "192.0.2.7")
}

// endless is a text that never ends and has no line.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// A file that grows as fast as it is read is refused, also within a line.
func TestEndlessLine(t *testing.T) {
	if err := eachLine(endless{}, func([]byte) error { return nil }); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Error(err)
	}
}

// shrinking is a text that has fewer lines when it is read again.
type shrinking struct{ *strings.Reader }

func (s shrinking) Seek(int64, int) (int64, error) {
	s.Reset("192.0.2.1\n")
	return 0, nil
}

// Half a file is no list: whoever writes it has not finished.
func TestShrinkingFile(t *testing.T) {
	if set, _, err := parseAll(shrinking{strings.NewReader("192.0.2.1\n192.0.2.2\n")}, &spec.List{}); err == nil || !strings.Contains(err.Error(), "changed") {
		t.Error(set.Len(), err)
	}
}

// A pipe in the place of a file is refused at once, whoever else has it open.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	l := open(spec.List{Name: "pipe", File: path})
	if err := l.Load(context.Background(), time.Now(), Host{}); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("a pipe: %v", err)
	}
	keyed := open(spec.List{Name: "crowd", CrowdSec: "http://127.0.0.1:1", KeyFile: path})
	if err := keyed.Load(context.Background(), time.Now(), Host{}); err == nil || !strings.Contains(err.Error(), "not the key") {
		t.Errorf("a pipe for a key: %v", err)
	}
}
