package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// A reader is a server that requires a PROXY header, and then echoes.
type reader struct {
	net.Listener
	headers chan *proxyproto.Header // one for each connection with a valid header
}

func readProxy(t *testing.T) *reader {
	t.Helper()
	l := &proxyproto.Listener{
		Listener: testnet.Listen(t, "tcp4"), ReadHeaderTimeout: patience,
		ConnPolicy: func(proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) { return proxyproto.REQUIRE, nil },
	}
	r := &reader{Listener: l, headers: make(chan *proxyproto.Header, 16)}
	acceptAll(t, l, func(c net.Conn) {
		c.SetDeadline(time.Now().Add(patience))
		if h := c.(*proxyproto.Conn).ProxyHeader(); h != nil {
			r.headers <- h
		}
		testnet.Play(halfCloser{c}, testnet.Script{Echo: true})
	})
	return r
}

// halfCloser adds half-close to a proxyproto.Conn.
type halfCloser struct{ net.Conn }

func (h halfCloser) CloseWrite() error {
	tcp, _ := h.Conn.(*proxyproto.Conn).TCPConn()
	return tcp.CloseWrite()
}

// next waits for the next connection's header.
func (r *reader) next(t *testing.T) *proxyproto.Header {
	t.Helper()
	select {
	case h := <-r.headers:
		return h
	case <-time.After(patience):
		t.Fatal("no header has come")
		return nil
	}
}

// Headers come in from trusted peers, and go out so that another implementation can read them. What
// follows is spliced, and the access log has the client and the proxy.
func TestProxyProtocol(t *testing.T) {
	t.Parallel()
	v1, v2 := readProxy(t), readProxy(t)
	plain := speak(t, "plain")
	d := runFile(t, `
defaults: {sniff: {timeout: 1m}}
listeners:
  slow: {listen: "tcp://127.0.0.1:0", sniff: {timeout: 200ms}, proxy-protocol: {from: 127.0.0.1}, to: "{0}"}
  in: {listen: "tcp://127.0.0.1:0", proxy-protocol: {from: 127.0.0.1}, to: "{0}"}
  out1: {listen: "tcp://127.0.0.1:0", to: v1}
  out2: {listen: "tcp://127.0.0.1:0", routes: [{name: named, sni: one.test, to: v2}], to: "{0}"}
  outer: {listen: "tcp://127.0.0.1:0", to: inner}
  inner: {listen: "unix://{dir}/inner", proxy-protocol: {from: 127.0.0.0/8}, to: v1}
groups:
  v1: {members: ["{1}"], proxy-protocol: v1}
  v2: {members: ["{2}"], proxy-protocol: {version: 2, names: true, tlvs: {0xE0: hello}}}
  inner: {members: ["unix://{dir}/inner"], proxy-protocol: v2}
`, plain.url(), url(v1.Addr()), url(v2.Addr()))
	const size = 4 << 20
	seen := 0
	records := func(n int) []map[string]any {
		t.Helper()
		seen += n
		return d.records(seen)[seen-n:]
	}
	record := func() map[string]any {
		t.Helper()
		return records(1)[0]
	}

	for version := range byte(2) {
		for _, client := range []string{"192.0.2.7:1234", "[2001:db8::7]:1234"} {
			untilSpliced(t, func() []map[string]any {
				c := proxied(t, d.at("in"), version+1, client)
				peer := c.LocalAddr().String()
				name(t, c)
				mustEcho(t, c, size, 256<<10)
				r := records(1)
				mustBe(t, r[0], "client", "tcp://"+client, "peer", "tcp://"+peer, "bytes_up", float64(size))
				return r
			})
		}
	}
	// An invalid header, half a header, and no header.
	for text, reason := range map[string]string{"PROXY TCP9 hello\r\n": "proxy-header", "GET / HTTP/1.0\r\n\r\n": "proxy-header", "PROXY TC": "proxy-timeout", "": "proxy-timeout"} {
		listener := "in"
		if reason == "proxy-timeout" {
			listener = "slow"
		}
		d.mustTurnAway(listener, text)
		mustBe(t, record(), "cause", "refused", "reason", reason)
	}
	// A client that leaves in the middle of the header did not time out.
	left := d.to("in")
	io.WriteString(left, "PROXY TC")
	left.(*net.TCPConn).CloseWrite()
	mustBe(t, record(), "cause", "refused", "reason", "client-ended")
	// From an untrusted peer, the header is payload.
	text := "PROXY TCP4 192.0.2.7 192.0.2.1 1 2\r\n"
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp", d.at("in").String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	io.WriteString(c, text)
	name(t, c)
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Errorf("%q, %v", got, err)
	}
	from := c.LocalAddr().String()
	c.Close()
	if r := record(); r["client"] != "tcp://"+from || r["peer"] != nil {
		t.Errorf("%v", r)
	}

	// Out.
	untilSpliced(t, func() []map[string]any {
		c := d.to("out1")
		from, to := c.LocalAddr().String(), c.RemoteAddr().String()
		mustEcho(t, c, size, 256<<10)
		if h := v1.next(t); h.Version != 1 || h.SourceAddr.String() != from || h.DestinationAddr.String() != to {
			t.Errorf("%+v", h)
		}
		r := records(1)
		mustBe(t, r[0], "bytes_up", float64(size))
		return r
	})

	c = d.to("out2")
	from, to := c.LocalAddr().String(), c.RemoteAddr().String()
	go tls.Client(c, &tls.Config{ServerName: "one.test", NextProtos: []string{"h2"}, InsecureSkipVerify: true}).Handshake() // it gets its own ClientHello back, and fails
	h := v2.next(t)
	tlvs, err := h.TLVs()
	if err != nil || h.Version != 2 || h.SourceAddr.String() != from || h.DestinationAddr.String() != to {
		t.Errorf("%+v, %v", h, err)
	}
	values := map[proxyproto.PP2Type]string{}
	for _, v := range tlvs {
		values[v.Type] = string(v.Value)
	}
	if values[proxyproto.PP2_TYPE_AUTHORITY] != "one.test" || values[proxyproto.PP2_TYPE_ALPN] != "h2" || values[0xE0] != "hello" {
		t.Errorf("%v", values)
	}
	c.Close()
	mustBe(t, record(), "route", "named", "sni", "one.test", "alpn", "h2")

	// Through two relays.
	untilSpliced(t, func() []map[string]any {
		c := d.to("outer")
		from, to := c.LocalAddr().String(), c.RemoteAddr().String()
		mustEcho(t, c, size, 256<<10)
		if h := v1.next(t); h.SourceAddr.String() != from || h.DestinationAddr.String() != to {
			t.Errorf("%+v, want %s to %s", h, from, to)
		}
		both := records(2)
		for _, r := range both {
			mustBe(t, r, "client_ip", "127.0.0.1")
		}
		return both
	})
}

// Another proxy in front.
func TestBehindHAProxy(t *testing.T) {
	need(t, "haproxy")
	t.Parallel()
	up := speak(t, "up")
	d := runFile(t, `
listeners:
  in: {listen: "tcp://127.0.0.1:0", sniff: {timeout: 1m}, proxy-protocol: {from: 127.0.0.0/8}, to: "{0}"}
`, up.url())
	front := net.JoinHostPort("127.0.54.1", testnet.Port(t))
	conf := filepath.Join(d.dir, "haproxy.cfg")
	text := fmt.Sprintf("global\n  maxconn 100\ndefaults\n  mode tcp\n  timeout connect 20s\n  timeout client 20s\n  timeout server 20s\nlisten l\n  bind %s\n  server s %s send-proxy-v2\n", front, d.at("in"))
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	serve(t, "haproxy", "-db", "-f", conf)
	var c net.Conn
	testwait.Until(t, "haproxy comes up", func() (ok bool) {
		var err error
		c, err = net.Dial("tcp", front)
		return err == nil
	})
	c.Close()
	seen := 1
	untilSpliced(t, func() []map[string]any {
		c, err := net.Dial("tcp", front)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		from := c.LocalAddr().String()
		if n := name(t, c); n != "up" {
			t.Errorf("it went to %s", n)
		}
		mustEcho(t, c, 4<<20, 256<<10)
		seen++
		r := d.records(seen)[seen-1:]
		mustBe(t, r[0], "client", "tcp://"+from, "local", "tcp://"+front)
		if r[0]["peer"] == nil {
			t.Errorf("%v", r[0])
		}
		return r
	})
}
