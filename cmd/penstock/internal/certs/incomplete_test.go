package certs

import (
	"crypto/tls"
	"path/filepath"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A server that was opened although files cannot be read has what can be, refuses whoever needs the rest, and is complete as soon as the
// files are.
func TestIncomplete(t *testing.T) {
	dir := t.TempDir()
	root, other := authority(t, nil, "root"), authority(t, nil, "other")
	one, two := sign(t, root, ecKey(), "one.example", nil), sign(t, root, ecKey(), "two.example", nil)
	good, stranger := sign(t, root, ecKey(), "good", nil).tls(), sign(t, other, ecKey(), "stranger", nil).tls()
	c := config(spec.Certificate{Chain: write(t, filepath.Join(dir, "one.pem"), []byte("broken"))}, spec.Certificate{Chain: filepath.Join(dir, "two.pem")})
	c.Clients = &spec.ClientCertificates{CA: filepath.Join(dir, "ca.pem")}
	c.Tickets.Keys = filepath.Join(dir, "keys")
	if s, problems := Open(c, Options{}, nil); s != nil || len(problems.Errors()) != 5 {
		t.Fatalf("%d errors: %v", len(problems.Errors()), problems)
	}
	s, problems := Open(c, Options{Incomplete: true}, nil)
	if s == nil || len(problems.Errors()) != 5 {
		t.Fatalf("%d errors: %v", len(problems.Errors()), problems)
	}
	try := func(when, name string, with *tls.Certificate, ok bool) {
		t.Helper()
		k := &tls.Config{ServerName: name, RootCAs: root.pool()}
		if with != nil {
			k.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return with, nil }
		}
		if r := handshake(t, s, k); (r.clientErr == nil && r.serverErr == nil) != ok {
			t.Errorf("%s, %s: client: %v; server: %v", when, name, r.clientErr, r.serverErr)
		}
	}
	try("nothing is there", "one.example", &good, false)
	write(t, filepath.Join(dir, "two.pem"), two.chainPEM(), two.keyPEM(t))
	s.Refresh()
	try("no authority is there", "two.example", &good, false)
	try("no authority is there", "two.example", nil, false)
	write(t, filepath.Join(dir, "ca.pem"), pemOf("CERTIFICATE", root.Raw))
	s.Refresh()
	try("the first is broken", "two.example", &good, true)
	try("the first is broken", "two.example", &stranger, false)
	try("the first is broken", "two.example", nil, false)
	try("the first is broken", "one.example", &good, false) // it is shown the other
	write(t, filepath.Join(dir, "one.pem"), one.chainPEM(), one.keyPEM(t))
	write(t, filepath.Join(dir, "keys"), ticketKeys("a"))
	s.Refresh()
	if len(s.Failing()) > 0 {
		t.Errorf("failing: %q", s.Failing())
	}
	for _, name := range []string{"one.example", "two.example"} {
		try("all is there", name, &good, true)
		try("all is there", name, &stranger, false)
		try("all is there", name, nil, false)
	}
}
