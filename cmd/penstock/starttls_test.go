package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/testcerts"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// The first messages of PostgreSQL's clients.
const (
	sslRequest    = "\x00\x00\x00\x08\x04\xd2\x16\x2f"
	gssRequest    = "\x00\x00\x00\x08\x04\xd2\x16\x30"
	cancelRequest = "\x00\x00\x00\x10\x04\xd2\x16\x2e\x00\x00\x12\x34\x89\xab\xcd\xef"
	clearStart    = "\x00\x00\x00\x10\x00\x03\x00\x00user\x00a\x00\x00"
)

// A database begins like a server of PostgreSQL, and then says its name over TLS and echoes.
type database struct {
	net.Listener
	answer string // to SSLRequest
	clear  bool   // it has no TLS: it says its name at once
	header bool   // a PROXY header comes first
	came   atomic.Int64
	asked  atomic.Int64 // clients that have sent SSLRequest first
}

func serveDatabase(t *testing.T, name, answer string, cert *testcerts.Cert) *database {
	t.Helper()
	db := &database{Listener: testnet.Listen(t, "tcp4"), answer: answer, clear: cert == nil, header: name == "header"}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := db.Accept()
			if err != nil {
				return
			}
			db.came.Add(1)
			all.Go(func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(patience))
				if db.header {
					if text, err := readName(c); err != nil || !strings.HasPrefix(text, "PROXY TCP4 ") {
						return
					}
				}
				if !db.clear {
					b := make([]byte, len(sslRequest))
					if _, err := io.ReadFull(c, b); err != nil || string(b) != sslRequest {
						return
					}
					db.asked.Add(1)
					io.WriteString(c, db.answer)
					c = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert.TLS()}})
				}
				if _, err := io.WriteString(c, name+"\n"); err != nil {
					return
				}
				if n, _ := io.Copy(c, c); n > 0 {
					c.Close() // with close_notify, if there is TLS; a client that has only read the name has closed, and would be reset by it
				}
			})
		}
	})
	t.Cleanup(func() { db.Close(); all.Wait() })
	return db
}

func (db *database) url() string { return url(db.Addr()) }

// askTLS asks for TLS, byte by byte.
func askTLS(t *testing.T, c net.Conn, requests ...string) {
	t.Helper()
	c.SetDeadline(time.Now().Add(patience))
	for _, r := range requests {
		for i := range len(r) {
			if _, err := io.WriteString(c, r[i:i+1]); err != nil {
				t.Fatal(err)
			}
		}
		want := "S"
		if r == gssRequest {
			want = "N"
		}
		got := make([]byte, 1)
		if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
			t.Fatalf("%q is answered by %q, %v", r, got, err)
		}
	}
}

// hasty sends a ClientHello right behind SSLRequest, without waiting for the answer.
type hasty struct {
	net.Conn
	asked, answered bool
}

func (c *hasty) Write(b []byte) (int, error) {
	if c.asked {
		return c.Conn.Write(b)
	}
	c.asked = true
	n, err := c.Conn.Write(append([]byte(sslRequest), b...))
	return max(n-len(sslRequest), 0), err
}

func (c *hasty) Read(b []byte) (int, error) {
	if !c.answered {
		c.answered = true
		if got, err := io.ReadAll(io.LimitReader(c.Conn, 1)); err != nil || string(got) != "S" {
			return 0, fmt.Errorf("answer %q, %w", got, err)
		}
	}
	return c.Conn.Read(b)
}

// Databases are found by server name behind one port, whether TLS ends here, passes through, or begins again; nothing of a client
// is ever sent in the clear.
func TestStartTLS(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	authority := testcerts.Authority(t, "authority")
	both := authority.Issue(t, "db", testcerts.For("a.db.test", "b.db.test"))
	cert, key := both.Write(t, dir, "db")
	ca, _ := authority.Write(t, dir, "ca")
	a, b, header := serveDatabase(t, "a", "S", both), serveDatabase(t, "b", "S", both), serveDatabase(t, "header", "S", both)
	plain := serveDatabase(t, "plain", "", nil)
	d := runFile(t, `
defaults: {sniff: {timeout: 1m}, timeouts: {connect: 1m}}
listeners:
  pass:
    listen: tcp://127.0.0.1:0
    starttls: postgresql
    routes: [{sni: a.db.test, to: a}, {sni: b.db.test, to: b}]
    to: a
  front:
    listen: tcp://127.0.0.1:0
    proxy-protocol: {from: 127.0.0.1/32}
    starttls: postgresql
    routes: [{sni: b.db.test, to: b}]
  end:
    listen: tcp://127.0.0.1:0
    starttls: postgresql
    tls: {certificates: [{certificate: "{0}", key: "{1}"}]}
    routes: [{sni: b.db.test, to: b, tls: pass}, {sni: a.db.test, to: again}]
    to: plain
  lax:
    listen: tcp://127.0.0.1:0
    starttls: {protocol: postgresql, clear: cancel}
    tls: {certificates: [{certificate: "{0}", key: "{1}"}]}
    to: plain
groups:
  a: {members: "{3}"}
  b: {members: "{4}", check: {tcp: {every: 100ms, timeout: 60s, tls: {ca: "{2}", server-name: b.db.test, starttls: postgresql}}}}
  again: {members: "{6}", proxy-protocol: v1, tls: {ca: "{2}", starttls: postgresql}}
  plain: {members: "{5}"}
`, cert, key, ca, a.url(), b.url(), plain.url(), header.url())
	testwait.Until(t, "the check asks for TLS", func() bool { return b.asked.Load() > 0 })

	n := 0
	ended := func(pairs ...any) {
		t.Helper()
		n++
		mustBe(t, d.records(n)[n-1], pairs...)
	}
	secure := func(c net.Conn, sni string, alpn ...string) *tls.Conn {
		return tls.Client(c, &tls.Config{ServerName: sni, RootCAs: authority.Pool(), NextProtos: alpn, InsecureSkipVerify: sni == ""})
	}
	for _, x := range []struct{ listener, sni, want string }{
		{"pass", "a.db.test", "a"}, {"pass", "b.db.test", "b"}, {"pass", "", "a"}, {"end", "a.db.test", "header"}, {"end", "b.db.test", "b"}, {"end", "", "plain"},
	} {
		c := d.to(x.listener)
		askTLS(t, c, gssRequest, sslRequest)
		s := secure(c, x.sni)
		if got := name(t, s); got != x.want {
			t.Errorf("%s at %s: %s", x.sni, x.listener, got)
		}
		mustEcho(t, s, 100_000, 10_000)
		ended("cause", "end", "starttls", "request", "listener", x.listener)
	}

	for listener, want := range map[string]string{"pass": "a", "end": "header"} {
		s := secure(&hasty{Conn: d.to(listener)}, "a.db.test")
		if got := name(t, s); got != want {
			t.Errorf("a hasty client at %s: %s", listener, got)
		}
		s.Close()
		ended("cause", "end", "starttls", "request")
	}

	// Behind a PROXY header, and at once.
	c := d.to("front")
	io.WriteString(c, "PROXY TCP4 192.0.2.7 192.0.2.8 1000 2000\r\n")
	askTLS(t, c, sslRequest)
	s := secure(c, "b.db.test")
	if got := name(t, s); got != "b" {
		t.Errorf("behind a PROXY header: %s", got)
	}
	s.Close()
	ended("cause", "end", "client_ip", "192.0.2.7", "starttls", "request")
	s = secure(d.to("end"), "a.db.test", "postgresql")
	if got := name(t, s); got != "header" || s.ConnectionState().NegotiatedProtocol != "postgresql" {
		t.Errorf("direct: %s, ALPN %q", got, s.ConnectionState().NegotiatedProtocol)
	}
	s.Close()
	ended("cause", "end", "starttls", "direct")

	// What is in the clear, twice, or no TLS after all reaches nobody.
	sum := func() int64 { return a.came.Load() + plain.came.Load() + header.came.Load() }
	before := sum()
	for _, x := range []struct{ listener, says, hears, start, cause, reason string }{
		{"pass", clearStart, "this listener requires TLS", "clear", "refused", "starttls"},
		{"end", clearStart, "this listener requires TLS", "clear", "refused", "starttls"},
		{"lax", clearStart, "this listener requires TLS", "clear", "refused", "starttls"},
		{"pass", cancelRequest, "", "cancel", "refused", "starttls"},
		{"end", cancelRequest, "", "cancel", "refused", "starttls"},
		{"pass", "GET / HTTP/1.0\r\n\r\n", "", "", "refused", "starttls"},
		{"end", "GET / HTTP/1.0\r\n\r\n", "", "", "refused", "starttls"},
		{"pass", sslRequest + clearStart, "S", "request", "refused", "starttls"},
		{"end", sslRequest + clearStart, "S", "request", "client-tls", ""},
		{"pass", sslRequest + sslRequest, "S", "request", "refused", "starttls"},
		{"pass", sslRequest + cancelRequest, "S", "request", "refused", "starttls"},
		{"end", sslRequest + gssRequest, "S", "request", "client-tls", ""},
		{"pass", gssRequest + gssRequest, "N", "", "refused", "starttls"},
		{"pass", gssRequest + clearStart, "N", "clear", "refused", "starttls"},
	} {
		c := d.to(x.listener)
		c.SetDeadline(time.Now().Add(patience))
		io.WriteString(c, x.says)
		got, _ := io.ReadAll(c)
		if !strings.Contains(string(got), x.hears) || x.hears == "" && len(got) > 0 {
			t.Errorf("%q at %s hears %q", x.says, x.listener, got)
		}
		want := []any{"cause", x.cause}
		for field, value := range map[string]string{"starttls": x.start, "reason": x.reason} {
			if value != "" {
				want = append(want, field, value)
			} else {
				want = append(want, field, nil)
			}
		}
		ended(want...)
	}
	for _, x := range []struct{ says, reason string }{{"", "client-ended"}, {sslRequest[:5], "client-ended"}, {sslRequest, "client-ended"}, {sslRequest + "\x16\x03\x01\x02\x00\x01", "client-ended"}} {
		c := d.to("pass")
		io.WriteString(c, x.says)
		c.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, c)
		ended("cause", "refused", "reason", x.reason)
	}
	if sum() != before {
		t.Errorf("%d clients that were refused have reached a member", sum()-before)
	}

	c = d.to("lax")
	io.WriteString(c, cancelRequest)
	if got := name(t, c); got != "plain" {
		t.Errorf("cancel: %s", got)
	}
	got := make([]byte, len(cancelRequest))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != cancelRequest {
		t.Errorf("the member was sent %q, %v", got, err)
	}
	c.Close()
	ended("cause", "end", "starttls", "cancel")
}

// A member that does not agree gets nothing of a client, which goes to the next one; the log says in words what it said.
func TestStartTLSRefused(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	authority := testcerts.Authority(t, "authority")
	both := authority.Issue(t, "db", testcerts.For("a.db.test"))
	cert, key := both.Write(t, dir, "db")
	ca, _ := authority.Write(t, dir, "ca")
	no, early := serveDatabase(t, "no", "N", both), serveDatabase(t, "early", "Sand more", both)
	fails, good := serveDatabase(t, "fails", "E\x00\x00\x00\x10SFATAL", both), serveDatabase(t, "good", "S", both)
	silent := serveDatabase(t, "silent", "", both)
	text := "groups:\n"
	routes := ""
	for i, db := range []*database{no, early, fails, silent} {
		patient := "1m"
		if db == silent {
			patient = "300ms"
		}
		text += fmt.Sprintf("  p%d: {members: [%q], timeouts: {connect: %s}}\n  t%d: {members: [%q], timeouts: {connect: %s}, tls: {ca: %q, starttls: postgresql}}\n", i, db.url(), patient, i, db.url(), patient, ca)
		routes += fmt.Sprintf("{sni: p%d.db.test, tls: pass, to: p%d}, {sni: t%d.db.test, to: t%d}, ", i, i, i, i)
	}
	d := runFile(t, `
defaults: {sniff: {timeout: 1m}}
listeners:
  db:
    listen: tcp://127.0.0.1:0
    starttls: postgresql
    tls: {certificates: [{certificate: "{0}", key: "{1}"}]}
    routes: [`+routes+`{sni: a.db.test, to: next}]
`+text+`  next: {balance: first, retries: 1, timeouts: {connect: 1m}, members: ["{3}", "{4}"], tls: {ca: "{2}", starttls: postgresql}}
`, cert, key, ca, no.url(), good.url())
	n := 0
	for i, want := range []string{"does not offer TLS", "more than its answer", "with an error", "timeout"} {
		for _, kind := range []string{"p", "t"} {
			c := d.to("db")
			askTLS(t, c, sslRequest)
			s := tls.Client(c, &tls.Config{ServerName: fmt.Sprintf("%s%d.db.test", kind, i), InsecureSkipVerify: true})
			if _, err := io.WriteString(s, "secret"); err == nil {
				io.Copy(io.Discard, s)
			}
			c.Close()
			n++
			r := d.records(n)[n-1]
			cause := map[string]string{"p": "no-upstream", "t": "upstream-tls"}[kind]
			if want == "timeout" {
				cause = "connect-timeout"
			}
			mustBe(t, r, "cause", cause)
			if text, _ := r["error"].(string); !strings.Contains(text, want) {
				t.Errorf("%s%d: error %q, want %q", kind, i, text, want)
			}
		}
	}
	c := d.to("db")
	askTLS(t, c, sslRequest)
	s := tls.Client(c, &tls.Config{ServerName: "a.db.test", RootCAs: authority.Pool()})
	if got := name(t, s); got != "good" {
		t.Errorf("after a member without TLS: %s", got)
	}
	s.Close()
	n++
	mustBe(t, d.records(n)[n-1], "cause", "end", "retries", 1.0)
}

// psql and a server of PostgreSQL, with TLS that passes through, ends here, and begins again.
func psql(t *testing.T, server string, cert, key, ca string) {
	need(t, "psql")
	d := runFile(t, `
listeners:
  pass: {listen: "tcp://127.0.0.1:0", starttls: postgresql, routes: [{sni: a.db.test, to: clear}]}
  end:
    listen: tcp://127.0.0.1:0
    starttls: postgresql
    tls: {certificates: [{certificate: "{1}", key: "{2}"}]}
    routes: [{sni: a.db.test, to: clear}]
  again:
    listen: tcp://127.0.0.1:0
    starttls: postgresql
    tls: {certificates: [{certificate: "{1}", key: "{2}"}]}
    routes: [{sni: a.db.test, to: tls}]
groups:
  clear: {members: "{0}"}
  tls: {members: "{0}", tls: {ca: "{3}", starttls: postgresql}}
`, server, cert, key, ca)
	for listener, encrypted := range map[string]string{"pass": "t", "end": "f", "again": "t"} {
		_, port, err := net.SplitHostPort(d.at(listener).String())
		if err != nil {
			t.Fatal(err)
		}
		for _, mode := range []string{"require", "verify-full", "disable"} {
			cmd := exec.Command("psql", "-X", "-At", "-c", "select ssl from pg_stat_ssl where pid = pg_backend_pid()",
				fmt.Sprintf("hostaddr=127.0.0.1 host=a.db.test port=%s user=bench dbname=postgres sslmode=%s sslrootcert=%s connect_timeout=30", port, mode, ca))
			cmd.Env = append(os.Environ(), "HOME="+filepath.Dir(ca))
			out, err := cmd.CombinedOutput()
			switch text := strings.TrimSpace(string(out)); {
			case mode == "disable" && err != nil && strings.Contains(text, "FATAL:  this listener requires TLS"):
			case mode == "disable" || err != nil || text != encrypted:
				t.Errorf("sslmode=%s at %s: %q, %v", mode, listener, text, err)
			}
		}
	}
}
