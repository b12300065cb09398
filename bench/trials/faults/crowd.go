//go:build linux

package main

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/bench/internal/pattern"
	"github.com/penstock/penstock/bench/internal/world"
)

// A crowd is clients of one kind that hold their connections.
type crowd struct {
	w  *testbed
	mu sync.Mutex
	// conns are closed when the crowd ends.
	conns []net.Conn
}

// join connects n clients, 32 at a time, and lets each act in a goroutine of its own. It returns when all
// have tried to connect.
func join(w *testbed, n, port int, from string, act func(c net.Conn)) *crowd {
	c := &crowd{w: w}
	var local net.Addr
	if from != "" {
		local = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	todo := make(chan struct{})
	var dialers sync.WaitGroup
	for range 32 {
		dialers.Go(func() {
			for range todo {
				conn, err := (&net.Dialer{Timeout: time.Second, LocalAddr: local}).Dial("tcp", relayAddr(port))
				if err != nil {
					w.note("of a crowd, not connected", 1)
					continue
				}
				w.note("of a crowd, connected", 1)
				c.mu.Lock()
				c.conns = append(c.conns, conn)
				c.mu.Unlock()
				go act(conn)
			}
		})
	}
	for range n {
		todo <- struct{}{}
	}
	close(todo)
	dialers.Wait()
	return c
}

// leave ends the crowd.
func (c *crowd) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.Close()
	}
	c.conns = nil
}

// holder sends a message, waits for its answer, and then holds the connection. One that is accepted must
// not be cut off.
func (w *testbed) holder(conn net.Conn) {
	if world.Ask(conn, world.NextNumber(), 100) == nil {
		w.note("holders served", 1)
		var b [1]byte
		conn.Read(b[:])
	}
	if w.phase() == during {
		w.note("holders cut off", 1)
	}
}

// one message, and then nothing is left of the client.
func (w *testbed) single(patience time.Duration) func(net.Conn) {
	return func(conn net.Conn) {
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(patience))
		err := world.Ask(conn, world.NextNumber(), 100)
		ne, ok := err.(net.Error)
		switch {
		case err == nil:
			w.note("singles served", 1)
		case ok && ne.Timeout():
			w.note("singles late", 1)
		default:
			w.note("singles cut off", 1)
		}
	}
}

// pusher asks for an upstream of some kind and sends as much as it can, up to a number of bytes. It counts in
// taken what the relay takes.
func pusher(want [8]byte, most int, taken *atomic.Int64) func(net.Conn) {
	return func(conn net.Conn) {
		conn.(*net.TCPConn).SetWriteBuffer(8192)
		conn.Write(world.Preface(want, 0))
		b := make([]byte, 16<<10)
		for sent := 0; sent < most; sent += len(b) {
			n, err := conn.Write(b)
			taken.Add(int64(n))
			if err != nil {
				return
			}
		}
	}
}

// trickler sends bytes one by one, with pauses.
func trickler(text []byte, pause time.Duration) func(net.Conn) {
	return func(conn net.Conn) {
		for i := range text {
			if _, err := conn.Write(text[i : i+1]); err != nil {
				return
			}
			time.Sleep(pause)
		}
	}
}

// strangers are datagram clients, so many per second, that send once and are gone.
func strangers(w *testbed, rate int) {
	b := make([]byte, 200)
	for w.phase() == during {
		c, err := net.Dial("udp", relayAddr(streamPort))
		if err != nil {
			return
		}
		c.Write(pattern.MakeDatagram(b, world.NextNumber(), 1, pattern.Up))
		c.Close()
		w.note("datagram clients", 1)
		time.Sleep(time.Second / time.Duration(rate))
	}
}
