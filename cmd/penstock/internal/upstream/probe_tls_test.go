package upstream

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/certs"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/testcerts"
	"github.com/penstock/penstock/relay"
)

// serveTLS is serve for a server that has a certificate.
func serveTLS(t *testing.T, network string, c *tls.Config, handle func(*tls.Conn)) relay.Addr {
	t.Helper()
	return serve(t, listen(t, network), func(conn net.Conn) {
		conn.SetDeadline(time.Now().Add(longEnough))
		s := tls.Server(conn, c)
		if s.Handshake() == nil {
			handle(s)
		}
		s.Close()
	})
}

// rest reads until the other side ends.
func rest(c net.Conn) { io.Copy(io.Discard, c) }

// authority returns an authority, and the file with its certificate.
func authority(t *testing.T) (*testcerts.Cert, string) {
	t.Helper()
	ca := testcerts.Authority(t, "Test CA")
	file, _ := ca.Write(t, t.TempDir(), "ca")
	return ca, file
}

// askTLS probes once, with TLS as the group has it.
func askTLS(t *testing.T, c *spec.Check, on *spec.ClientTLS, to relay.Addr) (finding, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longEnough)
	defer cancel()
	m := &probed{group: &spec.Group{Check: c, TLS: on}, addr: to, host: "web.example"}
	if c.BodyRE != "" {
		m.body = regexp.MustCompile(c.BodyRE)
	}
	return newProber(nil).probe(ctx, m)
}

// Each kind of check of streams does what it does with TLS, too, over TCP and Unix sockets.
func TestProbeOverTLS(t *testing.T) {
	ca, file := authority(t)
	leaf := ca.Issue(t, "web.example")
	server := &tls.Config{Certificates: []tls.Certificate{leaf.TLS()}, NextProtos: []string{"h2", "http/1.1"}}
	on := &spec.ClientTLS{CA: file, MinVersion: tls.VersionTLS12, ALPN: spec.Offer{List: "h2,http/1.1"}}
	for _, network := range []string{"tcp", "unix"} {
		var protocol atomic.Value
		to := serveTLS(t, network, server, func(s *tls.Conn) {
			protocol.Store(s.ConnectionState().NegotiatedProtocol)
			r := bufio.NewReader(s)
			switch line, _ := r.ReadString('\n'); {
			case line == "PING\n":
				io.WriteString(s, "+PONG\n")
			case strings.HasPrefix(line, "GET "):
				if req, err := http.ReadRequest(bufio.NewReader(io.MultiReader(strings.NewReader(line), r))); err == nil {
					fmt.Fprintf(s, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\nhost %s\n", 6+len(req.Host), req.Host)
				}
			}
		})
		for _, c := range []struct {
			check    *spec.Check
			protocol string
			want     string
		}{
			{&spec.Check{Kind: "tcp"}, "h2", ""},
			{&spec.Check{Kind: "send-expect", Send: []byte("PING\n"), Expect: []byte("+PONG")}, "h2", ""},
			{&spec.Check{Kind: "send-expect", Send: []byte("PING\n"), Expect: []byte("+PANG")}, "h2", `the answer is "+PONG\n"; expected: "+PANG"`},
			{&spec.Check{Kind: "http", Method: "GET", Body: "host web.example\n"}, "http/1.1", ""},
			{&spec.Check{Kind: "http", Method: "GET", Host: "a.example:1", Body: "host a.example:1\n"}, "http/1.1", ""},
			{&spec.Check{Kind: "http", Method: "GET", Statuses: [][2]int{{204, 204}}}, "http/1.1", "status 200; expected: 204"},
		} {
			found, err := askTLS(t, c.check, on, to)
			if text(err) != c.want {
				t.Errorf("%s, %s: %q, want %q", network, c.check.Kind, text(err), c.want)
			}
			if !found.expires.Equal(leaf.NotAfter) {
				t.Errorf("%s, %s: the certificate ends %v, want %v", network, c.check.Kind, found.expires, leaf.NotAfter)
			}
			// A check that only connects is over before the member knows.
			if got := protocol.Load(); c.check.Kind != "tcp" && got != c.protocol {
				t.Errorf("%s, %s: protocol %q, want %q", network, c.check.Kind, got, c.protocol)
			}
		}
		// Of a group that passes TLS through, and of one whose checks are to have none.
		if _, err := askTLS(t, &spec.Check{Kind: "tcp", TLS: on}, nil, to); err != nil {
			t.Error(err)
		}
		if found, err := askTLS(t, &spec.Check{Kind: "tcp", NoTLS: true}, on, to); err != nil || !found.expires.IsZero() {
			t.Error(found, err)
		}
	}
}

// What is wrong with a member's TLS is said so, and the end of its certificate is known in any case.
func TestProbeRefusesCertificate(t *testing.T) {
	ca, file := authority(t)
	_, otherFile := authority(t)
	web := ca.Issue(t, "web.example").TLS()
	old := ca.Issue(t, "web.example", testcerts.Valid(-48*time.Hour, -time.Hour))
	own, key := ca.Issue(t, "relay.example").Write(t, t.TempDir(), "own")
	asks := &tls.Config{Certificates: []tls.Certificate{web}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool()}
	asks12 := asks.Clone()
	asks12.MaxVersion = tls.VersionTLS12
	for _, c := range []struct {
		name   string
		server *tls.Config
		on     spec.ClientTLS
		want   string
		known  bool // the end of the certificate
	}{
		{"expired", &tls.Config{Certificates: []tls.Certificate{old.TLS()}}, spec.ClientTLS{CA: file}, "TLS: the certificate of web.example has expired, on " + old.NotAfter.Format("2006-01-02 15:04") + " UTC", true},
		{"another name", &tls.Config{Certificates: []tls.Certificate{web}}, spec.ClientTLS{CA: file, ServerName: "b.example"}, "TLS: the certificate is for web.example, not for b.example (server-name in tls sets another name)", true},
		{"unknown authority", &tls.Config{Certificates: []tls.Certificate{web}}, spec.ClientTLS{CA: otherFile}, "TLS: the certificate of web.example is signed by Test CA, which is not", true},
		{"no CA file", &tls.Config{Certificates: []tls.Certificate{web}}, spec.ClientTLS{CA: file + ".none"}, "TLS: " + file + ".none: no such file", false},
		{"a certificate is missing", asks, spec.ClientTLS{CA: file}, "TLS: the member refuses: certificate required", true},
		{"a certificate is missing, TLS 1.2", asks12, spec.ClientTLS{CA: file}, "TLS: the member refuses: handshake failure", false},
		{"a certificate is there", asks, spec.ClientTLS{CA: file, Cert: own, Key: key}, "", true},
		{"an old version", asks12, spec.ClientTLS{CA: file, MinVersion: tls.VersionTLS13}, "TLS: the member refuses: protocol version not supported", false},
	} {
		to := serveTLS(t, "tcp", c.server, func(s *tls.Conn) { rest(s) })
		c.on.MinVersion = max(c.on.MinVersion, tls.VersionTLS12)
		found, err := askTLS(t, &spec.Check{Kind: "tcp"}, &c.on, to)
		if c.want == "" && err != nil || !strings.HasPrefix(text(err), c.want) {
			t.Errorf("%s: %q, want %q", c.name, text(err), c.want)
		}
		if found.expires.IsZero() == c.known {
			t.Errorf("%s: the certificate ends %v", c.name, found.expires)
		}
	}
	// A member refuses the certificate after the handshake: a request sees it, too.
	to := serveTLS(t, "tcp", asks, func(s *tls.Conn) { rest(s) })
	if _, err := askTLS(t, &spec.Check{Kind: "http", Method: "GET"}, &spec.ClientTLS{CA: file, MinVersion: tls.VersionTLS12}, to); !strings.Contains(text(err), "TLS: the member refuses: certificate required") {
		t.Error(err)
	}
}

// The PROXY header comes before the handshake, and the connection is the group's.
func TestProbeTLSBehindProxyHeader(t *testing.T) {
	ca, file := authority(t)
	c := &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, "web.example").TLS()}}
	var got, from atomic.Value
	to := serve(t, listen(t, "tcp"), func(conn net.Conn) {
		conn.SetDeadline(time.Now().Add(longEnough))
		b := make([]byte, 16)
		io.ReadFull(conn, b)
		got.Store(string(b))
		from.Store(conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().String())
		s := tls.Server(conn, c)
		if s.Handshake() == nil {
			io.WriteString(s, "220 ready\n")
			rest(s)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), longEnough)
	defer cancel()
	m := &probed{addr: to, host: "web.example", group: &spec.Group{
		Check: &spec.Check{Kind: "send-expect", Send: []byte("EHLO\n"), Expect: []byte("220 ")}, TLS: &spec.ClientTLS{CA: file, MinVersion: tls.VersionTLS12},
		Dial: spec.Dial{Proxy: 2, Source: []netip.Addr{netip.MustParseAddr("127.83.0.12")}},
	}}
	if _, err := newProber(nil).probe(ctx, m); err != nil {
		t.Fatal(err)
	}
	if got.Load() != localProxyHeader[2] || from.Load() != "127.83.0.12" {
		t.Errorf("the member got %q from %v", got.Load(), from.Load())
	}
}

func TestProbeBody(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</x>")
		w.WriteHeader(http.StatusEarlyHints)
		switch r.URL.Path {
		case "/pieces":
			for _, b := range []byte("status: ok") {
				w.Write([]byte{b})
				w.(http.Flusher).Flush()
			}
		case "/late":
			io.WriteString(w, strings.Repeat("x", maxAnswer-1)+"status: ok")
		case "/endless":
			io.WriteString(w, "status: ok\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}))
	defer s.Close()
	to := addrOf(s.Listener.Addr())
	for _, c := range []struct{ path, body, pattern, want string }{
		{"/pieces", "status: ok", "", ""},
		{"/pieces", "", "(?i)^STATUS: *ok$", ""},
		{"/pieces", "ok", "^status", ""},
		{"/pieces", "OK", "", `the body begins with "status: ok"; expected in it: "OK"`},
		{"/pieces", "ok", "^ok", `the body begins with "status: ok"; expected to match: "^ok"`},
		{"/nothing", "ok", "", `the body begins with ""; expected in it: "ok"`},
		{"/late", "status", "", `the body begins with "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"; expected in it: "status"`},
		{"/late", "", "xs$", ""},
		{"/endless", "status: ok", "", ""},
	} {
		check := &spec.Check{Kind: "http", Method: "GET", Path: c.path, Body: c.body, BodyRE: c.pattern}
		if _, err := askTLS(t, check, nil, to); text(err) != c.want {
			t.Errorf("%s with %q and %q: %v", c.path, c.body, c.pattern, err)
		}
	}
	check := &spec.Check{Kind: "http", Method: "GET", Path: "/endless", BodyRE: "ok$"}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := newProber(nil).probe(ctx, &probed{group: &spec.Group{Check: check}, addr: to, body: regexp.MustCompile(check.BodyRE)})
	if !strings.Contains(text(err), "i/o timeout") { // "the body did not end after 11 bytes", unless the machine is busy
		t.Errorf("a body without an end: %v", err)
	}
}

// Members that mean harm cost a check no more than its time and some memory.
func TestProbeAttacks(t *testing.T) {
	ca, file := authority(t)
	c := &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, "web.example").TLS()}}
	over := func(handle func(*tls.Conn)) func(net.Conn) {
		return func(conn net.Conn) {
			if s := tls.Server(conn, c); s.Handshake() == nil {
				s.Read(make([]byte, 4096)) // the end of a connection with something unread is a reset
				handle(s)
				s.Close()
			}
		}
	}
	// forever writes until the other side ends.
	forever := func(w io.Writer, b []byte) {
		for {
			if _, err := w.Write(b); err != nil {
				return
			}
		}
	}
	hello := func(c net.Conn) { io.ReadAtLeast(c, make([]byte, 4096), 30) }
	slow := func(c net.Conn, b []byte) {
		for i := range b {
			if _, err := c.Write(b[i : i+1]); err != nil {
				return
			}
			select {
			case <-t.Context().Done():
				return
			case <-time.After(time.Millisecond):
			}
		}
		rest(c)
	}
	kilobytes := bytes.Repeat([]byte("x"), 16<<10)
	for _, a := range []struct {
		name   string
		kind   string
		handle func(net.Conn)
		want   string // part of the error
		over   bool   // only the deadline ends it, on a busy machine maybe before the handshake
	}{
		{"silence", "tcp", rest, "time", true},
		{"a trickle of a record", "tcp", func(c net.Conn) { hello(c); slow(c, append([]byte{22, 3, 3, 64, 0}, kilobytes...)) }, "time", true},
		{"a record without an end", "tcp", func(c net.Conn) { hello(c); c.Write([]byte{22, 3, 3, 64, 0}); c.Write(kilobytes[:100]); rest(c) }, "time", true},
		{"a truncated record", "tcp", func(c net.Conn) { hello(c); c.Write([]byte{22, 3, 3, 64, 0, 2}) }, "TLS: the member has ", false},
		{"an oversized record", "tcp", func(c net.Conn) { hello(c); c.Write([]byte{22, 3, 3, 255, 255}); forever(c, kilobytes) }, "TLS: ", false},
		{"an oversized message", "tcp", func(c net.Conn) { hello(c); c.Write([]byte{22, 3, 3, 0, 4, 2, 255, 255, 255}); rest(c) }, "TLS: ", false},
		{"garbage", "tcp", func(c net.Conn) { hello(c); forever(c, []byte("\x00\xff\xfe\xfd\n")) }, "TLS: the member does not speak TLS", false},
		{"empty records", "tcp", func(c net.Conn) { hello(c); forever(c, []byte{22, 3, 3, 0, 0}) }, "TLS: ", false},
		{"warnings without end", "tcp", func(c net.Conn) { hello(c); forever(c, []byte{21, 3, 3, 0, 2, 1, 90}) }, "TLS: ", false},
		{"no TLS", "http", func(c net.Conn) { hello(c); io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"); rest(c) }, "TLS: the member does not speak TLS", false},
		{"an endless head", "http", over(func(s *tls.Conn) { io.WriteString(s, "HTTP/1.1 200 OK\r\n"); forever(s, []byte("X: y\r\n")) }), "the head of the answer is more than 65536 bytes long", false},
		{"an endless line", "http", over(func(s *tls.Conn) { io.WriteString(s, "HTTP/1.1 200 OK\r\nX: "); forever(s, kilobytes) }), "the head of the answer is more than 65536 bytes long", false},
		{"interim answers without end", "http", over(func(s *tls.Conn) { forever(s, []byte("HTTP/1.1 103 Early Hints\r\n\r\n")) }), "status 103", false},
		{"an endless body", "http", over(func(s *tls.Conn) { io.WriteString(s, "HTTP/1.1 200 OK\r\n\r\n"); forever(s, kilobytes) }), `expected in it: "ok"`, false},
		{"chunks without end", "http", over(func(s *tls.Conn) {
			io.WriteString(s, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			forever(s, []byte("1;"+strings.Repeat("e", 1000)+"\r\nx\r\n"))
		}), "the body did not end", false},
		{"a body that is cut", "http", over(func(s *tls.Conn) { io.WriteString(s, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nx") }), "the body did not end after 1 bytes", false},
		{"a trickle of a head", "http", over(func(s *tls.Conn) { slow(s, append([]byte("HTTP/1.1 200 OK\r\nX: "), kilobytes...)) }), "time", true},
		{"an endless answer", "send-expect", over(func(s *tls.Conn) { forever(s, kilobytes) }), "the answer is more than 65536 bytes long", false},
		{"the end without a word", "send-expect", over(func(s *tls.Conn) { s.NetConn().Close() }), "no answer", false},
	} {
		t.Run(strings.ReplaceAll(a.name, " ", "-"), func(t *testing.T) {
			to := serve(t, listen(t, "tcp"), func(c net.Conn) {
				c.SetDeadline(time.Now().Add(longEnough))
				a.handle(c)
			})
			timeout := longEnough
			if a.over {
				timeout = 100 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			check := &spec.Check{Kind: a.kind, Method: "GET", Body: "ok", Send: []byte("x"), Expect: []byte("ok")}
			_, err := newProber(nil).probe(ctx, &probed{group: &spec.Group{Check: check, TLS: &spec.ClientTLS{CA: file, MinVersion: tls.VersionTLS12}}, addr: to, host: "web.example"})
			if err == nil || !strings.Contains(err.Error(), a.want) {
				t.Errorf("%v; want %q", err, a.want)
			}
			if !a.over && ctx.Err() != nil {
				t.Error("only the deadline has ended the check")
			}
			if len(text(err)) > 400 || strings.ContainsAny(text(err), "\n\r\x00") {
				t.Errorf("the error is not a short line: %q", err)
			}
		})
	}
	mute := serve(t, listen(t, "tcp"), func(c net.Conn) { c.Read(make([]byte, 4096)) })
	if err := ask(t, &spec.Check{Kind: "http", Method: "GET"}, 0, mute, longEnough); text(err) != "the member has ended the connection without an answer" {
		t.Errorf("no answer: %v", err)
	}
	// A check without TLS of a member that has it.
	to := serve(t, listen(t, "tcp"), func(c net.Conn) { hello(c); c.Write([]byte{21, 3, 1, 0, 2, 2, 70}) })
	if err := ask(t, &spec.Check{Kind: "http", Method: "GET"}, 0, to, longEnough); !strings.Contains(text(err), "the member speaks TLS; allowed: tls in the check") {
		t.Errorf("without TLS: %v", err)
	}
}

// Members go down and up with what their certificates say, and the end of a certificate is told once for all that show it.
func TestCertificatesOfMembers(t *testing.T) {
	ca, file := authority(t)
	soon := ca.Issue(t, "web.example", testcerts.For(loopback), testcerts.Valid(-time.Hour, 3*24*time.Hour+time.Minute))
	var now atomic.Pointer[tls.Certificate]
	use := func(c *testcerts.Cert) { chain := c.TLS(); now.Store(&chain) }
	use(soon)
	server := &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return now.Load(), nil }}
	var members []spec.Member
	for range 3 {
		to := serveTLS(t, "tcp", server, func(s *tls.Conn) { rest(s) })
		members = append(members, spec.Member{Weight: 1, To: spec.Endpoint{Kind: spec.TCP, Host: to.AddrPort.Addr().String(), Port: to.AddrPort.Port()}})
	}
	states, expiries := make(chan MemberEvent, 100), make(chan CertificateEvent, 100)
	clients := certs.NewClients(certs.Options{}, nil)
	cfg := &spec.Group{
		Balance: "first", Members: members, TLS: &spec.ClientTLS{CA: file, MinVersion: tls.VersionTLS12},
		Check: &spec.Check{Kind: "tcp", Every: 20 * time.Millisecond, Timeout: longEnough, Rise: 1, Fall: 2},
	}
	clients.Set([]*spec.ClientTLS{cfg.TLS})
	s, _ := set(t, cfg, Options{MemberChanged: func(e MemberEvent) { states <- e }, CertificateExpires: func(e CertificateEvent) { expiries <- e }, Clients: clients})
	until := func(want State, why string) {
		t.Helper()
		missing := map[string]bool{}
		for _, m := range members {
			missing[m.To.String()] = true
		}
		for deadline := time.After(longEnough); len(missing) > 0; {
			select {
			case e := <-states:
				if e.To == want && strings.Contains(e.Why, why) {
					delete(missing, e.Member)
				}
			case <-deadline:
				t.Fatalf("%v are not %v because of %q", missing, want, why)
			}
		}
	}
	told := func(want time.Time) {
		t.Helper()
		select {
		case e := <-expiries:
			if !e.Expires.Equal(want) || e.Left > 7*24*time.Hour {
				t.Errorf("told: %+v, want %v", e, want)
			}
		case <-time.After(longEnough):
			t.Error("the end of the certificate is not told")
		}
	}
	until(Up, "check passed")
	told(soon.NotAfter)
	for _, m := range s.Snapshot()[0].Members {
		if !m.Expires.Equal(soon.NotAfter) {
			t.Errorf("the certificate of %s ends %v, want %v", m.Name, m.Expires, soon.NotAfter)
		}
	}
	old := ca.Issue(t, "web.example", testcerts.For(loopback), testcerts.Valid(-48*time.Hour, -time.Hour))
	use(old)
	until(Down, "check: TLS: the certificate of web.example has expired")
	told(old.NotAfter)
	use(ca.Issue(t, "web.example", testcerts.For(loopback)))
	until(Up, "check passed")
	use(ca.Issue(t, "other.example"))
	until(Down, "not for "+loopback)
	// Another authority, in the same file.
	next, nextFile := authority(t)
	use(next.Issue(t, "web.example", testcerts.For(loopback)))
	if err := os.Rename(nextFile, filepath.Clean(file)); err != nil {
		t.Fatal(err)
	}
	clients.Look()
	until(Up, "check passed")
	if len(expiries) > 0 {
		t.Errorf("told again: %+v", <-expiries)
	}
}
