//go:build linux

package peer

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"

	"github.com/penstock/penstock/bench/internal/certs"
)

// GoTLS is the relay that a Go programmer would write first, with crypto/tls. Its setup comes as JSON.
func GoTLS(text string) error {
	var s Setup
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	runtime.GOMAXPROCS(s.Loops)
	l, err := net.Listen("tcp", s.Listen)
	if err != nil {
		return err
	}
	var server, client *tls.Config
	if s.TLS.Terminate {
		if server, err = goServer(s.TLS); err != nil {
			return err
		}
	}
	if s.TLS.Originate {
		client = &tls.Config{ServerName: s.TLS.Name, ClientSessionCache: tls.NewLRUClientSessionCache(0)}
		if client.RootCAs, err = certs.Roots(s.TLS.CA); err != nil {
			return err
		}
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go carryTLS(c, s.Upstream, server, client)
	}
}

func goServer(t TLS) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, err
	}
	if t.OCSP != "" {
		if pair.OCSPStaple, err = os.ReadFile(t.OCSP); err != nil {
			return nil, err
		}
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: strings.Fields(t.ALPN)}
	if t.Other != "" {
		if pair, err = tls.LoadX509KeyPair(t.OtherCert, t.OtherKey); err != nil {
			return nil, err
		}
		config.Certificates = append(config.Certificates, pair)
	}
	if t.Clients != "" {
		config.ClientAuth = tls.RequireAndVerifyClientCert
		config.ClientCAs, err = certs.Roots(t.Clients)
	}
	return config, err
}

// A half is an end of a relay that can be closed for writing: a *net.TCPConn or a *tls.Conn.
type half interface {
	net.Conn
	CloseWrite() error
}

func carryTLS(c net.Conn, upstream string, server, client *tls.Config) {
	a := c.(half)
	if server != nil {
		s := tls.Server(c, server)
		if s.Handshake() != nil {
			c.Close()
			return
		}
		a = s
	}
	defer a.Close()
	u, err := net.Dial("tcp", upstream)
	if err != nil {
		return
	}
	b := u.(half)
	if client != nil {
		b = tls.Client(u, client)
	}
	defer b.Close()
	var wg sync.WaitGroup
	wg.Go(func() { copyHalf(b, a) })
	copyHalf(a, b)
	wg.Wait()
}

// copyHalf has a buffer for two records. After an error both ends are useless.
func copyHalf(dst, src half) {
	if _, err := io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, make([]byte, 32<<10)); err != nil {
		dst.Close()
		src.Close()
		return
	}
	dst.CloseWrite()
}
