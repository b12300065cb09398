//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// A probe is a case of its own: with a client in this program, and servers of quic-go.
type probe struct {
	name, what string
	try        func(*setup) error
}

var probes = []probe{
	{"several", "six connections of one port, three to each of two names, at the same time", (*setup).several},
	{"several+rebind", "the same, and their router gives them another port", (*setup).severalRebound},
	{"retry", "the servers ask each client to begin again (Retry)", (*setup).retry},
	{"0-rtt", "a client comes back, and sends its request with its first packet", (*setup).early},
	{"versions", "a client of a version that nobody knows is told which ones there are", (*setup).versions},
	{"other", "something else than QUIC on the same port, to the default", (*setup).other},
}

// returnAll returns every datagram, until its socket is closed.
func returnAll(c *net.UDPConn) {
	b := make([]byte, 64<<10)
	for {
		n, from, err := c.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		c.WriteToUDPAddrPort(b[:n], from)
	}
}

// clientTLS returns the settings of clients for a name.
func (s *setup) clientTLS(name string) (*tls.Config, error) {
	pem, err := os.ReadFile(s.ca)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return &tls.Config{RootCAs: roots, ServerName: name, NextProtos: []string{http3.NextProtoH3}}, nil
}

// local returns a socket of this host, and the address of a listener for a name.
func (s *setup) local(listener, name string) (*net.UDPConn, *net.UDPAddr, error) {
	to, err := net.ResolveUDPAddr("udp4", "127.0.0.1:"+s.port(listener, name))
	if err != nil {
		return nil, nil, err
	}
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	return c, to, err
}

// get asks for the file of a name over a connection, and compares it.
func (s *setup) get(ctx context.Context, conn *http3.ClientConn, name, method string) error {
	request, err := http.NewRequestWithContext(ctx, method, "https://"+name+"/file", nil)
	if err != nil {
		return err
	}
	answer, err := conn.RoundTrip(request)
	if err != nil {
		return err
	}
	b, err := io.ReadAll(answer.Body)
	if err == nil && !bytes.Equal(b, s.files[name]) {
		err = fmt.Errorf("%d bytes that are not those of %s", len(b), name)
	}
	return err
}

// dial begins a connection.
func (s *setup) dial(ctx context.Context, t *quic.Transport, to net.Addr, settings *tls.Config) (*http3.ClientConn, error) {
	conn, err := t.Dial(ctx, to, settings, &quic.Config{})
	if err != nil {
		return nil, err
	}
	return new(http3.Transport).NewClientConn(conn), nil
}

func (s *setup) several() error        { return s.connections(false) }
func (s *setup) severalRebound() error { return s.connections(true) }

// connections downloads the files of both names over connections of one port, each twice. The port may be another one from the second time on.
func (s *setup) connections(rebind bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, to, err := s.local("learned", names[0])
	if err != nil {
		return err
	}
	defer c.Close()
	n, err := newNAT(to.String(), math.MaxInt, false)
	if err != nil {
		return err
	}
	defer n.close()
	to = n.inside.LocalAddr().(*net.UDPAddr)
	t := &quic.Transport{Conn: c}
	defer t.Close()
	errs := make([]error, 6)
	var all, first sync.WaitGroup
	first.Add(len(errs))
	again := make(chan struct{})
	for i := range errs {
		name := names[i%2]
		all.Go(func() {
			settings, err := s.clientTLS(name)
			var conn *http3.ClientConn
			if err == nil {
				conn, err = s.dial(ctx, t, to, settings)
			}
			if err == nil {
				err = s.get(ctx, conn, name, http.MethodGet)
			}
			first.Done()
			if <-again; err == nil {
				err = s.get(ctx, conn, name, http.MethodGet)
			}
			if err != nil {
				errs[i] = fmt.Errorf("connection %d to %s: %w", i, name, err)
			}
		})
	}
	first.Wait()
	if rebind {
		n.rebind()
	}
	close(again)
	all.Wait()
	return errors.Join(errs...)
}

func (s *setup) retry() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, name := range names {
		c, to, err := s.local("retry", name)
		if err != nil {
			return err
		}
		defer c.Close()
		settings, err := s.clientTLS(name)
		if err != nil {
			return err
		}
		t := &quic.Transport{Conn: c}
		defer t.Close()
		conn, err := s.dial(ctx, t, to, settings)
		if err == nil {
			err = s.get(ctx, conn, name, http.MethodGet)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// early has a client of each name come back with what it has kept of its first connection. All servers can read that.
func (s *setup) early() error {
	used := 0
	for _, name := range names {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		settings, err := s.clientTLS(name)
		if err != nil {
			return err
		}
		settings.ClientSessionCache = tls.NewLRUClientSessionCache(8)
		for range 4 { // the first one has nothing yet
			c, to, err := s.local("learned", name)
			if err != nil {
				return err
			}
			defer c.Close()
			t := &quic.Transport{Conn: c}
			defer t.Close()
			conn, err := t.DialEarly(ctx, to, settings, &quic.Config{})
			if err != nil {
				return err
			}
			if err := s.get(ctx, new(http3.Transport).NewClientConn(conn), name, http3.MethodGet0RTT); err != nil {
				return err
			}
			if conn.ConnectionState().Used0RTT {
				used++
			}
			conn.CloseWithError(0, "")
		}
	}
	if used != 3*len(names) {
		return fmt.Errorf("%d connections of %d have had early data taken", used, 3*len(names))
	}
	return nil
}

// versions sends a first packet of a version that is reserved for this (RFC 9000, 15), and reads the answer.
func (s *setup) versions() error {
	b := make([]byte, 1200)
	rand.Read(b)
	b[0], b[5], b[14] = 0xc0, 8, 8
	binary.BigEndian.PutUint32(b[1:], 0x1a2a3a4a)
	answer, err := s.ask("learned", b)
	switch {
	case err != nil:
		return err
	case len(answer) < 27 || answer[0]&0x80 == 0 || binary.BigEndian.Uint32(answer[1:]) != 0 || !bytes.Equal(answer[6:14], b[15:23]) || !bytes.Equal(answer[15:23], b[6:14]):
		return fmt.Errorf("no Version Negotiation: %x", answer[:min(len(answer), 32)])
	}
	return nil
}

func (s *setup) other() error {
	for i := range 20 {
		b := fmt.Appendf(nil, "\x00datagram %d of something else", i)
		answer, err := s.ask("retry", b)
		if err != nil || !bytes.Equal(answer, b) {
			return fmt.Errorf("%q was answered by %q, %v", b, answer, err)
		}
	}
	return nil
}

// ask sends a datagram from a new port, again if it is not answered for a second, and returns the answer.
func (s *setup) ask(listener string, b []byte) ([]byte, error) {
	c, to, err := s.local(listener, names[0])
	if err != nil {
		return nil, err
	}
	defer c.Close()
	answer := make([]byte, 64<<10)
	for range 10 {
		if _, err = c.WriteTo(b, to); err != nil {
			return nil, err
		}
		c.SetReadDeadline(time.Now().Add(time.Second))
		var n int
		if n, err = c.Read(answer); err == nil {
			return answer[:n], nil
		}
	}
	return nil, err
}
