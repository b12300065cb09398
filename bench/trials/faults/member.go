//go:build linux

package main

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/bench/internal/pattern"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/world"
)

// What clients want of a member besides answers. A health check says wantCheck with the number 0.
var (
	wantDrip  = [8]byte{'f', 'a', 'u', 'l', 't', 's', 0, 'd'} // it reads and writes one byte a second
	wantDeaf  = [8]byte{'f', 'a', 'u', 'l', 't', 's', 0, 's'} // it never reads
	wantCheck = [8]byte{'f', 'a', 'u', 'l', 't', 's', 0, 'c'} // it says "well"
)

// A member is one upstream, of streams and datagrams, that can be made to fail.
type member struct {
	index int
	w     *testbed

	mu    sync.Mutex
	ln    net.Listener
	udp   *net.UDPConn
	conns map[net.Conn]bool
	stop  chan struct{} // closed while the member runs; nil while it is stopped and before it has run

	connects atomic.Int64 // connections that it accepted
	pace     atomic.Int64 // least time between two accepts, in ns
}

// A datagram of a flow with this number or a higher one is answered by so many large ones.
const (
	amplified = pattern.MaxFlow / 2
	replies   = 20
)

var running = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (m *member) addr() string { return fmt.Sprintf("%s:%d", memberIP(m.index), memberPort) }

// start listens; after down or kill, again.
func (m *member) start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stop == nil {
		m.stop = running
		m.conns = make(map[net.Conn]bool)
	}
	if m.ln != nil {
		return nil
	}
	var err error
	addr := m.addr()
	if m.w.k.needs.Wild {
		addr = fmt.Sprintf("0.0.0.0:%d", memberPort)
	}
	if m.ln, err = net.Listen("tcp", addr); err != nil {
		return err
	}
	go m.accept(m.ln)
	if m.udp == nil && !m.w.k.needs.Wild {
		c, err := net.ListenPacket("udp", m.addr())
		if err != nil {
			return err
		}
		m.udp = c.(*net.UDPConn)
		m.udp.SetReadBuffer(8 << 20)
		go m.datagrams(m.udp)
	}
	return nil
}

// closeListener closes the listener: connects are refused, and connections go on.
func (m *member) closeListener() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ln != nil {
		m.ln.Close()
		m.ln = nil
	}
}

// kill does what happens to the sockets of a process that was killed.
func (m *member) kill() {
	m.closeListener()
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.conns {
		if t, ok := c.(*net.TCPConn); ok {
			t.SetLinger(0)
		}
		c.Close()
	}
	if m.udp != nil {
		m.udp.Close()
		m.udp = nil
	}
}

// pause makes the member neither accept nor read, as SIGSTOP does; the kernel still accepts for it.
func (m *member) pause() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stop = make(chan struct{})
}

// resume undoes pause.
func (m *member) resume() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stop != running {
		close(m.stop)
		m.stop = running
	}
}

// wait returns while the member is not paused.
func (m *member) wait() {
	m.mu.Lock()
	c := m.stop
	m.mu.Unlock()
	<-c
}

// vanish takes the address away, so that packets to the member get no answer at all.
func (m *member) vanish() error { return proc.IP("addr del " + memberIP(m.index) + "/32 dev lo") }

// appear undoes vanish.
func (m *member) appear() error { return proc.IP("addr add " + memberIP(m.index) + "/32 dev lo") }

func (m *member) accept(ln net.Listener) {
	for {
		m.wait()
		c, err := ln.Accept()
		if err != nil {
			return
		}
		m.wait()
		m.connects.Add(1)
		m.mu.Lock()
		m.conns[c] = true
		m.mu.Unlock()
		go func() {
			m.serve(c)
			c.Close()
			m.mu.Lock()
			delete(m.conns, c)
			m.mu.Unlock()
		}()
		if d := m.pace.Load(); d > 0 {
			time.Sleep(time.Duration(d))
		}
	}
}

func (m *member) serve(c net.Conn) {
	m.wait()
	want, id, err := world.ReadPreface(c)
	if err != nil {
		return
	}
	m.wait()
	switch want {
	case world.WantAnswer:
		m.w.old.tell(id, m.index)
		m.w.old.fault(world.Answer(c, id, m.wait))
	case wantCheck:
		c.Write([]byte("well"))
	case wantDeaf:
		if t, ok := c.(*net.TCPConn); ok {
			t.SetReadBuffer(4096)
		}
		<-m.w.over
	case wantDrip:
		b := make([]byte, 1)
		for {
			if _, err := c.Read(b); err != nil {
				return
			}
			if _, err := c.Write(b); err != nil {
				return
			}
			m.w.sleep(time.Second)
		}
	default:
		m.w.note("garbage at members", 1)
	}
}

// datagrams answers each datagram by one of the same length, or by several large ones.
func (m *member) datagrams(c *net.UDPConn) {
	b := make([]byte, 65536)
	for {
		n, from, err := c.ReadFromUDPAddrPort(b)
		if err != nil {
			if m.gone(c) {
				return
			}
			continue // an ICMP error
		}
		m.wait()
		id, number, d, err := pattern.ReadDatagram(b[:n])
		if err != nil || d != pattern.Up {
			m.w.note("garbage datagrams at members", 1)
			continue
		}
		m.w.old.arrive(id, from, m.index)
		if id >= amplified {
			for range replies {
				c.WriteToUDPAddrPort(pattern.MakeDatagram(b[:1200], id, number, pattern.Down), from)
			}
			continue
		}
		c.WriteToUDPAddrPort(pattern.MakeDatagram(b[:n], id, number, pattern.Down), from)
	}
}

func (m *member) gone(c *net.UDPConn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.udp != c
}
