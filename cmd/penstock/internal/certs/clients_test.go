package certs

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// listOf makes a list of revoked certificates.
func listOf(t testing.TB, by *made, until time.Time, revoked ...*made) []byte {
	t.Helper()
	l := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: until}
	for _, m := range revoked {
		l.RevokedCertificateEntries = append(l.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: m.SerialNumber, RevocationTime: time.Now()})
	}
	der, err := x509.CreateRevocationList(rand.Reader, l, by.Certificate, by.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func TestClients(t *testing.T) {
	dir := t.TempDir()
	root, other := authority(t, nil, "root"), authority(t, nil, "other")
	middle := authority(t, root, "middle")
	server := sign(t, root, ecKey(), "a.example", nil)
	good, bad, direct, stranger := sign(t, middle, ecKey(), "good", nil), sign(t, middle, ecKey(), "bad", nil), sign(t, root, ecKey(), "direct", nil), sign(t, other, ecKey(), "stranger", nil)
	c := config(server.save(t, filepath.Join(dir, "a.pem")))
	ca := write(t, filepath.Join(dir, "ca.pem"), pemOf("CERTIFICATE", root.Raw), pemOf("CERTIFICATE", middle.Raw))
	tomorrow := time.Now().Add(24 * time.Hour)
	crl := write(t, filepath.Join(dir, "crl.pem"), pemOf("X509 CRL", listOf(t, middle, tomorrow, bad)), pemOf("X509 CRL", listOf(t, root, tomorrow)))
	with := func(m *made) *tls.Config {
		k := &tls.Config{ServerName: "a.example", RootCAs: root.pool(), ClientSessionCache: &oneTicket{}}
		if m != nil {
			cert := m.tls()
			k.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
		}
		return k
	}
	c.Clients = &spec.ClientCertificates{CA: ca, CRL: crl}
	s := open(t, c, nil)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		try := func(m *made, alert string) *Identity {
			t.Helper()
			k := with(m)
			k.MaxVersion = version
			r := handshake(t, s, k)
			if alert == "" {
				r.ok(t)
				return IdentityOf(&r.server)
			}
			if !alertOf(r.clientErr, alert) || r.serverErr == nil {
				t.Errorf("version %x: client: %v; server: %v; want %s", version, r.clientErr, r.serverErr, alert)
			}
			return nil
		}
		if id := try(good, ""); id == nil || id.CommonName != "good" || id.Issuer != "CN=middle" {
			t.Errorf("%+v", id)
		}
		try(direct, "")
		try(bad, "bad certificate")
		try(stranger, "unknown certificate authority")
		if version == tls.VersionTLS12 {
			try(nil, "handshake failure")
		} else {
			try(nil, "certificate required")
		}
	}
	optional := *c
	optional.Clients = &spec.ClientCertificates{CA: ca, CRL: crl, Optional: true}
	s = open(t, &optional, s)
	if r := handshake(t, s, with(nil)).ok(t); IdentityOf(&r.server) != nil {
		t.Error("an identity without a certificate")
	}
	if r := handshake(t, s, with(stranger)); r.serverErr == nil {
		t.Error("a stranger's certificate was accepted")
	}
	// A client that is revoked later cannot resume, either.
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		k := with(good)
		k.MaxVersion = version
		handshake(t, s, k).ok(t)
		if r := handshake(t, s, k).ok(t); !r.server.DidResume || IdentityOf(&r.server) == nil {
			t.Errorf("resumed %t, %+v", r.server.DidResume, IdentityOf(&r.server))
		}
		write(t, crl, pemOf("X509 CRL", listOf(t, middle, tomorrow, bad, good)))
		quiet(t, s)
		var revoked *RevokedError
		if r := handshake(t, s, k); r.clientErr == nil || !asRevoked(r.serverErr, &revoked) || revoked.Serial != good.SerialNumber.Text(16) {
			t.Errorf("a client that was revoked: %v, %v", r.clientErr, r.serverErr)
		}
		write(t, crl, listOf(t, middle, tomorrow, bad)) // DER
		if c := quiet(t, s); !reflect.DeepEqual(c.Loaded, []string{ca}) {
			t.Errorf("%+v", c)
		}
	}
	// What cannot be read leaves what was there.
	write(t, crl, pemOf("X509 CRL", listOf(t, other, tomorrow)))
	quiet(t, s)
	if c := s.Refresh(); texts(c.Problems, dir) != "crl.pem:1: the list of CN=other is not signed by a certificate in ca.pem" {
		t.Error(texts(c.Problems, dir))
	}
	if quiet(t, s); s.Failures() != 1 || len(s.Failing()) != 1 {
		t.Errorf("%d failures, %q", s.Failures(), s.Failing())
	}
	if r := handshake(t, s, with(bad)); r.serverErr == nil {
		t.Error("a revoked client was accepted")
	}
	write(t, crl, pemOf("X509 CRL", listOf(t, middle, time.Now().Add(-time.Minute), bad)))
	if c := s.Refresh(); len(c.Problems) != 1 || !c.Problems[0].Warning || !strings.Contains(c.Problems[0].Text, "the list of CN=middle expired at") {
		t.Errorf("%+v", c)
	}
	quiet(t, s)
	if r := handshake(t, s, with(bad)); r.serverErr == nil || len(s.Failing()) != 0 {
		t.Error("a revoked client was accepted, or the list is still failing")
	}
	handshake(t, s, with(good)).ok(t)
	for _, b := range []struct{ ca, crl, want string }{
		{string(pemOf("CERTIFICATE", root.Raw)), "x", "crl.pem: the list of revoked certificates cannot be read: "},
		{string(pemOf("CERTIFICATE", root.Raw)), string(pemOf("CERTIFICATE", root.Raw)), "crl.pem: there is no list in it"},
		{string(root.keyPEM(t)), string(listOf(t, root, tomorrow)), "ca.pem: there is no certificate in it"},
	} {
		write(t, ca, []byte(b.ca))
		write(t, crl, []byte(b.crl))
		if s, problems := Open(c, Options{}, nil); s != nil || !strings.HasPrefix(texts(problems, dir), b.want) {
			t.Errorf("%s, want %s", texts(problems, dir), b.want)
		}
	}
}

func TestIdentity(t *testing.T) {
	root := authority(t, nil, "root")
	m := sign(t, root, ecKey(), "Some Name", func(c *x509.Certificate) {
		c.DNSNames, c.EmailAddresses = []string{"Web.Ops.example"}, []string{"Ops@Example.org"}
		c.URIs = append(c.URIs, parseURL(t, "spiffe://example.org/web/one"))
	})
	id := identityOf(m.Certificate)
	if id.SPIFFE != "spiffe://example.org/web/one" || id.Subject != "CN=Some Name" || id.Serial != m.SerialNumber.Text(16) {
		t.Errorf("%+v", id)
	}
	plain := identityOf(sign(t, root, ecKey(), "db.ops.example", named()).Certificate)
	two := identityOf(sign(t, root, ecKey(), "two", func(c *x509.Certificate) {
		c.URIs = append(c.URIs, parseURL(t, "spiffe://example.org/a"), parseURL(t, "https://example.org/b"))
	}).Certificate)
	forged := identityOf(sign(t, root, ecKey(), "spiffe://example.org/web/one", named("x.example")).Certificate)
	for _, c := range []struct {
		id      *Identity
		pattern string
		want    bool
	}{
		{id, "spiffe://example.org/web/one", true}, {id, "spiffe://example.org/*", true}, {id, "spiffe://example.org/web/*", true}, {id, "spiffe://example.org/web", false},
		{id, "spiffe://example.org/we/*", false}, {id, "spiffe://example/*", false}, {id, "web.ops.example", true}, {id, "*.ops.example", true}, {id, "*.example", true},
		{id, "ops.example", false}, {id, "*.web.ops.example", false}, {id, "Ops@example.ORG", true}, {id, "ops@example.org", false}, {id, "Some Name", true}, {id, "some name", false},
		{id, "", false}, {plain, "db.ops.example", true}, {plain, "*.ops.example", true}, {plain, "", false}, {two, "spiffe://example.org/a", false}, {two, "https://example.org/b", true}, {two, "two", true},
		{forged, "spiffe://example.org/web/one", false}, {forged, "spiffe://example.org/*", false}, {forged, "x.example", true}, {nil, "a", false},
	} {
		if got := c.id.Matches([]string{"nobody.example", c.pattern}); got != c.want {
			t.Errorf("%+v: %q: %t", c.id, c.pattern, got)
		}
	}
	if IdentityOf(nil) != nil || IdentityOf(&tls.ConnectionState{PeerCertificates: []*x509.Certificate{m.Certificate}}) != nil {
		t.Error("an identity that was not verified")
	}
}

func asRevoked(err error, to **RevokedError) bool { return errors.As(err, to) }
