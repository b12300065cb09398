package certs

import (
	"crypto/tls"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// What openssl(1) makes is read: keys in each of its forms, certificates, lists and responses.
func TestOpenSSL(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not installed")
	}
	dir := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command(openssl, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("openssl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(in("ca.cnf"), []byte("[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\nserial=serial\ndefault_md=sha256\ndefault_crl_days=30\ncrl_extensions=x\n[x]\nauthorityKeyIdentifier=keyid\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(in("index.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ec := []string{"-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"}
	run(append([]string{"req", "-x509", "-nodes", "-days", "365", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca"}, ec...)...)
	leaf := func(name string, key ...string) {
		t.Helper()
		run(append([]string{"req", "-x509", "-CA", "ca.pem", "-CAkey", "ca.key", "-nodes", "-days", "365", "-keyout", name + ".key", "-out", name + ".pem", "-subj", "/CN=" + name,
			"-addext", "subjectAltName=DNS:a.example,URI:spiffe://example.org/" + name, "-addext", "basicConstraints=critical,CA:FALSE"}, key...)...)
	}
	leaf("ec", ec...)
	leaf("ed", "-newkey", "ed25519")
	leaf("rsa", "-newkey", "rsa:2048")
	run("ec", "-in", "ec.key", "-out", "ec-sec1.key")
	run("rsa", "-in", "rsa.key", "-traditional", "-out", "rsa-pkcs1.key")
	run("pkey", "-in", "ec.key", "-aes256", "-passout", "pass:secret", "-out", "ec-password.key")
	run("rsa", "-in", "rsa.key", "-traditional", "-aes128", "-passout", "pass:secret", "-out", "rsa-password.key")
	run("ca", "-config", "ca.cnf", "-keyfile", "ca.key", "-cert", "ca.pem", "-revoke", "ed.pem")
	run("ca", "-config", "ca.cnf", "-keyfile", "ca.key", "-cert", "ca.pem", "-gencrl", "-out", "ca.crl")
	for _, c := range []struct{ chain, key, want string }{
		{"ec", "ec", ""}, {"ec", "ec-sec1", ""}, {"ed", "ed", ""}, {"rsa", "rsa", ""}, {"rsa", "rsa-pkcs1", ""},
		{"ec", "ec-password", "ec-password.key:1: the key is encrypted"}, {"rsa", "rsa-password", "rsa-password.key:1: the key is encrypted"}, {"ec", "rsa", "ec.pem:1: the key is not that of"},
	} {
		s, problems := Open(config(spec.Certificate{Chain: in(c.chain + ".pem"), Key: in(c.key + ".key")}), Options{}, nil)
		if got := texts(problems, dir); !strings.HasPrefix(got, c.want) || (s == nil) != (c.want != "") || (got == "") != (c.want == "") {
			t.Errorf("%s with %s: %s", c.chain, c.key, got)
		}
	}
	tls1 := config(spec.Certificate{Chain: in("ec.pem"), Key: in("ec.key")})
	tls1.Clients = &spec.ClientCertificates{CA: in("ca.pem"), CRL: in("ca.crl")}
	s := open(t, tls1, nil)
	for name, good := range map[string]bool{"rsa": true, "ed": false} { // ed was revoked
		cert, err := tls.LoadX509KeyPair(in(name+".pem"), in(name+".key"))
		if err != nil {
			t.Fatal(err)
		}
		r := handshake(t, s, &tls.Config{ServerName: "a.example", InsecureSkipVerify: true, Certificates: []tls.Certificate{cert}})
		if (r.serverErr == nil) != good || good && IdentityOf(&r.server).SPIFFE != "spiffe://example.org/rsa" {
			t.Errorf("%s: %v", name, r.serverErr)
		}
	}
}
