//go:build linux

package main

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/trial"
	"github.com/penstock/penstock/quichello"
)

// nat stands for a router between a client and the relay: each socket of the client has one of its own on the other side, which rebind
// replaces. It counts what it delivers, and tells once when that is so many bytes; from then on it delivers slowly, until told otherwise, so
// that what happens to the relay happens in the middle of a download.
type nat struct {
	inside *net.UDPConn
	relay  *net.UDPAddr
	roams  bool // each further socket of the client has another address, as on another network
	all    sync.WaitGroup

	mu      sync.Mutex
	outside map[netip.AddrPort]*net.UDPConn
	moving  map[netip.AddrPort]bool // gets another one with the next datagram
	moved   map[*net.UDPConn]bool   // came in place of another one, and whether the relay has answered there
	old     []*net.UDPConn
	hello   quichello.Assembler
	helloIn int // datagrams that the ClientHello of the first connection took; 0: it is not complete

	delivered int
	middle    int           // bytes
	reached   chan struct{} // closed when as many are delivered
	slow      bool
}

// slowly is the pause behind a datagram for the client.
const slowly = 2 * time.Millisecond

func newNAT(relay string, middle int, roams bool) (*nat, error) {
	to, err := net.ResolveUDPAddr("udp4", relay)
	if err != nil {
		return nil, err
	}
	inside, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	n := &nat{inside: inside, relay: to, roams: roams, outside: map[netip.AddrPort]*net.UDPConn{}, moving: map[netip.AddrPort]bool{}, moved: map[*net.UDPConn]bool{}, middle: middle, reached: make(chan struct{})}
	n.all.Go(n.send)
	return n, nil
}

func (n *nat) address() string { return n.inside.LocalAddr().String() }

// send passes on what clients send.
func (n *nat) send() {
	b := make([]byte, 64<<10)
	for {
		size, from, err := n.inside.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		n.mu.Lock()
		if n.helloIn == 0 {
			if _, err := n.hello.Add(b[:size]); err == nil {
				n.helloIn = n.hello.Datagrams()
			}
		}
		c := n.outside[from]
		if c == nil || n.moving[from] {
			before := c
			if c, err = n.open(from); err != nil {
				n.mu.Unlock()
				continue // the datagram is lost
			}
			if before != nil {
				n.old = append(n.old, before)
				delete(n.moving, from)
				n.moved[c] = false
			}
		}
		c.Write(b[:size])
		n.mu.Unlock()
	}
}

// open makes a socket to the relay for one of a client's.
func (n *nat) open(client netip.AddrPort) (*net.UDPConn, error) {
	at := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}
	if n.roams {
		at.IP[len(at.IP)-1] += byte(len(n.outside))
	}
	c, err := net.DialUDP("udp4", at, n.relay)
	if err != nil {
		return nil, err
	}
	n.outside[client] = c
	n.all.Go(func() { n.receive(c, client) })
	return c, nil
}

// receive passes on what comes for a client's socket.
func (n *nat) receive(c *net.UDPConn, client netip.AddrPort) {
	b := make([]byte, 64<<10)
	for {
		size, err := c.Read(b)
		if err != nil {
			if errors.Is(err, syscall.ECONNREFUSED) { // nobody listens while a worker is replaced
				continue
			}
			return
		}
		n.mu.Lock()
		current := n.outside[client] == c
		if current {
			if _, is := n.moved[c]; is {
				n.moved[c] = true
			}
			n.delivered += size
			if n.delivered >= n.middle && n.delivered-size < n.middle {
				n.slow = true
				close(n.reached)
			}
		}
		slow := n.slow
		n.mu.Unlock()
		if current { // what comes to a port that the client has no more is lost
			n.inside.WriteToUDPAddrPort(b[:size], client)
		}
		if slow {
			time.Sleep(slowly)
		}
	}
}

// rebind gives each of the client's sockets another port when it sends something. Until then it gets what comes to the one before: a client that
// only receives would have nothing to send otherwise, and nobody could know that it has moved.
func (n *nat) rebind() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for client := range n.outside {
		n.moving[client] = true
	}
	clear(n.moved)
	return nil
}

// heard waits until the relay has answered at another port of the client's. A browser may have sockets, too, of which it sends nothing more.
func (n *nat) heard() error {
	return proc.Wait("an answer at another port", trial.Patience, func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return slices.Contains(slices.Collect(maps.Values(n.moved)), true)
	})
}

// hurry ends that it delivers slowly.
func (n *nat) hurry() {
	n.mu.Lock()
	n.slow = false
	n.mu.Unlock()
}

// ports returns how many ports the client has had, and how many datagrams its ClientHello took.
func (n *nat) ports() (ports, hello int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.outside) + len(n.old), n.helloIn
}

func (n *nat) close() {
	n.inside.Close()
	n.mu.Lock()
	for _, c := range n.outside {
		c.Close()
	}
	for _, c := range n.old {
		c.Close()
	}
	n.mu.Unlock()
	n.all.Wait()
}

// got returns how many bytes it has delivered.
func (n *nat) got() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.delivered
}
