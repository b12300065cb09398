package relay

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/clienthello"
	"github.com/penstock/penstock/relay/hold"
)

// certificate is a certificate for test.example, which signs itself, and a pool that trusts it.
var certificate = sync.OnceValues(func() (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"test.example"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
})

// serverTLS is a server's configuration for one version, or for all if that is 0.
func serverTLS(version uint16) *tls.Config {
	c, _ := certificate()
	return &tls.Config{Certificates: []tls.Certificate{c}, MinVersion: version, MaxVersion: version, NextProtos: []string{"test"}, DynamicRecordSizingDisabled: true}
}

// clientTLS is a client's.
func clientTLS() *tls.Config {
	_, pool := certificate()
	return &tls.Config{RootCAs: pool, ServerName: "test.example", NextProtos: []string{"test"}}
}

// encryption says where there is TLS, and notes what the hook was told.
type encryption struct {
	terminate, originate bool
	version              uint16 // of the client's side and of the upstream; 0: any
	timeout              time.Duration
	protocol             string // of both sides, by ALPN; empty: test
	bandwidth            int64  // 0: no limit; with originate only
	answer               Cause  // of the hook
	kernel               bool   // clients' connections are given to the kernel when they are settled

	mu     sync.Mutex
	states []*tls.ConnectionState
	errs   []error
}

func (x *encryption) secured(_ *Flow, _ Side, state *tls.ConnectionState, _ time.Duration, err error) Cause {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.states, x.errs = append(x.states, state), append(x.errs, err)
	return x.answer
}

// config is a listener's that does this.
func (x *encryption) config() ListenConfig {
	server, client := serverTLS(x.version), clientTLS()
	if x.protocol != "" {
		server.NextProtos, client.NextProtos = []string{x.protocol}, []string{x.protocol}
	}
	if x.kernel {
		server = hold.TLSInKernel(server)
	}
	cfg := ListenConfig{Timeouts: Timeouts{Handshake: x.timeout}}
	cfg.Hooks.Secured = x.secured
	if x.terminate {
		cfg.Hooks.Admit = func(f *Flow) Cause {
			f.StartSniff(16<<10, time.Minute)
			return CauseNone
		}
		cfg.Hooks.Sniff = func(f *Flow, b []byte, last bool) (int, SniffNext) {
			switch _, err := clienthello.Parse(b); {
			case err == clienthello.ErrIncomplete && !last:
				return 0, SniffMore
			case err != nil || f.Terminate(server) != nil:
				return 0, SniffRefuse
			}
			return 0, SniffDone
		}
	}
	if x.originate {
		cfg.Hooks.Connected = func(f *Flow, _ *Addr, _ time.Duration, err error) {
			if err == nil {
				f.SetBandwidth(x.bandwidth)
				f.Originate(client)
			}
		}
	}
	return cfg
}

// ends are the two ends of a flow, with TLS where the flow has it.
func (x *encryption) ends(t *testing.T, r *rig, client, upstream string) (a, b net.Conn) {
	t.Helper()
	s := newServer(t, upstream)
	c := dial(t, r.listen(client, x.config(), s.addr))
	a = c
	ready := make(chan error, 1)
	if x.terminate {
		cfg := clientTLS()
		if x.protocol != "" {
			cfg.NextProtos = []string{x.protocol}
		}
		secure := tls.Client(c, cfg)
		a = secure
		go func() { ready <- secure.Handshake() }()
	} else {
		ready <- nil
	}
	b = s.accept(t)
	if x.originate {
		cfg := serverTLS(x.version)
		if x.protocol != "" {
			cfg.NextProtos = []string{x.protocol}
		}
		secure := tls.Server(b, cfg)
		b = secure
		if err := secure.Handshake(); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	return a, b
}

// eachEncryption runs a behaviour with every combination of TLS.
func eachEncryption(t *testing.T, behaviour func(t *testing.T, x *encryption)) {
	for _, terminate := range []bool{false, true} {
		for _, originate := range []bool{false, true} {
			if terminate || originate {
				t.Run(fmt.Sprintf("terminate=%v/originate=%v", terminate, originate), func(t *testing.T) {
					behaviour(t, &encryption{terminate: terminate, originate: originate})
				})
			}
		}
	}
}
