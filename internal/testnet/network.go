package testnet

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
)

// A Network is a network in memory, for servers and clients in a bubble of testing/synctest. Its addresses are any text. It must be made in that
// bubble.
type Network struct {
	mu        sync.Mutex
	listeners map[string]*Memory
	addresses int // that Address has returned
}

// NewNetwork returns a network on which nobody listens.
func NewNetwork() *Network { return &Network{listeners: make(map[string]*Memory)} }

// Address returns an address of a host that it has not returned before.
func (n *Network) Address(host string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addresses++
	return fmt.Sprintf("%s:%d", host, n.addresses)
}

// Listen returns a listener at an address, which is free again when the listener is closed.
func (n *Network) Listen(address string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[address] != nil {
		return nil, &net.OpError{Op: "listen", Net: "memory", Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
	}
	m := NewMemory()
	n.listeners[address] = m
	return &networkListener{m, n, address}, nil
}

// DialContext connects to a listener, as net.Dialer does. Where nobody listens, the connection is refused.
func (n *Network) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	m := n.listeners[address]
	n.mu.Unlock()
	err := error(os.NewSyscallError("connect", syscall.ECONNREFUSED))
	if m != nil {
		var c net.Conn
		if c, err = m.DialContext(ctx); err == nil {
			return c, nil
		}
	}
	return nil, &net.OpError{Op: "dial", Net: "memory", Err: err}
}

type networkListener struct {
	*Memory
	network *Network
	address string
}

// Close implements net.Listener.
func (l *networkListener) Close() error {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	if l.network.listeners[l.address] == l.Memory {
		delete(l.network.listeners, l.address)
	}
	return l.Memory.Close()
}
