// Package certs makes the certificates that the programs of this module use: an authority, and what it
// has signed for servers and clients.
package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// Name is the server name in the certificates.
const Name = "relay.example"

// Kinds are the kinds of keys: ECDSA with P-256, and RSA with 2048 bits.
var Kinds = []string{"ecdsa", "rsa"}

// Pair is where a certificate and its key are.
type Pair struct {
	Certificate string // PEM
	Key         string // PEM, PKCS#8
	Both        string // PEM: the certificate, then the key
	Serial      int64
}

// Authority signs certificates, which are files in its folder.
type Authority struct {
	CA   string // PEM
	File string // PEM, its key
	Cert *x509.Certificate
	Key  crypto.Signer

	dir    string
	serial int64
}

// New makes an authority in a folder.
func New(dir string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &Authority{CA: filepath.Join(dir, "ca.pem"), File: filepath.Join(dir, "ca.key"), Key: key, dir: dir, serial: 1}
	template := a.template("authority")
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	if a.Cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(a.File, block("PRIVATE KEY", private), 0o600); err != nil {
		return nil, err
	}
	return a, os.WriteFile(a.CA, block("CERTIFICATE", der), 0o644)
}

func (a *Authority) template(name string) *x509.Certificate {
	a.serial++
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(a.serial), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(90 * 24 * time.Hour),
	}
}

// Server makes a certificate for a server with a kind of key, in files that begin with prefix.
func (a *Authority) Server(prefix, kind string, names ...string) (Pair, error) {
	t := a.template(names[0])
	t.DNSNames = names
	t.KeyUsage, t.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	return a.sign(prefix, kind, t)
}

// Client makes a certificate for a client, whose identity is a URI.
func (a *Authority) Client(prefix, kind, identity string) (Pair, error) {
	uri, err := url.Parse(identity)
	if err != nil {
		return Pair{}, err
	}
	t := a.template(prefix)
	t.URIs = []*url.URL{uri}
	t.KeyUsage, t.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.sign(prefix, kind, t)
}

func (a *Authority) sign(prefix, kind string, t *x509.Certificate) (p Pair, err error) {
	var key crypto.Signer
	switch kind {
	case "ecdsa":
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "rsa":
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	default:
		err = fmt.Errorf("kind of key %q: allowed: %v", kind, Kinds)
	}
	if err != nil {
		return p, err
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.Cert, key.Public(), a.Key)
	if err != nil {
		return p, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return p, err
	}
	file := func(suffix string) string { return filepath.Join(a.dir, prefix+suffix) }
	p = Pair{Certificate: file(".pem"), Key: file(".key"), Both: file(".both"), Serial: t.SerialNumber.Int64()}
	chain, secret := block("CERTIFICATE", der), block("PRIVATE KEY", private)
	if err := os.WriteFile(p.Certificate, chain, 0o644); err != nil {
		return p, err
	}
	if err := os.WriteFile(p.Key, secret, 0o600); err != nil {
		return p, err
	}
	return p, os.WriteFile(p.Both, append(chain, secret...), 0o600)
}

// Roots reads certificates of authorities.
func Roots(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	all := x509.NewCertPool()
	if !all.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate", file)
	}
	return all, nil
}

// Hello returns the ClientHello of a client.
func Hello(config *tls.Config) []byte {
	a, b := net.Pipe()
	defer b.Close()
	go tls.Client(a, config).Handshake() // it ends with the pipe
	text := make([]byte, 8<<10)
	n, _ := b.Read(text)
	return text[:n]
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
