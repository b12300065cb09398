// Package testcerts makes certificates for tests.
package testcerts

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A Cert is a certificate with its key.
type Cert struct {
	*x509.Certificate
	Key   crypto.Signer
	chain [][]byte // DER: itself, and what lies between it and the authority
}

// Authority returns a new authority, which has signed itself. The edits change what it says.
func Authority(t testing.TB, name string, edits ...func(*x509.Certificate)) *Cert {
	t.Helper()
	return newCert(t, nil, name, append([]func(*x509.Certificate){isAuthority}, edits...))
}

// Issue returns a new certificate that c has signed, for a host name or an address, which is also its common name.
func (c *Cert) Issue(t testing.TB, name string, edits ...func(*x509.Certificate)) *Cert {
	t.Helper()
	return newCert(t, c, name, append([]func(*x509.Certificate){For(name)}, edits...))
}

// IssueAuthority returns a new authority that c has signed.
func (c *Cert) IssueAuthority(t testing.TB, name string, edits ...func(*x509.Certificate)) *Cert {
	t.Helper()
	return newCert(t, c, name, append([]func(*x509.Certificate){isAuthority}, edits...))
}

// For adds names: a URI, an address, or else a host name.
func For(names ...string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		for _, name := range names {
			if u, err := url.Parse(name); err == nil && u.Scheme != "" && u.Host != "" {
				c.URIs = append(c.URIs, u)
			} else if ip := net.ParseIP(name); ip != nil {
				c.IPAddresses = append(c.IPAddresses, ip)
			} else {
				c.DNSNames = append(c.DNSNames, name)
			}
		}
	}
}

// Valid sets the times from which and until which it is valid, from now on.
func Valid(from, to time.Duration) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		now := time.Now()
		c.NotBefore, c.NotAfter = now.Add(from), now.Add(to)
	}
}

func isAuthority(c *x509.Certificate) {
	c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign
}

func newCert(t testing.TB, by *Cert, name string, edits []func(*x509.Certificate)) *Cert {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name}, KeyUsage: x509.KeyUsageDigitalSignature}
	Valid(-time.Hour, 365*24*time.Hour)(template)
	for _, edit := range edits {
		edit(template)
	}
	parent, signer := template, crypto.Signer(key)
	if by != nil {
		parent, signer = by.Certificate, by.Key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	c := &Cert{Key: key, chain: [][]byte{der}}
	if c.Certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	if by != nil && by.Issuer.CommonName != by.Subject.CommonName {
		c.chain = append(c.chain, by.chain...)
	}
	return c
}

// TLS returns the certificate for crypto/tls.
func (c *Cert) TLS() tls.Certificate {
	return tls.Certificate{Certificate: c.chain, PrivateKey: c.Key, Leaf: c.Certificate}
}

// Pool returns the certificate as the only authority.
func (c *Cert) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.Certificate)
	return pool
}

// PEM returns the certificate, and those between it and the authority.
func (c *Cert) PEM() (text []byte) {
	for _, der := range c.chain {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return text
}

// KeyPEM returns the key.
func (c *Cert) KeyPEM(t testing.TB) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(c.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// Write writes DIR/NAME.pem and DIR/NAME.key, and returns their paths.
func (c *Cert) Write(t testing.TB, dir, name string) (cert, key string) {
	t.Helper()
	cert, key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	for path, text := range map[string][]byte{cert: c.PEM(), key: c.KeyPEM(t)} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}
