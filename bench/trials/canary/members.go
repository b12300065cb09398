//go:build linux

package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/bench/internal/certs"
	"github.com/penstock/penstock/bench/internal/echo"
	"github.com/penstock/penstock/internal/testport"
)

// members are servers, good ones and others. Those over TCP answer "GET N" with N bytes, and so on on the same connection.
type members struct {
	closers []io.Closer
	all     sync.WaitGroup
	urls    map[string]string // by what they do
	free    func()            // the port at which nobody is
	roots   *x509.CertPool
	pair    certs.Pair // of the relays
	wrong   certs.Pair // of another name
}

func newMembers(dir string) (*members, error) {
	m := &members{urls: map[string]string{}}
	authority, err := certs.New(dir)
	if err != nil {
		return nil, err
	}
	if m.pair, err = authority.Server("relay", "ecdsa", "tls.test"); err != nil {
		return nil, err
	}
	if m.wrong, err = authority.Server("wrong", "ecdsa", "other.test"); err != nil {
		return nil, err
	}
	if m.roots, err = certs.Roots(authority.CA); err != nil {
		return nil, err
	}
	for name, serve := range map[string]func(net.Conn){
		"one": answer, "two": answer,
		"closes":  func(net.Conn) {},
		"silent":  func(c net.Conn) { io.Copy(io.Discard, c) },
		"resets":  reset,
		"breaks":  breaks,
		"error":   func(c net.Conn) { c.Read(make([]byte, 100)); io.WriteString(c, "-ERR unknown command\r\n") },
		"proxied": proxied,
		"far":     func(c net.Conn) { time.Sleep(1500 * time.Millisecond); answer(c) },
		"late":    func(c net.Conn) { time.Sleep(30 * time.Millisecond); answer(c) },
	} {
		if err := m.listen(name, serve); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"a", "b"} {
		pair, err := authority.Server(name, "ecdsa", name+".test")
		if err != nil {
			return nil, err
		}
		cert, err := tls.LoadX509KeyPair(pair.Certificate, pair.Key)
		if err != nil {
			return nil, err
		}
		config := &tls.Config{Certificates: []tls.Certificate{cert}}
		if err := m.listen("tls-"+name, func(c net.Conn) { answer(tls.Server(c, config)) }); err != nil {
			return nil, err
		}
	}
	for name, replies := range map[string]int{"udp": 1, "udp-silent": 0} {
		c, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		m.closers = append(m.closers, c)
		m.urls[name] = "udp://" + c.LocalAddr().String()
		m.all.Go(func() {
			b := make([]byte, 2000)
			for {
				n, from, err := c.ReadFrom(b)
				if err != nil {
					return
				}
				for range replies {
					c.WriteTo(append(b[:n:n], b[:n]...), from)
				}
			}
		})
	}
	port, free, err := testport.Reserve()
	if err != nil {
		return nil, err
	}
	m.free = free
	m.urls["dead"] = "tcp://127.0.0.1:" + port
	return m, nil
}

// listen makes a member serve each connection.
func (m *members) listen(name string, serve func(net.Conn)) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	m.closers = append(m.closers, l)
	m.urls[name] = "tcp://" + l.Addr().String()
	m.all.Go(func() {
		echo.Serve(l, func(c net.Conn) {
			c.SetDeadline(time.Now().Add(20 * time.Second))
			serve(c)
		})
	})
	return nil
}

func (m *members) close() {
	for _, c := range m.closers {
		c.Close()
	}
	m.all.Wait()
	m.free()
}

// answer answers requests until the client leaves.
func answer(c net.Conn) { answerAll(c, bufio.NewReader(c)) }

func answerAll(c net.Conn, r *bufio.Reader) {
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		n := 0
		if _, err := fmt.Sscanf(line, "GET %d\n", &n); err != nil {
			io.WriteString(c, "400 bad request\n")
			return
		}
		if _, err := c.Write(make([]byte, n)); err != nil {
			return
		}
	}
}

// proxied wants a PROXY header first.
func proxied(c net.Conn) {
	r := bufio.NewReader(c)
	if line, err := r.ReadString('\n'); err == nil && strings.HasPrefix(line, "PROXY ") {
		answerAll(c, r)
	}
}

func reset(c net.Conn) { c.(*net.TCPConn).SetLinger(0) }

// breaks answers half of what is asked for, and resets.
func breaks(c net.Conn) {
	line, err := bufio.NewReader(c).ReadString('\n')
	n := 0
	if _, bad := fmt.Sscanf(line, "GET %d\n", &n); err == nil && bad == nil {
		c.Write(make([]byte, n/2))
		time.Sleep(20 * time.Millisecond) // for what was sent to arrive
	}
	reset(c)
}
