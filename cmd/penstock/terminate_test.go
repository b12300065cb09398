package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/testcerts"
	"github.com/penstock/penstock/internal/testnet"
)

// Behind one port, TLS ends here, passes through, or is refused, by the server name and the client's certificate; and
// it begins again towards members. No byte of a client or of a member that should be encrypted is ever seen in the clear.
func TestTLSEnds(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	authority := testcerts.Authority(t, "authority")
	cert, key := authority.Issue(t, "web.test", testcerts.For("re.test")).Write(t, dir, "web")
	ca, _ := authority.Write(t, dir, "ca")
	ops := authority.Issue(t, "ops", testcerts.For("spiffe://test/ops"))

	plain, special := speak(t, "plain"), speak(t, "special")
	passed := serveTLS(t, x509.NewCertPool(), "pass.test")
	pool := x509.NewCertPool()
	pool.AddCert(authority.Certificate)
	member := secureSpeaker(t, authority.Issue(t, "member.test"))
	d := runFile(t, `
listeners:
  tls:
    listen: tcp://127.0.0.1:0
    proxy-protocol: {from: 127.0.0.9/32}
    sniff: {timeout: 1m}
    tls:
      certificates: [{certificate: "{0}", key: "{1}"}]
      clients: {ca: "{2}", verify: optional}
    routes:
      - {name: pass, sni: pass.test, tls: pass, to: "{3}"}
      - {name: ops, client-names: "spiffe://test/ops", to: "{4}"}
      - {name: again, sni: re.test, to: again}
      - {name: web, sni: web.test, to: "{5}"}
  hasty:
    listen: tcp://127.0.0.1:0
    sniff: {timeout: 200ms}
    tls: {certificates: [{certificate: "{0}", key: "{1}"}]}
    to: "{5}"
  refusing:
    listen: tcp://127.0.0.1:0
    to: other
  strict:
    listen: tcp://127.0.0.1:0
    tls: {certificates: [{certificate: "{0}", key: "{1}"}], unknown-names: refuse}
    to: other
groups:
  again:
    tls: {ca: "{2}", server-name: member.test}
    members: "{6}"
  other:
    tls: {ca: "{2}", server-name: other.test}
    members: "{6}"
`, cert, key, ca, url(passed), special.url(), plain.url(), member)

	client := func(sni string, own ...tls.Certificate) *tls.Conn {
		return tls.Client(d.to("tls"), &tls.Config{ServerName: sni, RootCAs: pool, Certificates: own})
	}
	n := 0
	ended := func(pairs ...any) {
		t.Helper()
		n++
		mustBe(t, d.records(n)[n-1], pairs...)
	}
	for sni, want := range map[string]string{"web.test": "plain", "re.test": "member"} {
		c := client(sni)
		if got := name(t, c); got != want {
			t.Errorf("%s: %s", sni, got)
		}
		mustEcho(t, c, 1<<20, 10_000)
		ended("cause", "end", "tls", "1.3")
	}
	c := client("web.test", ops.TLS())
	if got := name(t, c); got != "special" {
		t.Errorf("with a certificate: %s", got)
	}
	list, err := d.admin.Flows(d.ctx(), api.Filter{Route: "ops"}, api.Page{Limit: 1})
	if err != nil || len(list.Flows) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	if f, err := d.admin.Flow(d.ctx(), list.Flows[0].ID); err != nil || f.ClientTLS == nil || f.ClientTLS.Version != "1.3" || f.ClientTLS.ServerName != "web.test" || f.UpstreamTLS != nil ||
		f.Identity == nil || !strings.HasPrefix(f.Identity.Names, "spiffe://test/ops") {
		t.Errorf("%+v, %v", f, err)
	}
	c.Close()
	ended("route", "ops", "cause", "end")

	c = tls.Client(d.to("tls"), &tls.Config{ServerName: "pass.test", InsecureSkipVerify: true})
	mustEcho(t, c, 1000, 1000)
	if c.ConnectionState().PeerCertificates[0].DNSNames[0] != "pass.test" {
		t.Error("what should pass was terminated")
	}
	ended("route", "pass", "cause", "end")

	// It might have had the certificate for the route ops.
	c = tls.Client(d.to("tls"), &tls.Config{ServerName: "other.test", InsecureSkipVerify: true})
	if got, err := io.ReadAll(c); len(got) > 0 || err == nil {
		t.Errorf("a server name without a route was served %q, %v", got, err)
	}
	ended("cause", "refused", "reason", "no-route")

	before := plain.came.Load() + special.came.Load()
	for what, text := range map[string]string{"plain text": "HELO web.test\r\n", "part of a ClientHello": "\x16\x03\x01\x02\x00\x01", "nothing": ""} {
		c := d.to("tls")
		if what == "part of a ClientHello" {
			c = d.to("hasty")
		}
		io.WriteString(c, text)
		if what == "nothing" {
			c.(*net.TCPConn).CloseWrite()
		}
		got, _ := io.ReadAll(c)
		if len(got) > 0 && got[0] != 21 { // an alert
			t.Errorf("%s is answered by %q", what, got)
		}
		n++
		d.records(n)
	}
	if plain.came.Load()+special.came.Load() != before {
		t.Error("a client without TLS has reached a member")
	}

	// A member with another name gets nothing.
	if raw, err := net.DialTimeout("tcp", d.at("refusing").String(), patience); err == nil { // it may be reset before
		raw.SetDeadline(time.Now().Add(patience))
		_, failed := io.WriteString(raw, "secret") // a socket tells of a reset once
		if got, err := io.ReadAll(raw); len(got) > 0 || err == nil && failed == nil {
			t.Errorf("%q, %v", got, err)
		}
		raw.Close()
	}
	ended("cause", "upstream-tls")

	c = tls.Client(d.to("strict"), &tls.Config{ServerName: "other.test"})
	if err := c.Handshake(); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
		t.Error(err)
	}
	ended("cause", "client-tls", "error", `TLS handshake with the client: no certificate has the server name "other.test", and unknown-names is refuse`)
}

// secureSpeaker is a speaker behind TLS, and returns its URL.
func secureSpeaker(t *testing.T, cert *testcerts.Cert) string {
	t.Helper()
	l := testnet.Listen(t, "tcp4")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert.TLS()}})
			go func() {
				defer s.Close()
				s.SetDeadline(time.Now().Add(patience))
				if _, err := io.WriteString(s, "member\n"); err == nil {
					io.Copy(s, s)
				}
			}()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return url(l.Addr())
}
