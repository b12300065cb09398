package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

// An endListener tells how its connections end: the first error of Read of each.
type endListener struct {
	net.Listener
	ends chan error
}

type endConn struct {
	net.Conn
	ends chan error // nil: it has been told
}

func (l endListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &endConn{c, l.ends}, nil
}

func (c *endConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && c.ends != nil && !errors.Is(err, os.ErrDeadlineExceeded) { // by which net/http interrupts a read
		c.ends <- err
		c.ends = nil
	}
	return n, err
}

// A client that ends HTTPS without close_notify, as curl and browsers do, does not reset the member when nothing is on its way.
func TestCurlCloses(t *testing.T) {
	need(t, "curl")
	t.Parallel()
	w := newWebWorld(t)
	for alpn, c := range map[string]struct{ flag, proto string }{
		"[http/1.1]":     {"--http1.1", "HTTP/1.1"},
		"[h2, http/1.1]": {"--http2", "HTTP/2.0"},
	} {
		t.Run(c.proto, func(t *testing.T) {
			l := endListener{testnet.Listen(t, "tcp4"), make(chan error, 1)}
			server := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.WriteString(w, r.Proto)
			})}
			server.Protocols.SetHTTP1(true)
			server.Protocols.SetUnencryptedHTTP2(true)
			done := make(chan struct{})
			go func() { server.Serve(l); close(done) }()
			t.Cleanup(func() { server.Close(); <-done })

			d := runFile(t, `listeners: {l: {listen: "tcp://127.0.0.1:0", tls: {certificates: [{certificate: "{0}", key: "{1}"}], alpn: {2}}, to: "{3}"}}`, w.cert, w.key, alpn, url(l.Addr()))
			_, port, _ := net.SplitHostPort(d.at("l").String())
			out, err := exec.Command("curl", "-sS", c.flag, "--noproxy", "*", "--cacert", w.ca, "--resolve", "www.test:"+port+":127.0.0.1", "https://www.test:"+port+"/").CombinedOutput()
			if err != nil || !strings.Contains(string(out), c.proto) {
				t.Fatalf("%q, %v", out, err)
			}
			if r := d.records(1)[0]; r["cause"] != "client-closed" && r["cause"] != "end" { // some builds of curl do send close_notify
				t.Errorf("%v", r)
			}
			if end := <-l.ends; end != io.EOF {
				t.Errorf("the member's connection ends with %v", end)
			}
		})
	}
}
