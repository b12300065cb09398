package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/keeping"
	"github.com/penstock/penstock/cmd/penstock/internal/rules"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/internal/testnet"
)

// sequence is a daemon in this process, to which things happen one after the other, as its input says:
// configurations from a grammar, valid and not, and requests of its admin API. What is known of it is the
// model: the text of the last valid configuration, and what its listeners do.
type sequence struct {
	t      *testing.T
	left   []byte
	dir    string
	d      *daemon
	client *http.Client
	text   string   // of the file
	active string   // the last valid one
	listen []string // names, by it
}

func (s *sequence) next(n int) int {
	if len(s.left) == 0 {
		return 0
	}
	b := s.left[0]
	s.left = s.left[1:]
	return int(b) % n
}

func (s *sequence) pick(of ...string) string { return of[s.next(len(of))] }

var sequenceListeners = []string{"a", "b", "c", "d"}

func (s *sequence) at(name string) string { return filepath.Join(s.dir, name+".sock") }

// generate makes a configuration. Most are valid; those that are not have one mistake of any kind.
func (s *sequence) generate() (text string, listen []string) {
	var b strings.Builder
	fmt.Fprintf(&b, "engine: {loops: 1}\nadmin: {listen: 'unix://%s'}\nlog: {level: %s}\n", s.at("admin"), s.pick("error", "warn", "error"))
	b.WriteString("listeners:\n")
	for _, name := range sequenceListeners {
		if s.next(3) == 0 {
			continue
		}
		listen = append(listen, name)
		fmt.Fprintf(&b, "  %s:\n    listen: 'unix://%s'\n", name, s.at(name))
		b.WriteString(s.pick("", "    timeouts: {idle: 5s}\n", "    limits: {flows: 10}\n", "    timeouts: {idle: never, first-byte: 1m}\n    limits: {flows: 20}\n", "    mode: 0700\n", "    removed: end\n"))
		switch s.next(4) {
		case 0, 1:
			b.WriteString("    to: 'echo:'\n")
		case 2:
			b.WriteString("    to: web\n")
		case 3:
			b.WriteString("    routes:\n      - {name: first, to: 'echo:'}\n")
		}
	}
	if len(listen) == 0 {
		listen = append(listen, "a")
		fmt.Fprintf(&b, "  a: {listen: 'unix://%s', to: 'echo:'}\n", s.at("a"))
	}
	fmt.Fprintf(&b, "groups:\n  web:\n    balance: %s\n    members: [%s]\n", s.pick("round-robin", "least-connections", "first", "random"),
		s.pick("'unix://"+s.at("up")+"'", "{name: one, to: 'unix://"+s.at("up")+"'}", "{name: one, to: 'unix://"+s.at("up")+"'}, {name: two, to: 'unix://"+s.at("up")+"', weight: 3}"))
	b.WriteString(s.pick("", "    check: {tcp: {every: 1m}}\n", "    eject: {failures: 3, for: 1s}\n", "    queue: {size: 3, timeout: 1s}\n"))
	text = b.String()
	if s.next(3) == 0 {
		switch s.next(8) {
		case 0:
			text = strings.Replace(text, "balance", "ballance", 1)
		case 1:
			text = text[:len(text)*s.next(100)/100] + "\x00"
		case 2:
			text += "  other: {members: ['tcp://127.0.0.1:99999']}\n"
		case 3:
			text = strings.Replace(text, "listeners:\n", "listeners:\n  x: {listen: 'unix:///nowhere/at/all/x.sock', to: 'echo:'}\n", 1)
		case 4:
			text = strings.Replace(text, "to: 'echo:'", "to: nobody", 1)
		case 5:
			text = strings.Replace(text, "listeners:\n", "listeners:\n  x: {listen: 'unix://"+s.at("up")+"', to: 'echo:'}\n", 1) // somebody listens there
		case 6: // a circle, if listener a leads to the group; this shows when the sockets are bound
			text = strings.ReplaceAll(text, s.at("up"), s.at("a"))
		case 7:
			text = strings.Repeat("a: &a [*a]\n", 1+s.next(20))
		}
	}
	return text, listen
}

// reload applies what is in the file, by the way that the next decision says.
func (s *sequence) reload() error {
	before := s.d.active.Load()
	text, listen := s.generate()
	if err := os.WriteFile(filepath.Join(s.dir, "file.yaml"), []byte(text), 0o600); err != nil {
		return err
	}
	s.text = text
	var ok bool
	if s.next(2) == 0 {
		_, err := s.d.Reload(s.t.Context())
		ok = err == nil
	} else {
		code, body, err := s.do("POST", "/v1/reload", "", "")
		if err != nil {
			return err
		}
		if ok = code == http.StatusOK; !ok && code != http.StatusUnprocessableEntity && code != http.StatusBadRequest {
			return fmt.Errorf("a reload answers %d: %s", code, body)
		}
	}
	after := s.d.active.Load()
	if !ok {
		if after != before {
			return errors.New("a configuration was rejected, and another one runs now")
		}
		return nil
	}
	s.active, s.listen = text, listen
	if after == before {
		return errors.New("a configuration was accepted, and the one before it still runs")
	}
	return nil
}

// check compares the daemon with the model.
func (s *sequence) check() error {
	if got := string(s.d.active.Load().Text); got != s.active {
		return fmt.Errorf("this configuration runs:\n%s\nand the last valid one is\n%s", got, s.active)
	}
	for _, name := range sequenceListeners {
		c, err := net.Dial("unix", s.at(name))
		if slices.Contains(s.listen, name) != (err == nil) {
			return fmt.Errorf("listener %s: %v, with\n%s", name, err, s.active)
		}
		if err != nil {
			continue
		}
		c.SetDeadline(time.Now().Add(testnet.Patience))
		const text = "is anybody there?"
		buf := make([]byte, len(text))
		c.Write([]byte(text))
		_, err = io.ReadFull(c, buf)
		c.Close()
		// A member that requests have added, changed or removed may lead nowhere.
		if err != nil && !strings.Contains(s.active, "to: web") || err == nil && string(buf) != text {
			return fmt.Errorf("listener %s answers %q, %v, with\n%s", name, buf, err, s.active)
		}
	}
	return nil
}

// do makes a request of the admin API, and reads its answer. The server hides panics from its clients, except
// that there is no answer.
func (s *sequence) do(method, path, query, body string) (code int, answer string, err error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), testnet.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://localhost/", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.URL.Opaque = path
	req.URL.RawQuery = query
	if body != "" && s.next(2) == 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	if s.next(8) == 1 {
		req.ContentLength = -1 // in chunks
	}
	res, err := s.client.Do(req)
	if err != nil {
		return 0, "", fmt.Errorf("%s %s?%s: no answer: %w", method, path, query, err)
	}
	defer res.Body.Close()
	const most = 4 << 20
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		buf := make([]byte, 100)
		if method != "HEAD" {
			_, err = io.ReadAtLeast(res.Body, buf, 1) // and no more of it: the client goes
		}
		return res.StatusCode, string(buf), err
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, most))
	if err != nil || len(text) == most {
		return 0, "", fmt.Errorf("%s %s?%s: %d bytes of an answer, %w", method, path, query, len(text), err)
	}
	return res.StatusCode, string(text), nil
}

// request makes any request.
func (s *sequence) request() error {
	method := s.pick("GET", "GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS", "BREW")
	group := s.pick("web", "web", "nobody", "%2e%2e", "a%2Fb", "%00", "%ff", strings.Repeat("x", 300))
	member := s.pick("one", "two", "new", "unix:%2F%2F"+strings.ReplaceAll(s.at("up"), "/", "%2F"), "", "%25", "..")
	path := s.pick("/healthz", "/readyz", "/metrics", "/v1/status", "/v1/stream", "/v1/config", "/v1/config/diff", "/v1/listeners", "/v1/groups", "/v1/groups/"+group,
		"/v1/groups/"+group+"/members", "/v1/groups/"+group+"/members/"+member, "/v1/groups/web/members/one", "/v1/groups/web/members", "/v1/changes", "/v1/flows", "/v1/ended",
		"/v1/flows/"+s.pick("1", "0", "-1", "18446744073709551616", "x"), "/v1/events", "/v1/log", "/v1/drain", "/v1/upgrade", "/debug/pprof/nothing", "/", "//", "/v1", "/v1/../v1/status", "/v2")
	query := s.pick("", "", "limit=1", "limit=-1", "limit=x&limit=2", "listener=a&group=web", "min-age=1h&state=relaying", "client=127.0.0.1/33", "sort=bytes", "after=-5", "since=x", "%zz", "format=csv", "q="+strings.Repeat("y", 2000))
	body := s.pick("", "", "{", "null", "[]", `{"name":"new","to":"unix://`+s.at("up")+`"}`, `{"name":"new","to":"tcp://127.0.0.1:1","weight":-1}`, `{"weight":2}`, `{"weight":1e400}`, `{"state":"drained"}`, `{"state":"up","unknown":1}`,
		`{"level":"error"}`, `{"level":7}`, `{"binary":"relative"}`, "listeners: {}", s.text, strings.Repeat("[", 5000), strings.Repeat("z", 2<<20), "\xff\xfe")
	if path == "/v1/drain" && method == "POST" {
		return nil // the end of all
	}
	code, answer, err := s.do(method, path, query, body)
	if err == nil && (code < 200 || code >= 500) && !(code == http.StatusServiceUnavailable && (path == "/readyz" || path == "/v1/stream")) {
		err = fmt.Errorf("%s %s?%s with %.100q is answered %d: %s", method, path, query, body, code, answer)
	}
	if path == "/v1/config" && method == "GET" && code == http.StatusOK && !strings.Contains(answer, "listeners") {
		err = fmt.Errorf("the running configuration is told as %q", answer)
	}
	if err != nil && strings.Contains(err.Error(), "request canceled") && len(body) > 1<<20 {
		return nil
	}
	return err
}

func runSequence(t *testing.T, data []byte) {
	testnet.CheckLeaks(t)
	dir, err := os.MkdirTemp("", "ps") // a short path, for sockets
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s := &sequence{t: t, left: data, dir: dir}
	up, err := net.Listen("unix", s.at("up"))
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	go func() {
		for {
			c, err := up.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
	s.listen = []string{"a"}
	s.active = fmt.Sprintf("engine: {loops: 1}\nadmin: {listen: 'unix://%s'}\nlisteners: {a: {listen: 'unix://%s', to: 'echo:'}}\n", s.at("admin"), s.at("a"))
	file := filepath.Join(dir, "file.yaml")
	if err := os.WriteFile(file, []byte(s.active), 0o600); err != nil {
		t.Fatal(err)
	}
	load := func() (*spec.Config, config.Warnings, error) { return config.Load(file, rules.Everywhere...) }
	cfg, _, err := load()
	if err != nil {
		t.Fatal(err)
	}
	k, log := keeping.Alone(), slog.New(slog.DiscardHandler)
	if err := k.Prepare(cfg, log); err != nil {
		t.Fatal(err)
	}
	s.d, err = newDaemon(log, new(slog.LevelVar), func() int64 { return 0 }, cfg, k, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.d.close()
	s.d.reloads.load = load
	if err := s.d.apply(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	s.d.serveAdmin()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.at("admin"))
	}}
	defer transport.CloseIdleConnections()
	s.client = &http.Client{Transport: transport}
	for len(s.left) > 0 {
		if s.next(4) == 0 {
			err = s.reload()
		} else {
			err = s.request()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.check(); err != nil {
		t.Error(err)
	}
}

// FuzzDaemon: whatever it is told, in whichever order, the daemon answers, runs the last configuration that was
// valid, and leaves nothing behind.
func FuzzDaemon(f *testing.F) {
	f.Add([]byte{0, 0, 1, 1, 1, 1, 1, 2, 1, 3, 1, 1, 1, 0, 1, 1, 0, 0, 1, 0, 12, 0, 9})
	f.Add([]byte{1, 3, 0, 0, 12, 0, 0, 7, 1, 2, 0, 0, 13, 0, 0, 5, 1, 0, 0, 0, 4, 0})
	f.Add([]byte{0, 1, 1, 1, 2, 1, 3, 1, 2, 1, 2, 1, 0, 2, 1, 0, 5, 0, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) <= 300 {
			runSequence(t, data)
		}
	})
}

// The same with random sequences, which are others in each run.
func TestSequences(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range 10 {
		data := make([]byte, 200)
		for j := range data {
			data[j] = byte(r.Uint32())
		}
		if !t.Run(fmt.Sprintf("seed=%d/%d", seed, i), func(t *testing.T) { runSequence(t, data) }) {
			t.Fatalf("sequence %#v, a seed for FuzzDaemon", data)
		}
	}
}
