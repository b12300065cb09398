package testfleet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// A fake is an HTTP server in this process which stands for one that cannot be had, or takes too long to build. It listens on
// 127.0.0.1, or in a network in memory, and ends with the test.
type fake struct {
	URL string

	tb      testing.TB
	network *testnet.Network // nil: the real one
	address string
	serve   http.HandlerFunc
	cert    *tls.Certificate // nil: no TLS
	ca      []byte

	mu       sync.Mutex
	server   *http.Server
	done     chan struct{}    // closed when server's Serve has returned
	fault    http.HandlerFunc // answers instead, if it is set
	requests []*http.Request
	changed  chan struct{} // closed at the next change of whatever is served
}

func newFake(tb testing.TB, network *testnet.Network, secure bool, serve http.HandlerFunc) *fake {
	tb.Helper()
	f := &fake{tb: tb, network: network, serve: serve, changed: make(chan struct{})}
	scheme := "http://"
	if secure {
		f.newCertificate()
		scheme = "https://"
	}
	if network == nil {
		f.address = "127.0.0.1:" + testnet.Port(tb)
	} else {
		f.address = network.Address("server.test")
	}
	f.URL = scheme + f.address
	f.Start()
	tb.Cleanup(f.Stop)
	return f
}

// Start listens again after Stop, at the same address.
func (f *fake) Start() {
	f.tb.Helper()
	if err := whileInUse(func() error {
		listen := func() (net.Listener, error) { return net.Listen(f.kind(), f.address) }
		if f.network != nil {
			listen = func() (net.Listener, error) { return f.network.Listen(f.address) }
		}
		l, err := listen()
		if err == nil {
			f.start(l)
		}
		return err
	}); err != nil {
		f.tb.Fatal(err)
	}
}

// kind returns the network of the address: a path is that of a Unix socket.
func (f *fake) kind() string {
	if strings.HasPrefix(f.address, "/") {
		return "unix"
	}
	return "tcp"
}

// whileInUse calls listen until the address is not in use any more. Although it is reserved and its last
// listener was closed, a process that another goroutine has just started may have a copy of that one until it executes its program.
func whileInUse(listen func() error) (err error) {
	testwait.For(func() bool {
		err = listen()
		return !errors.Is(err, syscall.EADDRINUSE)
	})
	return err
}

func (f *fake) start(l net.Listener) {
	s := &http.Server{Handler: http.HandlerFunc(f.ServeHTTP)}
	done := make(chan struct{})
	f.mu.Lock()
	f.server, f.done = s, done
	f.mu.Unlock()
	go func() {
		defer close(done)
		if f.cert == nil {
			s.Serve(l)
			return
		}
		s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{*f.cert}}
		s.ServeTLS(l, "", "")
	}()
}

// Stop closes the listener and all connections.
func (f *fake) Stop() {
	f.mu.Lock()
	s, done := f.server, f.done
	f.server = nil
	f.mu.Unlock()
	if s != nil {
		s.Close()
		<-done
	}
}

// Fault makes h answer every request from now on, also those that wait; nil ends that.
func (f *fake) Fault(h http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = h
	f.touch()
}

// Requests returns the requests until now, without their bodies.
func (f *fake) Requests() []*http.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*http.Request{}, f.requests...)
}

// wait waits until something has changed, or for d, as blocking queries do: unchanged reports whether everything is as the client knows it. It
// reports false if the client has gone. The caller holds f.mu, which is not held meanwhile.
func (f *fake) wait(r *http.Request, d time.Duration, unchanged func() bool) bool {
	late := time.After(d)
	for unchanged() && f.fault == nil {
		changed, over, gone := f.changed, false, false
		f.mu.Unlock()
		select {
		case <-changed:
		case <-late:
			over = true
		case <-r.Context().Done():
			over, gone = true, true
		}
		f.mu.Lock()
		if over {
			return !gone
		}
	}
	return true
}

// touch wakes everybody who waits. The caller holds f.mu.
func (f *fake) touch() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	h := f.fault
	f.requests = append(f.requests, r)
	f.mu.Unlock()
	if h == nil {
		h = f.serve
	}
	h(w, r)
}

// CAFile writes the certificate that the server's is signed by to a file, and returns its path.
func (f *fake) CAFile() string {
	path := filepath.Join(f.tb.TempDir(), "ca.pem")
	if err := os.WriteFile(path, f.ca, 0o600); err != nil {
		f.tb.Fatal(err)
	}
	return path
}

// CA returns that certificate, in PEM format.
func (f *fake) CA() []byte { return f.ca }

func (f *fake) newCertificate() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a server of tests"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"server.test"},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		f.tb.Fatal(err)
	}
	f.cert = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	f.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
