package relay

import (
	"fmt"
	"net"
	"net/netip"
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
		c.SetDeadline(time.Now().Add(patience))
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

// Ports that have had replies do not keep memory for replies: those of a loop share it. All replies
// of a burst on many ports arrive at their own clients.
func TestBusyPortsShareMemory(t *testing.T) {
	e, err := New(Config{Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	up, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	go func() {
		b := make([]byte, 2000)
		for {
			n, from, err := up.ReadFrom(b)
			if err != nil {
				return
			}
			up.WriteTo(b[:n], from)
		}
	}()
	to := Addr{Network: UDP, AddrPort: up.LocalAddr().(*net.UDPAddr).AddrPort()}
	cfg := ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return &to }, Done: func(*Record) {}}}
	const ports, replies, piece = 64, 20, 4500 << 10
	var clients []net.Conn
	for range ports {
		l, err := e.Listen(Addr{Network: UDP, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")}, cfg)
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("udp", l.Addr().AddrPort.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		clients = append(clients, c)
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	b := make([]byte, 2000)
	for round := range replies {
		for i, c := range clients { // all at once
			fmt.Fprintf(c, "client %d, datagram %d", i, round)
		}
		for i, c := range clients {
			want := fmt.Sprintf("client %d, datagram %d", i, round)
			if n, err := c.Read(b); err != nil || string(b[:n]) != want {
				t.Fatalf("%q, %v, want %q", b[:n], err, want)
			}
		}
	}
	if more := heap() - before; more > (2*maxReplyMemory+2)*piece {
		t.Errorf("%d ports with replies take %d bytes, want at most %d", ports, more, (2*maxReplyMemory+2)*piece)
	}
}
