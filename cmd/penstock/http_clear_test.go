package main

import (
	"bufio"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/testcerts"
)

// A request of HTTP in the clear is answered where TLS ends, whether a route is there for the client or not. Where those in the
// clear pass through, it reaches the member.
func TestHTTPOnTLSPort(t *testing.T) {
	t.Parallel()
	cert, key := testcerts.Authority(t, "ca").Issue(t, "one.test").Write(t, t.TempDir(), "one")
	d := runFile(t, `
listeners:
  all: {listen: "tcp://127.0.0.1:0", tls: {certificates: [{certificate: "{0}", key: "{1}"}]}, to: "echo:"}
  named: {listen: "tcp://127.0.0.1:0", tls: {certificates: [{certificate: "{0}", key: "{1}"}]}, routes: [{sni: one.test, to: "echo:"}]}
  passed: {listen: "tcp://127.0.0.1:0", tls: {certificates: [{certificate: "{0}", key: "{1}"}]}, routes: [{sni: one.test, to: "echo:"}, {name: rest, tls: pass, to: "echo:"}]}
`, cert, key)
	for i, c := range []struct{ listener, cause string }{{"all", "client-tls"}, {"named", "refused"}} {
		conn := d.to(c.listener)
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: one.test\r\n\r\n")
		conn.SetReadDeadline(time.Now().Add(patience))
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", c.listener, err)
		}
		body, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusBadRequest || string(body) != "HTTP in the clear on a port for TLS: use https" {
			t.Errorf("%s: %s, %q, %v", c.listener, res.Status, body, err)
		}
		mustBe(t, d.records(i + 1)[i], "listener", c.listener, "cause", c.cause)
	}
	passed := d.to("passed")
	const request = "GET / HTTP/1.1\r\n\r\n"
	io.WriteString(passed, request)
	passed.SetReadDeadline(time.Now().Add(patience))
	got := make([]byte, len(request))
	if _, err := io.ReadFull(passed, got); err != nil || string(got) != request {
		t.Errorf("passed: %q, %v", got, err)
	}
}
