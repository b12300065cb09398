package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// serveTLS starts a TLS echo server for a name. The pool has its certificate.
func serveTLS(t *testing.T, pool *x509.CertPool, host string, protocols ...string) net.Addr {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	plan := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, plan, plan, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(leaf)
	l := testnet.Listen(t, "tcp4")
	cfg := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: protocols}
	acceptAll(t, l, func(c net.Conn) {
		c.SetDeadline(time.Now().Add(patience))
		testnet.Play(tls.Server(c, cfg), testnet.Script{Echo: true})
	})
	return l.Addr()
}

// dribble writes the first bytes one by one.
type dribble struct {
	net.Conn
	left int
}

func (d *dribble) Write(b []byte) (n int, err error) {
	for ; d.left > 0 && n < len(b); d.left-- {
		if _, err := d.Conn.Write(b[n : n+1]); err != nil {
			return n, err
		}
		n++
	}
	m, err := d.Conn.Write(b[n:])
	return n + m, err
}

// TLS servers behind one address, chosen by what clients ask for, with their own certificates and
// every byte unchanged.
func TestTLSByName(t *testing.T) {
	t.Parallel()
	pool := x509.NewCertPool()
	one := serveTLS(t, pool, "one.test", "h2", "http/1.1")
	wild := serveTLS(t, pool, "deep.api.wild.test")
	acme := serveTLS(t, pool, "acme.test", "acme-tls/1")
	rest := speak(t, "rest")
	d := runFile(t, `
listeners:
  tls:
    listen: tcp://127.0.0.1:0
    routes:
      - {name: acme, alpn: acme-tls/1, to: "{0}"}
      - {name: one, sni: one.test, to: "{1}"}
      - {name: wild, sni: "*.wild.test", to: "{2}"}
    to: "{3}"
  strict:
    listen: tcp://127.0.0.1:0
    routes:
      - {name: one, sni: one.test, to: "{1}"}
`, url(acme), url(one), url(wild), rest.url())

	const size = 4 << 20
	seen, spliced := 0, 0
	cases := []struct {
		route, sni, cert string
		protocols        []string
		dribbled         int
		curves           []tls.CurveID
	}{
		{route: "one", sni: "one.test", cert: "one.test", protocols: []string{"http/1.1"}},
		{route: "one", sni: "ONE.test", cert: "one.test", dribbled: 3000, curves: []tls.CurveID{tls.X25519MLKEM768}},
		{route: "one", sni: "one.test", cert: "one.test", dribbled: 700, curves: []tls.CurveID{tls.X25519}},
		{route: "wild", sni: "deep.api.wild.test", cert: "deep.api.wild.test"},
		{route: "acme", sni: "one.test", cert: "acme.test", protocols: []string{"acme-tls/1"}},
	}
	// A busy machine may hand all of them over in reads so small that copying is the right path at the end, or have no pipe left.
	for end := time.Now().Add(patience); seen < len(cases) || spliced == 0 && time.Now().Before(end); seen++ {
		c := cases[seen%len(cases)]
		raw := d.to("tls")
		client := tls.Client(&dribble{raw, c.dribbled}, &tls.Config{
			// The requested name and the certificate's differ in case, or by protocol.
			ServerName: c.sni, NextProtos: c.protocols, CurvePreferences: c.curves, InsecureSkipVerify: true,
			VerifyConnection: func(s tls.ConnectionState) error {
				_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool, DNSName: c.cert})
				return err
			},
		})
		if err := client.Handshake(); err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		mustEcho(t, client, size, 256<<10)
		r := d.records(seen + 1)[seen]
		mustBe(t, r, "listener", "tls", "route", c.route, "cause", "end")
		for _, half := range []string{"up", "down"} {
			if r["path_"+half] == "splice" {
				spliced++
			} else if why := r["why_"+half]; why != "small reads" && why != "no pipe" {
				t.Errorf("not spliced: %v", r)
			}
		}
		if r["bytes_up"].(float64) < size {
			t.Errorf("%v", r)
		}
	}
	if spliced == 0 {
		t.Error("no stream was spliced after its greeting had been read")
	}
	if sni := d.records(2)[1]["sni"]; sni != "one.test" {
		t.Errorf("server name %v", sni)
	}

	// No name, a name without a route, and no TLS at all go to the default, with every byte.
	others := int64(0)
	for _, sni := range []string{"", "other.test"} {
		raw := d.to("tls")
		go tls.Client(raw, &tls.Config{ServerName: sni, InsecureSkipVerify: true}).Handshake() // fails, because it is not a TLS server
		testwait.Until(t, "the default has the client", func() bool { return rest.came.Load() == others+1 })
		others++
		raw.Close()
		seen++
		mustBe(t, d.records(seen)[seen-1], "route", "default", "listener", "tls")
	}
	untilSpliced(t, func() []map[string]any {
		plain := d.to("tls")
		io.WriteString(plain, "GET / HTTP/1.0\r\n\r\n")
		if n := name(t, plain); n != "rest" {
			t.Errorf("plain text went to %s", n)
		}
		got := make([]byte, 18)
		if _, err := io.ReadFull(plain, got); err != nil || string(got) != "GET / HTTP/1.0\r\n\r\n" {
			t.Errorf("%q, %v", got, err)
		}
		mustEcho(t, plain, size, 256<<10)
		seen++
		r := d.records(seen)[seen-1:]
		mustBe(t, r[0], "bytes_up", float64(size+18))
		return r
	})

	// Without a default route they are refused.
	d.mustTurnAway("strict", "hello, this is no TLS\n")
	seen++
	mustBe(t, d.records(seen)[seen-1], "listener", "strict", "cause", "refused", "reason", "no-route")
}

// A client that is slow with its ClientHello is routed like one without a name, and none of its
// bytes are lost; without such a route it is refused.
func TestSlowHello(t *testing.T) {
	t.Parallel()
	rest := speak(t, "rest")
	d := runFile(t, `
defaults: {sniff: {timeout: 200ms}}
listeners:
  tls:
    listen: tcp://127.0.0.1:0
    routes: [{sni: one.test, to: "tcp://127.0.0.1:1"}]
    to: "{0}"
  strict:
    listen: tcp://127.0.0.1:0
    routes: [{sni: one.test, to: "tcp://127.0.0.1:1"}]
  short:
    listen: tcp://127.0.0.1:0
    sniff: {max: 512, timeout: 1m}
    routes: [{sni: one.test, to: "tcp://127.0.0.1:1"}]
  patient:
    listen: tcp://127.0.0.1:0
    sniff: {timeout: 1m}
    routes: [{sni: one.test, to: "tcp://127.0.0.1:1"}]
`, rest.url())
	half := []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 and no more")
	seen := 0
	record := func() map[string]any {
		t.Helper()
		seen++
		return d.records(seen)[seen-1]
	}
	untilSpliced(t, func() []map[string]any {
		c := d.to("tls")
		c.Write(half)
		if n := name(t, c); n != "rest" {
			t.Errorf("it went to %s", n)
		}
		got := make([]byte, len(half))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != string(half) {
			t.Errorf("%q, %v", got, err)
		}
		mustEcho(t, c, 4<<20, 256<<10)
		return []map[string]any{record()}
	})

	silent := d.to("tls")
	if n := name(t, silent); n != "rest" {
		t.Errorf("a client that says nothing went to %s", n)
	}
	silent.Close()
	record()

	d.mustTurnAway("strict", string(half))
	mustBe(t, record(), "listener", "strict", "cause", "refused", "reason", "sniff-timeout", "path_up", "none")
	d.mustTurnAway("strict", "")
	mustBe(t, record(), "listener", "strict", "cause", "refused", "reason", "sniff-timeout")
	d.mustTurnAway("short", string(half)+strings.Repeat("x", 512-len(half)))
	mustBe(t, record(), "listener", "short", "cause", "refused", "reason", "sniff-max")
	gone := d.to("patient")
	gone.Write(half)
	gone.(*net.TCPConn).CloseWrite()
	mustBe(t, record(), "listener", "patient", "cause", "refused", "reason", "client-ended")
}
