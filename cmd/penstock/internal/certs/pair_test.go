package certs

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Keys of all kinds and forms serve a handshake.
func TestKeys(t *testing.T) {
	dir := t.TempDir()
	root := authority(t, nil, "root")
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sec1 := func(k crypto.Signer) []byte {
		der, err := x509.MarshalECPrivateKey(k.(*ecdsa.PrivateKey))
		if err != nil {
			t.Fatal(err)
		}
		parameters := "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
		return append([]byte(parameters), pemOf("EC PRIVATE KEY", der)...)
	}
	pkcs8 := func(k crypto.Signer) []byte { return (&made{key: k}).keyPEM(t) }
	pkcs1 := func(k crypto.Signer) []byte {
		return pemOf("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(k.(*rsa.PrivateKey)))
	}
	for _, c := range []struct {
		name string
		key  crypto.Signer
		form func(crypto.Signer) []byte
	}{
		{"RSA as PKCS#1", rsaKey(), pkcs1}, {"RSA as PKCS#8", rsaKey(), pkcs8}, {"P-256 as SEC 1", ecKey(), sec1}, {"P-256 as PKCS#8", ecKey(), pkcs8},
		{"P-384 as SEC 1", p384, sec1}, {"Ed25519", edKey(), pkcs8},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := sign(t, root, c.key, "a.example", nil)
			path := filepath.Join(dir, strings.ReplaceAll(c.name, " ", ""))
			beside := spec.Certificate{Chain: write(t, path+".pem", m.chainPEM()), Key: write(t, path+".key", []byte("Bag Attributes\n    friendlyName: a\n"), c.form(c.key))}
			within := spec.Certificate{Chain: write(t, path+"-all.pem", c.form(c.key), []byte("\r\n"), bytes.ReplaceAll(m.chainPEM(), []byte("\n"), []byte("\r\n")))}
			for _, files := range []spec.Certificate{beside, within} {
				handshake(t, open(t, config(files), nil), &tls.Config{ServerName: "a.example", RootCAs: root.pool()}).ok(t)
			}
		})
	}
}

// Whatever is wrong with files is told with its line.
func TestProblems(t *testing.T) {
	dir := t.TempDir()
	root := authority(t, nil, "root")
	middle := authority(t, root, "middle")
	leaf := sign(t, middle, ecKey(), "a.example", nil)
	other := sign(t, middle, ecKey(), "b.example", nil)
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	lines := func(b []byte) int { return bytes.Count(b, []byte("\n")) }
	cert := func(m *made) []byte { return pemOf("CERTIFICATE", m.Raw) }
	with := func(change func(*x509.Certificate)) *made { return sign(t, middle, ecKey(), "a.example", change) }
	all := func(m *made) []byte { return join(m.chainPEM(), m.keyPEM(t)) }
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	weak := sign(t, middle, small, "a.example", nil)
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leafLines, middleLines := lines(cert(leaf)), lines(cert(middle))
	encrypted := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-128-CBC,00112233445566778899AABBCCDDEEFF"}, Bytes: make([]byte, 64)})
	day := 24 * time.Hour
	for _, c := range []struct {
		name       string
		chain, key []byte // key nil: in chain
		want       string // with %A for the line of the second certificate, %K for that of a key behind two certificates
	}{
		{"good", all(leaf), nil, ""},
		{"empty", []byte{}, nil, "a.pem: is empty"},
		{"no certificate", leaf.keyPEM(t), nil, "a.pem: there is no certificate in it"},
		{"no key", leaf.chainPEM(), nil, "a.pem: there is no private key in it"},
		{"no key in its file", leaf.chainPEM(), leaf.chainPEM(), "a.key: there is no private key in it"},
		{"two keys", all(leaf), join(leaf.keyPEM(t), other.keyPEM(t)), "a.key:6: a second key; the first one is in line 1"},
		{"another key", leaf.chainPEM(), join([]byte("# a comment\n"), other.keyPEM(t)), "a.pem:1: the key is not that of the certificate of a.example; the key is in a.key:2"},
		{"order", join(cert(middle), cert(leaf), leaf.keyPEM(t)), nil, "a.pem:1: the key is that of the certificate in line " + itoa(middleLines+1) + ", which must be the first"},
		{"not signed", join(cert(leaf), cert(other), leaf.keyPEM(t)), nil, "a.pem:" + itoa(leafLines+1) + ": the certificate of b.example has not signed the one before it, of a.example"},
		{"PKCS#8 with a password", leaf.chainPEM(), pemOf("ENCRYPTED PRIVATE KEY", make([]byte, 64)), "a.key:1: the key is encrypted"},
		{"legacy password", leaf.chainPEM(), encrypted, "a.key:1: the key is encrypted"},
		{"garbage in a key", leaf.chainPEM(), pemOf("PRIVATE KEY", make([]byte, 64)), "a.key:1: the key cannot be read: "},
		{"kind of key", leaf.chainPEM(), pemOf("DSA PRIVATE KEY", make([]byte, 64)), `a.key:1: a key of kind "DSA PRIVATE KEY"; allowed: a key of RSA, ECDSA or Ed25519`},
		{"P-224", leaf.chainPEM(), (&made{key: p224}).keyPEM(t), "a.key:1: an ECDSA key on the curve P-224"},
		{"garbage in a certificate", join([]byte("one\ntwo\n"), pemOf("CERTIFICATE", make([]byte, 64)), leaf.keyPEM(t)), nil, "a.pem:3: the certificate cannot be read: "},
		{"damaged block", join(cert(leaf), []byte("-----BEGIN CERTIFICATE-----\nAA")), nil, "a.pem:" + itoa(leafLines+1) + ": the PEM block that begins here is damaged"},
		{"request", pemOf("CERTIFICATE REQUEST", make([]byte, 64)), leaf.keyPEM(t), `a.pem:1: a block of kind "CERTIFICATE REQUEST"; allowed: CERTIFICATE`},
		{"long chain", join(bytes.Repeat(cert(leaf), maxChain+1), leaf.keyPEM(t)), nil, "there are more than 16 certificates"},
		{"large", bytes.Repeat([]byte("a\n"), maxFile/2+1), nil, "a.pem: is larger than 1048576 bytes"},
		{"expired", all(with(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })), nil, "a.pem:1: warning: the certificate of a.example has expired, on "},
		{"not yet", all(with(func(c *x509.Certificate) { c.NotBefore = time.Now().Add(day) })), nil, "a.pem:1: warning: the certificate of a.example is not valid before "},
		{"soon", all(with(func(c *x509.Certificate) {
			c.NotAfter = time.Now().Add(20*day + time.Hour)
			c.NotBefore = time.Now().Add(-100 * day)
		})), nil, "a.pem:1: warning: the certificate of a.example expires in 20 days, on "},
		{"short life", all(with(func(c *x509.Certificate) {
			c.NotAfter = time.Now().Add(20 * day)
			c.NotBefore = time.Now().Add(-time.Hour)
		})), nil, ""},
		{"weak", all(weak), nil, "a.pem:1: warning: the key of a.example has 1024 bits"},
		{"no names", all(with(func(c *x509.Certificate) { c.DNSNames = nil })), nil, `a.pem:1: warning: the certificate has no names`},
		{"for clients", all(with(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })), nil, "a.pem:1: warning: the certificate is not for servers"},
		{"missing chain", func() []byte {
			m := with(func(c *x509.Certificate) { c.IssuingCertificateURL = []string{"http://ca.example/middle.crt"} })
			return join(cert(m), m.keyPEM(t))
		}(), nil, `a.pem:1: warning: the certificate of its issuer, CN=middle, is missing behind it: clients that do not have it refuse this one (http://ca.example/middle.crt has it)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := spec.Certificate{Chain: write(t, filepath.Join(dir, "a.pem"), c.chain)}
			if c.key != nil {
				files.Key = write(t, filepath.Join(dir, "a.key"), c.key)
			}
			s, problems := Open(config(files), Options{}, nil)
			got := texts(problems, dir)
			if !strings.HasPrefix(got, c.want) && !strings.Contains(got, c.want) || (c.want == "") != (got == "") {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if warns := strings.Contains(got, "warning: "); (s == nil) != (got != "" && !warns) {
				t.Errorf("server %v with %s", s != nil, got)
			}
			if n := strings.Count(got, "\n"); n > 0 {
				t.Errorf("more than one line: %s", got)
			}
		})
	}
	gone := spec.Certificate{Chain: filepath.Join(dir, "gone.pem"), Key: dir, OCSP: filepath.Join(dir, "gone.ocsp")}
	if _, problems := Open(config(gone), Options{}, nil); texts(problems, dir) != "gone.pem: no such file\n"+dir+": is not a regular file" {
		t.Error(texts(problems, dir))
	}
}
