package testfleet

import (
	"context"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
)

// A Proxy passes TCP connections on to a server, and can cut, freeze and delay them: the network between a client
// and a server that is well.
type Proxy struct {
	URL string // as the server's, with the proxy's address

	tb       testing.TB
	address  string
	to       string
	network  *testnet.Network // nil: the real one
	accepted atomic.Int64
	delay    atomic.Int64 // of each piece of data
	frozen   atomic.Bool

	mu       sync.Mutex
	listener net.Listener // nil: cut
	conns    map[net.Conn]bool
	wg       sync.WaitGroup
	closed   chan struct{}
}

// NewProxy starts a proxy in front of a server, until the test ends.
func NewProxy(tb testing.TB, server string) *Proxy {
	tb.Helper()
	u, err := url.Parse(server)
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{tb: tb, to: u.Host, address: "127.0.0.1:" + testnet.Port(tb)}
	p.start(u)
	return p
}

// NewMemoryProxy starts a proxy at an address of a network in memory.
func NewMemoryProxy(tb testing.TB, network *testnet.Network, address, server string) *Proxy {
	tb.Helper()
	u, err := url.Parse(server)
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{tb: tb, to: u.Host, address: address, network: network}
	p.start(u)
	return p
}

func (p *Proxy) start(u *url.URL) {
	p.tb.Helper()
	p.conns, p.closed = make(map[net.Conn]bool), make(chan struct{})
	if err := p.listen(); err != nil {
		p.tb.Fatal(err)
	}
	u.Host = p.address
	p.URL = u.String()
	p.tb.Cleanup(func() {
		close(p.closed)
		p.Cut()
		p.wg.Wait()
	})
}

func (p *Proxy) listen() error {
	listen := func() (net.Listener, error) { return net.Listen("tcp", p.address) }
	if p.network != nil {
		listen = func() (net.Listener, error) { return p.network.Listen(p.address) }
	}
	l, err := listen()
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener = l
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.accepted.Add(1)
			p.wg.Go(func() { p.serve(c) })
		}
	})
	return nil
}

// Accepted returns how many connections clients have made.
func (p *Proxy) Accepted() int { return int(p.accepted.Load()) }

// Cut closes all connections and refuses new ones.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	for c := range p.conns {
		c.Close()
	}
}

// Mend undoes Cut.
func (p *Proxy) Mend() {
	p.tb.Helper()
	if err := whileInUse(p.listen); err != nil {
		p.tb.Error(err)
	}
}

// Freeze stops the passing on of data, in new connections too, until it is called with false.
func (p *Proxy) Freeze(frozen bool) { p.frozen.Store(frozen) }

// Delay delays each piece of data by d.
func (p *Proxy) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// add notes a connection, unless the proxy is cut.
func (p *Proxy) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		p.conns[c] = true
	}
	return p.listener != nil
}

func (p *Proxy) remove(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *Proxy) serve(c net.Conn) {
	defer c.Close()
	dial := new(net.Dialer).DialContext
	if p.network != nil {
		dial = p.network.DialContext
	}
	s, err := dial(context.Background(), "tcp", p.to)
	if err != nil {
		return
	}
	defer s.Close()
	if !p.add(c) || !p.add(s) {
		p.remove(c)
		return
	}
	defer p.remove(c)
	defer p.remove(s)
	var wg sync.WaitGroup
	wg.Go(func() { p.copy(s, c) })
	p.copy(c, s)
	wg.Wait()
}

// copy copies until an error, and then closes both.
func (p *Proxy) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		select {
		case <-p.closed:
			return
		case <-time.After(time.Duration(p.delay.Load())):
		}
		for p.frozen.Load() {
			select {
			case <-p.closed:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
		if n > 0 { // a pipe's reader would read nothing otherwise
			if _, werr := to.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
