package etcd

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// certificates are files in a folder: an authority, and a certificate with its key that both ends use.
type certificates struct{ folder string }

func (c certificates) file(name string) string { return filepath.Join(c.folder, name) }

// make makes all of them, for a new authority, in place of those before.
func (c certificates) make(t *testing.T) {
	t.Helper()
	sign := func(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) []byte {
		template.SerialNumber = big.NewInt(time.Now().UnixNano())
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	write := func(name, kind string, der []byte) {
		path := c.file(name)
		if err := os.WriteFile(path+".new", pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	write("ca", "CERTIFICATE", sign(ca, ca, caKey, caKey))
	both := &x509.Certificate{Subject: pkix.Name{CommonName: "etcd"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	write("cert", "CERTIFICATE", sign(both, ca, key, caKey))
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write("key", "PRIVATE KEY", der)
}

// With TLS and client certificates, which all change while the server is down.
func TestTLS(t *testing.T) {
	testnet.CheckLeaks(t)
	files := certificates{t.TempDir()}
	files.make(t)
	server := testfleet.Etcd(t, "-listen", "https://127.0.0.1:0", "-cert", files.file("cert"), "-key", files.file("key"), "-ca", files.file("ca"))
	cfg := quick(server.URL)
	if _, err := open(t, cfg).Put(t.Context(), "/a/0", nil, 0); err == nil {
		t.Error("a client that knows nothing may write")
	}
	cfg.Remote.CA = files.file("ca")
	if _, err := open(t, cfg).Put(t.Context(), "/a/0", nil, 0); err == nil {
		t.Error("a client without a certificate may write")
	}
	cfg.Remote.Cert, cfg.Remote.Key = files.file("cert"), files.file("key")
	c := open(t, cfg)
	mustPut(t, c, "/a/0", "x", 0)
	m := follow(t, c, "/a/")
	testwait.Until(t, "contact", m.connected)
	mustPut(t, c, "/a/1", "y", 0)
	testwait.Until(t, "a change", m.equals(map[string]string{"/a/0": "x", "/a/1": "y"}))

	server.Kill()
	files.make(t)
	server.Restart()
	mustPut(t, c, "/a/2", "z", 0)
	testwait.Until(t, "a change with other certificates", m.equals(map[string]string{"/a/0": "x", "/a/1": "y", "/a/2": "z"}))
	if m.numLists() != 1 {
		t.Errorf("%d lists", m.numLists())
	}
}
