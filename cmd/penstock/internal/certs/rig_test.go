package certs

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/internal/testnet"
)

// patience is how long a test waits for what must happen.
const patience = testnet.Patience

// made is a certificate with its key and the one that has signed it.
type made struct {
	*x509.Certificate
	key    crypto.Signer
	issuer *made
}

func ecKey() crypto.Signer {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return k
}

// rsaKey is made once, because that takes long.
var rsaKey = sync.OnceValue(func() crypto.Signer {
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return k
})

func edKey() crypto.Signer {
	_, k, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	return k
}

var serials struct {
	sync.Mutex
	last int64
}

// sign makes a certificate. A nil issuer signs itself. change may change what is in it.
func sign(t testing.TB, issuer *made, key crypto.Signer, name string, change func(*x509.Certificate)) *made {
	t.Helper()
	serials.Lock()
	serials.last++
	n := serials.last
	serials.Unlock()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(n), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(365 * 24 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true,
	}
	if change != nil {
		change(c)
	}
	m := &made{key: key, issuer: issuer}
	by, with := c, key
	if issuer != nil {
		by, with = issuer.Certificate, issuer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by, key.Public(), with)
	if err == nil {
		m.Certificate, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// authority makes a certificate that may sign others.
func authority(t testing.TB, issuer *made, name string) *made {
	return sign(t, issuer, ecKey(), name, func(c *x509.Certificate) {
		c.IsCA, c.DNSNames, c.ExtKeyUsage, c.KeyUsage = true, nil, nil, x509.KeyUsageCertSign|x509.KeyUsageCRLSign
	})
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// chainPEM returns the chain without the root.
func (m *made) chainPEM() []byte {
	var b bytes.Buffer
	for c := m; c != nil && (c.issuer != nil || c == m); c = c.issuer {
		b.Write(pemOf("CERTIFICATE", c.Raw))
	}
	return b.Bytes()
}

func (m *made) keyPEM(t testing.TB) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(m.key)
	if err != nil {
		t.Fatal(err)
	}
	return pemOf("PRIVATE KEY", der)
}

func (m *made) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(m.Certificate)
	return p
}

func (m *made) tls() tls.Certificate {
	c := tls.Certificate{PrivateKey: m.key, Leaf: m.Certificate}
	for at := m; at != nil && (at.issuer != nil || at == m); at = at.issuer {
		c.Certificate = append(c.Certificate, at.Raw)
	}
	return c
}

// write writes a file at once, with a time that has settled.
func write(t testing.TB, path string, parts ...[]byte) string {
	t.Helper()
	stage(t, path, parts...)
	rename(t, path)
	return path
}

// stage writes a file beside path, which rename then replaces.
func stage(t testing.TB, path string, parts ...[]byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", bytes.Join(parts, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Minute)
	if err := os.Chtimes(path+".new", old, old); err != nil {
		t.Fatal(err)
	}
}

func rename(t testing.TB, path string) {
	t.Helper()
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// save writes a certificate with its key into one file.
func (m *made) save(t testing.TB, path string) spec.Certificate {
	return spec.Certificate{Chain: write(t, path, m.chainPEM(), m.keyPEM(t))}
}

// config returns a configuration with certificates.
func config(certs ...spec.Certificate) *spec.ServerTLS {
	return &spec.ServerTLS{Certificates: certs, MinVersion: tls.VersionTLS12, Handshake: patience}
}

// open is Open of what must have no problems.
func open(t testing.TB, c *spec.ServerTLS, before *Server) *Server {
	t.Helper()
	s, problems := Open(c, Options{}, before)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return s
}

// quiet fails the test if a refresh has problems.
func quiet(t testing.TB, s *Server) Change {
	t.Helper()
	c := s.Refresh()
	if len(c.Problems) > 0 {
		t.Fatalf("problems: %v", c.Problems)
	}
	return c
}

// A result is what both ends of a handshake have.
type result struct {
	client, server       tls.ConnectionState
	clientErr, serverErr error
}

func (r result) ok(t testing.TB) result {
	t.Helper()
	if r.clientErr != nil || r.serverErr != nil {
		t.Fatalf("handshake: client: %v; server: %v", r.clientErr, r.serverErr)
	}
	return r
}

// serial returns the number of the certificate that the client was shown.
func (r result) serial(t testing.TB) int64 {
	t.Helper()
	r.ok(t)
	return r.client.PeerCertificates[0].SerialNumber.Int64()
}

// handshake connects with a server, sends a byte each way, so that tickets arrive, and closes.
func handshake(t testing.TB, s *Server, client *tls.Config) (r result) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			r.serverErr = err
			return
		}
		c.SetDeadline(time.Now().Add(patience))
		conn := tls.Server(c, s.Config(client.ServerName))
		defer conn.Close()
		if r.serverErr = conn.Handshake(); r.serverErr != nil {
			return
		}
		r.server = conn.ConnectionState()
		one := make([]byte, 1)
		if _, r.serverErr = conn.Read(one); r.serverErr == nil {
			_, r.serverErr = conn.Write(one)
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(patience))
	conn := tls.Client(c, client)
	r.clientErr = conn.Handshake()
	if r.clientErr == nil {
		one := []byte{1}
		if _, r.clientErr = conn.Write(one); r.clientErr == nil {
			if _, err := io.ReadFull(conn, one); err != nil { // in TLS 1.3, an alert about the client's certificate comes now
				r.clientErr = err
			}
		}
	}
	r.client = conn.ConnectionState()
	conn.Close()
	<-done
	return r
}

// alertOf reports whether an error is an alert with a text.
func alertOf(err error, text string) bool {
	var op *net.OpError
	return errors.As(err, &op) && strings.Contains(op.Err.Error(), text)
}

func parseURL(t testing.TB, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func texts(list Problems, dir string) string {
	var lines []string
	for _, p := range list {
		lines = append(lines, strings.ReplaceAll(p.String(), dir+"/", ""))
	}
	return strings.Join(lines, "\n")
}

func itoa(n int) string { return big.NewInt(int64(n)).String() }
