package admin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// overTCP sends a request to the loopback listener, on a connection of its own.
func (r *rig) overTCP(method, path string, header http.Header) answer {
	r.t.Helper()
	req, err := http.NewRequest(method, "http://"+r.tcp+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header = header
	req.Host = header.Get("Host")
	req.Close = true
	return r.do(http.DefaultClient, req)
}

// overUnix sends a request to the Unix socket.
func (r *rig) overUnix(method, path string, header http.Header) answer {
	r.t.Helper()
	req, err := http.NewRequest(method, "http://localhost"+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header = header
	if host := header.Get("Host"); host != "" {
		req.Host = host
	}
	return r.do(r.unix, req)
}

func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

// Every route with every token, over TCP; and over the Unix socket without any.
func TestTokens(t *testing.T) {
	r := newRig(t, &synthetic{flows: 3, members: 3})
	fill := strings.NewReplacer("{group}", "none", "{member}", "none", "{id}", "99", "{profile}", "none")
	for _, route := range routes {
		if route.path == "/v1/stream" {
			continue // its answer has no end; TestStream
		}
		for _, c := range []struct {
			name   string
			header http.Header
			has    access
		}{
			{"no token", http.Header{}, open}, {"an empty one", bearer(""), open}, {"a wrong one", bearer(token + "x"), open}, {"half of it", bearer(token[:8]), open},
			{"another scheme", http.Header{"Authorization": {"Basic " + token}}, open}, {"no scheme", http.Header{"Authorization": {token}}, open},
			{"read", bearer(readToken), read}, {"full", bearer(token), full}, {"lower case scheme", http.Header{"Authorization": {"bearer " + token}}, full},
		} {
			got := r.overTCP(route.method, fill.Replace(route.path), c.header)
			name := fmt.Sprintf("%s %s with %s: %d %.200s", route.method, route.path, c.name, got.status, got.body)
			switch {
			case c.has >= route.need:
				if got.status == 401 || got.status == 403 {
					t.Error(name)
				}
			case c.has == open:
				if got.status != 401 || got.header.Get("WWW-Authenticate") != "Bearer" || !strings.Contains(got.body, "Authorization: Bearer TOKEN") {
					t.Error(name)
				}
			case got.status != 403 || !strings.Contains(got.body, "read token"):
				t.Error(name)
			}
		}
		if got := r.ask(route.method, fill.Replace(route.path), ""); got.status == 401 || got.status == 403 {
			t.Errorf("%s %s over the Unix socket: %d", route.method, route.path, got.status)
		}
	}
	// An unknown path reveals nothing to a client without a token.
	for _, path := range []string{"/v1/none", "/v1/flows/1/x", "/x", "/v1/"} {
		if got := r.overTCP("GET", path, http.Header{}); got.status != 401 {
			t.Errorf("%s without a token: %d", path, got.status)
		}
		if got := r.overTCP("GET", path, bearer(readToken)); got.status != 404 {
			t.Errorf("%s: %d", path, got.status)
		}
	}
	if got := r.overTCP("PUT", "/v1/status", bearer(token)); got.status != 405 || got.header.Get("Allow") != "GET" {
		t.Errorf("PUT /v1/status: %d, Allow: %s", got.status, got.header.Get("Allow"))
	}
	// The status says which of the two a token is.
	for token, want := range map[string]string{token: `"access":"full"`, readToken: `"access":"read"`} {
		if got := r.overTCP("GET", "/v1/status", bearer(token)); !strings.Contains(got.body, want) {
			t.Errorf("%s is not in %s", want, got.body)
		}
	}
	if got := r.ask("GET", "/v1/status", ""); !strings.Contains(got.body, `"access":"full"`) {
		t.Errorf("over the Unix socket: %s", got.body)
	}
	// The tokens do not leave by the configuration.
	if got := r.overTCP("GET", "/v1/config", bearer(readToken)); got.status != 200 || strings.Contains(got.body, token) || !strings.Contains(got.body, "[secret]") {
		t.Errorf("/v1/config: %d %s", got.status, got.body)
	}
}

// Without a read token in the configuration, the empty token is none.
func TestNoReadToken(t *testing.T) {
	s := New(&synthetic{}, Config{Token: token})
	for _, header := range []string{"", "Bearer", "Bearer ", "Bearer  "} {
		if got := s.tokenAccess(header); got != open {
			t.Errorf("%q grants %d", header, got)
		}
	}
	if got := s.tokenAccess("Bearer " + token); got != full {
		t.Errorf("the token grants %d", got)
	}
}

// The dashboard's files are for everybody, and may load nothing from elsewhere.
func TestPage(t *testing.T) {
	r := newRig(t, &synthetic{})
	for path, want := range map[string]int{"/": 200, "/a.js": 200, "/none.js": 401, "/..%2fa": 401} {
		got := r.overTCP("GET", path, http.Header{})
		if got.status != want || want == 200 && !strings.Contains(got.header.Get("Content-Security-Policy"), "connect-src 'self'") {
			t.Errorf("%s: %d %v", path, got.status, got.header)
		}
	}
	if got := r.overTCP("GET", "/healthz", http.Header{}); got.header.Get("Content-Security-Policy") != "default-src 'none'; frame-ancestors 'none'" ||
		got.header.Get("X-Content-Type-Options") != "nosniff" || got.header.Get("Cache-Control") != "no-store" || got.header.Get("Access-Control-Allow-Origin") != "" || got.header.Get("Set-Cookie") != "" {
		t.Errorf("headers %v", got.header)
	}
}

// A page of another origin can neither reach the API by a name that leads here, nor
// ask for anything: over TCP, and over the Unix socket behind ssh -L.
func TestForeignPages(t *testing.T) {
	r := newRig(t, &synthetic{})
	ask := map[string]func(method, path string, header http.Header) answer{"TCP": r.overTCP, "Unix": r.overUnix}
	for network, ask := range ask {
		for host, want := range map[string]int{
			"localhost": 200, "localhost:1": 200, "127.0.0.1": 200, "127.9.9.9:80": 200, "[::1]:80": 200, "[::1]": 200, "LOCALHOST": 200,
			"evil.example": 421, "evil.example:80": 421, "10.0.0.1": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421, "0.0.0.0": 421,
		} {
			for _, path := range []string{"/v1/status", "/"} {
				if got := ask("GET", path, http.Header{"Host": {host}, "Authorization": {"Bearer " + token}}); got.status != want {
					t.Errorf("%s: Host %s: %s: %d, want %d", network, host, path, got.status, want)
				}
			}
		}
		// What a rebound page sends: both headers name its own site.
		rebound := http.Header{"Host": {"evil.example"}, "Origin": {"http://evil.example"}, "Sec-Fetch-Site": {"same-origin"}}
		if got := ask("PATCH", "/v1/groups/web/members/a", rebound); got.status != 421 {
			t.Errorf("%s: a rebound page: %d", network, got.status)
		}
		for _, c := range []struct {
			name string
			add  http.Header
			want int
		}{
			{"no origin", http.Header{}, 200},
			{"its own", http.Header{"Origin": {"http://" + r.tcp}}, 200},
			{"its own, by fetch metadata", http.Header{"Sec-Fetch-Site": {"same-origin"}}, 200},
			{"another", http.Header{"Origin": {"http://evil.example"}}, 403},
			{"another port", http.Header{"Origin": {"http://127.0.0.1:1"}}, 403},
			{"null", http.Header{"Origin": {"null"}}, 403},
			{"another, by fetch metadata", http.Header{"Sec-Fetch-Site": {"cross-site"}}, 403},
			{"another port, by fetch metadata", http.Header{"Sec-Fetch-Site": {"same-site"}, "Origin": {"http://" + r.tcp}}, 403},
		} {
			header := c.add.Clone()
			header.Set("Authorization", "Bearer "+token)
			header.Set("Host", r.tcp)
			for _, request := range []string{"POST /v1/drain", "GET /v1/status"} {
				method, path, _ := strings.Cut(request, " ")
				if got := ask(method, path, header); got.status != c.want {
					t.Errorf("%s: origin %s: %s: %d, want %d: %s", network, c.name, request, got.status, c.want, got.body)
				}
			}
		}
		// A link to the page from elsewhere works.
		if got := ask("GET", "/", http.Header{"Host": {r.tcp}, "Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"navigate"}}); got.status != 200 {
			t.Errorf("%s: a link to the page: %d", network, got.status)
		}
	}
}

// A request that is too long, or none at all, gets an answer and costs nothing more.
func TestMalformedRequests(t *testing.T) {
	r := newRig(t, &synthetic{members: 3})
	long := strings.Repeat("x", 2<<20)
	for _, c := range []struct{ name, request, want string }{
		{"no HTTP", "hello\r\n\r\n", "HTTP/1.1 400"},
		{"a version that is none", "GET / HTTP/9.9\r\n\r\n", "HTTP/1.1 505"},
		{"no host", "GET /v1/status HTTP/1.1\r\n\r\n", "HTTP/1.1 400"},
		{"a long header", "GET /v1/status HTTP/1.1\r\nHost: localhost\r\nA: " + long[:64<<10] + "\r\n\r\n", "HTTP/1.1 431"},
		{"a long path", "GET /" + long[:64<<10] + " HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 431"},
		{"a long body", "PUT /v1/log HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2097152\r\n\r\n{\"level\":\"" + long[:1<<20], "HTTP/1.1 413"},
		{"a body where none is", "POST /v1/drain HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", "HTTP/1.1 200"},
		{"two lengths", "POST /v1/reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc", "HTTP/1.1 400"},
		{"a control character", "GET /v1/groups/a\x01b HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 400"},
		{"no JSON", "PUT /v1/log HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\n{\"lev", "HTTP/1.1 400"},
		{"an encoded slash", "GET /v1/groups/a%2Fb HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 404"},
		{"dots", "GET /v1/../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 307"},
	} {
		conn, err := net.Dial("unix", r.path)
		if err != nil {
			t.Fatal(err)
		}
		go io.WriteString(conn, c.request) // it may stop reading before the end
		line, err := bufio.NewReader(conn).ReadString('\n')
		if !strings.HasPrefix(line, c.want) {
			t.Errorf("%s: %q, %v, want %s", c.name, line, err, c.want)
		}
		conn.Close()
	}
	if _, err := r.client.Diff(context.Background(), []byte(strings.Repeat("#", maxConfig+1))); problem(err) != 413 || !strings.Contains(err.Error(), "4194304") {
		t.Errorf("a configuration that is too long: %v", err)
	}
	if _, err := r.client.Diff(context.Background(), []byte(strings.Repeat("#", maxConfig))); err != nil {
		t.Errorf("a configuration that is not: %v", err)
	}
}

// problem is the status of an error that is one of the API's, or 0.
func problem(err error) int {
	var p *api.Problem
	if errors.As(err, &p) {
		return p.Status
	}
	return 0
}

func TestListen(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "s")
	l, err := Listen(spec.Endpoint{Kind: spec.Unix, Path: path}, 0)
	if err != nil {
		t.Fatal(err)
	}
	mode := func(want os.FileMode) {
		t.Helper()
		if info, err := os.Lstat(path); err != nil || info.Mode() != os.ModeSocket|want {
			t.Errorf("%v, %v, want %o", info, err, want)
		}
	}
	mode(0o600)
	if l.Addr().String() != path {
		t.Errorf("address %s", l.Addr())
	}
	if second, err := Listen(spec.Endpoint{Kind: spec.Unix, Path: path}, 0); err == nil || !strings.Contains(err.Error(), "another process listens") {
		t.Errorf("a second listener: %v, %v", second, err)
	}
	// What is left of a process that is gone is replaced, and what replaced it is left alone.
	l.(*unixListener).UnixListener.Close()
	again, err := Listen(spec.Endpoint{Kind: spec.Unix, Path: path}, 0o660)
	if err != nil {
		t.Fatal(err)
	}
	mode(0o660)
	l.Close()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	again.Close()
	if left, err := os.ReadDir(folder); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		"unix://" + path: "is not a socket", "unix:///nowhere/at/all": "the folder /nowhere/at does not exist; make it", "unix://" + path + "/s": "is not a folder", "unix:@name": "allowed: unix:///PATH",
		"tcp://0.0.0.0:0": "allowed: a loopback address", "tcp://:0": "allowed: a loopback address", "tcp://example.com:1": "allowed: a loopback address",
	} {
		at, err := spec.ParseListener(url)
		if err != nil {
			t.Fatal(err)
		}
		if l, err := Listen(at, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want %q", url, l, err, want)
		}
	}
	// TCP without a token is not served.
	l, err = Listen(spec.Endpoint{Kind: spec.TCP, Host: "localhost"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := New(&synthetic{}, Config{}).Serve(l); err == nil || !strings.Contains(err.Error(), "token") {
		t.Errorf("without a token: %v", err)
	}
}
