package relay

import (
	"net"
	"runtime"
	"testing"
	"time"
)

// A datagram port without flows has no buffers: a daemon may listen on thousands. The first reply
// makes them.
func TestIdlePortsHaveNoBuffers(t *testing.T) {
	e, err := New(Config{Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	cfg := ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return &Addr{Network: Echo} }, Done: func(*Record) {}}}
	listen := func() Addr {
		t.Helper()
		at, err := ParseAddr("udp://127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l, err := e.Listen(at, cfg)
		if err != nil {
			t.Fatal(err)
		}
		return l.Addr()
	}
	// echo shows that the loop has the port.
	echo := func(at Addr) {
		t.Helper()
		c, err := net.Dial("udp", at.AddrPort.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(20 * time.Second))
		b := make([]byte, 10)
		c.Write([]byte("ping"))
		if n, err := c.Read(b); err != nil || string(b[:n]) != "ping" {
			t.Fatalf("%q, %v", b[:n], err)
		}
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	echo(listen()) // what the loop has once
	const ports, most = 64, 24 << 10
	before := heap()
	var last Addr
	for range ports {
		last = listen()
	}
	echo(last)
	if each := (heap() - before) / ports; each > most {
		t.Errorf("an idle port takes %d bytes, want at most %d", each, most)
	}
}
