package remote

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
)

// An authority makes certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{}
	a.cert, a.key, a.pem = certify(t, nil, &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// certify makes a certificate, by its own authority if by is nil.
func certify(t *testing.T, by *authority, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := c, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// pair makes a certificate for a name, and its key, both in PEM.
func (a *authority) pair(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	_, k, cert := certify(t, a, &x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}})
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// write replaces a file as programs that rotate certificates do: by a rename.
func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// tlsServer speaks TLS with certificates and authorities that change, and tells the client's name.
type tlsServer struct {
	*httptest.Server
	mu      sync.Mutex
	pair    tls.Certificate
	clients *x509.CertPool
}

func startTLS(t *testing.T) *tlsServer {
	s := &tlsServer{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName+" "+r.Proto+" "+r.Header.Get("Authorization"))
	}))
	s.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return &tls.Config{Certificates: []tls.Certificate{s.pair}, ClientCAs: s.clients, ClientAuth: tls.RequireAndVerifyClientCert, NextProtos: []string{"h2", "http/1.1"}}, nil
	}}
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that do not believe the server are part of the test
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *tlsServer) use(t *testing.T, a *authority, name string) {
	t.Helper()
	pair, err := tls.X509KeyPair(a.pair(t, name))
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pair, s.clients = pair, x509.NewCertPool()
	s.clients.AddCert(a.cert)
}

// Certificates, authorities and tokens change while the client is in use.
func TestRotation(t *testing.T) {
	testnet.CheckLeaks(t)
	server := startTLS(t)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	rotate := func(authorityName, client string) {
		t.Helper()
		a := newAuthority(t, authorityName)
		cert, key := a.pair(t, client)
		server.use(t, a, "registry.test")
		write(t, file("ca"), a.pem)
		write(t, file("cert"), cert)
		write(t, file("key"), key)
		write(t, file("token"), []byte("token-of-"+client+"\n"))
	}
	rotate("first", "one")
	c, err := New(Config{Servers: []string{server.URL}, CA: file("ca"), Cert: file("cert"), Key: file("key"), ServerName: "registry.test", TokenFile: file("token")})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	get := func() (string, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Do(r)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		b, err := Read(res.Body, 1000)
		return string(b), err
	}
	for _, name := range []string{"one", "two", "three"} {
		if name != "one" {
			rotate("authority of "+name, name)
			server.CloseClientConnections()
			c.Close()
		}
		if text, err := get(); text != name+" HTTP/2.0 Bearer token-of-"+name || err != nil {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}

	// New files that are wrong, or gone for a moment, change nothing.
	write(t, file("ca"), []byte("nonsense"))
	write(t, file("cert"), []byte("nonsense"))
	if err := os.Remove(file("key")); err != nil {
		t.Fatal(err)
	}
	server.CloseClientConnections()
	c.Close()
	if text, err := get(); !strings.HasPrefix(text, "three ") || err != nil {
		t.Errorf("%q, %v", text, err)
	}

	// A server of another authority, or another name, is not believed.
	for _, name := range []string{"registry.test", "other.test"} {
		server.use(t, newAuthority(t, "nobody"), name)
		server.CloseClientConnections()
		c.Close()
		if text, err := get(); err == nil {
			t.Errorf("%s: %q", name, text)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		write(t, path, []byte(text))
		return path
	}
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"no server":       {Config{}, "no server"},
		"no URL":          {Config{Servers: []string{"10.0.0.1:2379"}}, "not the URL"},
		"a path":          {Config{Servers: []string{"http://h:1/x"}}, "only a scheme"},
		"a password":      {Config{Servers: []string{"http://u:p@h:1"}}, "only a scheme"},
		"two schemes":     {Config{Servers: []string{"http://h:1", "https://h:1"}}, "both"},
		"no such file":    {Config{Servers: []string{"https://h:1"}, CA: dir + "/none"}, "none"},
		"no authority":    {Config{Servers: []string{"https://h:1"}, CA: file("ca", "nonsense")}, "no certificate"},
		"no key":          {Config{Servers: []string{"https://h:1"}, Cert: file("cert", "nonsense")}, "its key"},
		"no certificate":  {Config{Servers: []string{"https://h:1"}, Cert: file("cert", "x"), Key: file("key", "x")}, "client's certificate"},
		"an empty token":  {Config{Servers: []string{"http://h:1"}, TokenFile: file("empty", "")}, "is empty"},
		"no user":         {Config{Servers: []string{"http://h:1"}, UserFile: file("user", "name")}, "USER:PASSWORD"},
		"too large a key": {Config{Servers: []string{"http://h:1"}, UserFile: file("large", strings.Repeat("x", maxFile+1))}, "larger"},
	} {
		if _, err := New(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Redirects are not followed: the token would go elsewhere.
func TestRedirects(t *testing.T) {
	testnet.CheckLeaks(t)
	server := httptest.NewServer(http.RedirectHandler("http://127.0.0.1:1/", http.StatusFound))
	defer server.Close()
	c, err := New(Config{Servers: []string{server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusFound {
		t.Error(res.Status)
	}
}

// HTTP/2 without TLS, as servers of xDS speak it.
func TestHTTP2WithoutTLS(t *testing.T) {
	testnet.CheckLeaks(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }), Protocols: new(http.Protocols)}
	server.Protocols.SetUnencryptedHTTP2(true)
	var wg sync.WaitGroup
	wg.Go(func() { server.Serve(l) })
	defer wg.Wait()
	defer server.Close()
	c, err := New(Config{Servers: []string{"http://" + l.Addr().String()}, HTTP2: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Servers()[0].String(), nil)
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, err := Read(res.Body, 100); string(b) != "HTTP/2.0" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
}

// A file that is away, empty or too large while it is replaced leaves what it had; and the next content
// is used.
func TestFileThatIsAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one\r\nrest")
	c, err := New(Config{Servers: []string{"http://127.0.0.1:1"}, TokenFile: path})
	if err != nil {
		t.Fatal(err)
	}
	wants := func(want string) {
		t.Helper()
		if got, err := c.Token(); got != want || err != nil {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	wants("one")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	wants("one")
	write("")
	wants("one")
	write(strings.Repeat("x", maxFile+1))
	wants("one")
	write("two")
	wants("two")
}
