package testnet

import (
	"cmp"
	"context"
	"net"
	"sync"
)

// A Memory is a listener whose connections are those of net.Pipe, for a server in a bubble of testing/synctest. It must be made in that bubble.
type Memory struct {
	Network string // what its address says; "": memory

	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// NewMemory returns a listener that has no clients yet.
func NewMemory() *Memory { return &Memory{conns: make(chan net.Conn), closed: make(chan struct{})} }

// Dial returns a connection that was accepted, or net.ErrClosed.
func (m *Memory) Dial() (net.Conn, error) { return m.DialContext(context.Background()) }

// DialContext is Dial until ctx ends.
func (m *Memory) DialContext(ctx context.Context) (net.Conn, error) {
	c, accepted := net.Pipe()
	select {
	case m.conns <- accepted:
		return c, nil
	case <-m.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (m *Memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. Connections stay.
func (m *Memory) Close() error {
	m.once.Do(func() { close(m.closed) })
	return nil
}

// Addr implements net.Listener.
func (m *Memory) Addr() net.Addr { return memoryAddr(cmp.Or(m.Network, "memory")) }

type memoryAddr string

func (a memoryAddr) Network() string { return string(a) }
func (memoryAddr) String() string    { return "memory" }
