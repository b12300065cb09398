//go:build linux

package peer

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
)

// GoTLS is the relay that a Go programmer would write first, with crypto/tls: it ends the clients' TLS if there is a certificate, and begins TLS with
// the upstream if there is an authority. Its arguments are threads, listener, upstream, certificate, key, authority, server name.
func GoTLS(args []string) error {
	if len(args) != 7 {
		return fmt.Errorf("gotls: %d arguments, want 7", len(args))
	}
	threads, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(threads)
	l, err := net.Listen("tcp", args[1])
	if err != nil {
		return err
	}
	var server, client *tls.Config
	if args[3] != "" {
		pair, err := tls.LoadX509KeyPair(args[3], args[4])
		if err != nil {
			return err
		}
		server = &tls.Config{Certificates: []tls.Certificate{pair}}
	}
	if args[5] != "" {
		text, err := os.ReadFile(args[5])
		if err != nil {
			return err
		}
		client = &tls.Config{ServerName: args[6], RootCAs: x509.NewCertPool(), ClientSessionCache: tls.NewLRUClientSessionCache(0)}
		if !client.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("%s has no certificate", args[5])
		}
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go carryTLS(c, args[2], server, client)
	}
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
