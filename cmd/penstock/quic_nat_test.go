package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	quicgo "github.com/quic-go/quic-go"

	"github.com/penstock/penstock/cmd/penstock/internal/quicid"
)

// quicIdle is how long a connection of these tests lives without a packet: while a worker is replaced, it may have nothing to send.
const quicIdle = 3 * patience

// movingServer is a server of QUIC that accepts clients that move, says its name at the head of each stream, and then returns what it
// gets. ids makes its connection IDs; nil: they are random.
func movingServer(t *testing.T, ctx context.Context, name string, config *tls.Config, ids quicgo.ConnectionIDGenerator) net.Addr {
	t.Helper()
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	tr := &quicgo.Transport{Conn: socket, ConnectionIDGenerator: ids}
	l, err := tr.Listen(config, &quicgo.Config{HandshakeIdleTimeout: patience, MaxIdleTimeout: quicIdle, InitialPacketSize: 1200})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		tr.Close()
		socket.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			c, err := l.Accept(ctx)
			if err != nil {
				return
			}
			all.Go(func() {
				for {
					s, err := c.AcceptStream(ctx)
					if err != nil {
						return
					}
					all.Go(func() {
						fmt.Fprintln(s, name)
						io.Copy(s, s)
						s.Close()
					})
				}
			})
		}
	})
	return socket.LocalAddr()
}

// serverIDs makes the connection IDs of a server as a layout says.
type serverIDs struct {
	layout *quicid.Layout
	server []byte
	nonce  int
	first  byte // bits that the first byte has besides those of the layout
}

func (g *serverIDs) GenerateConnectionID() (quicgo.ConnectionID, error) {
	nonce := make([]byte, g.nonce)
	for i := range nonce {
		nonce[i] = byte(rand.Uint32())
	}
	id := g.layout.Append(nil, g.server, nonce, true)
	id[0] |= g.first
	return quicgo.ConnectionIDFromBytes(id), nil
}

func (g *serverIDs) ConnectionIDLen() int { return 1 + len(g.server) + g.nonce }

// nat stands for a router with network address translation: what a client sends to inside leaves by outside, which rebind replaces.
type nat struct {
	t       *testing.T
	inside  *net.UDPConn
	to      *net.UDPAddr
	mu      sync.Mutex
	outside *net.UDPConn
	client  *net.UDPAddr
	late    int // replies that came to an address that the client has no more
	got     int // bytes that the client has had
	all     sync.WaitGroup
}

func newNAT(t *testing.T, to net.Addr) *nat {
	t.Helper()
	inside, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	n := &nat{t: t, inside: inside, to: to.(*net.UDPAddr)}
	n.rebind()
	n.all.Go(func() {
		b := make([]byte, 64<<10)
		for {
			size, from, err := inside.ReadFromUDP(b)
			if err != nil {
				return
			}
			n.mu.Lock()
			n.client = from
			n.outside.Write(b[:size])
			n.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		inside.Close()
		n.mu.Lock()
		n.outside.Close()
		n.mu.Unlock()
		n.all.Wait()
	})
	return n
}

// rebind gives the client another port. What arrives at the one before is lost, and counted.
func (n *nat) rebind() {
	n.t.Helper()
	outside, err := net.DialUDP("udp4", nil, n.to)
	if err != nil {
		n.t.Fatal(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if was := n.outside; was != nil {
		n.t.Cleanup(func() { was.Close() })
	}
	n.outside = outside
	n.all.Go(func() {
		b := make([]byte, 64<<10)
		for {
			size, err := outside.Read(b)
			if err != nil {
				if _, ok := err.(*net.OpError); ok && !isClosed(err) {
					continue // ECONNREFUSED of a relay that is replaced
				}
				return
			}
			n.mu.Lock()
			if n.outside == outside {
				n.got += size
				n.inside.WriteToUDP(b[:size], n.client)
			} else {
				n.late++
			}
			n.mu.Unlock()
		}
	})
}

// movingClient is a client of QUIC with one connection, which stays at one server.
type movingClient struct {
	t      *testing.T
	ctx    context.Context
	conn   *quicgo.Conn
	server string // that it has met first
}

// dialMoving connects to a relay, by a router if there is one.
func dialMoving(t *testing.T, ctx context.Context, to net.Addr, config *tls.Config) *movingClient {
	t.Helper()
	tr := movingTransport(t)
	conn, err := tr.Dial(ctx, to, config, movingConfig())
	if err != nil {
		t.Fatal(err)
	}
	c := &movingClient{t: t, ctx: ctx, conn: conn}
	c.ask(1)
	return c
}

func movingConfig() *quicgo.Config {
	return &quicgo.Config{HandshakeIdleTimeout: patience, MaxIdleTimeout: quicIdle, InitialPacketSize: 1200, DisablePathMTUDiscovery: true,
		KeepAlivePeriod: time.Second} // whoever only receives would never tell the server that its port is another one
}

// movingTransport has a socket of its own.
func movingTransport(t *testing.T) *quicgo.Transport {
	t.Helper()
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	tr := &quicgo.Transport{Conn: socket}
	t.Cleanup(func() { tr.Close(); socket.Close() })
	return tr
}

// ask sends some bytes over a new stream and checks that the same server returns them.
func (c *movingClient) ask(kilobytes int) {
	c.t.Helper()
	if err := c.exchange(kilobytes); err != nil {
		c.t.Fatal(err)
	}
}

// exchange is ask for other goroutines.
func (c *movingClient) exchange(kilobytes int) error {
	s, err := c.conn.OpenStreamSync(c.ctx)
	if err != nil {
		return err
	}
	s.SetDeadline(time.Now().Add(patience))
	sent := make([]byte, kilobytes<<10)
	for i := range sent {
		sent[i] = byte(rand.Uint32())
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.Write(sent)
		s.Close()
		done <- err
	}()
	got, err := io.ReadAll(s)
	if err := <-done; err != nil {
		return err
	}
	name, rest, _ := bytes.Cut(got, []byte("\n"))
	if c.server == "" {
		c.server = string(name)
	}
	if err != nil || string(name) != c.server || !bytes.Equal(rest, sent) {
		return fmt.Errorf("%d bytes from %q, %v; want %d from %q, and the same", len(rest), name, err, len(sent), c.server)
	}
	return nil
}

// move has the client go on by another socket of its own, as it does when it changes networks.
func (c *movingClient) move() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, patience)
	defer cancel()
	path, err := c.conn.AddPath(movingTransport(c.t))
	if err != nil {
		c.t.Fatal(err)
	}
	if err := path.Probe(ctx); err != nil {
		c.t.Fatalf("probe: %v", err)
	}
	if err := path.Switch(); err != nil {
		c.t.Fatalf("switch: %v", err)
	}
}
