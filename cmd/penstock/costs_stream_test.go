package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// streamCosts is costs with an upstream.
type streamCosts struct {
	*costs
	net.Listener
}

func newStreamCosts(t *testing.T, flags ...string) *streamCosts {
	t.Helper()
	l := testnet.Listen(t, "tcp4")
	return &streamCosts{traceRelay(t, "tcp", l.Addr(), flags...), l}
}

func (k *streamCosts) dial() net.Conn {
	k.t.Helper()
	c, err := net.DialTimeout("tcp", "127.0.0.1:"+k.port, patience)
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { c.Close() })
	return c
}

func (k *streamCosts) accept() net.Conn {
	k.t.Helper()
	testnet.Unwrap(k.Listener).(*net.TCPListener).SetDeadline(time.Now().Add(patience))
	c, err := k.Accept()
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { c.Close() })
	return c
}

// begin makes a flow whose client sends a message at once.
func (k *streamCosts) begin(msg []byte) (a, b net.Conn) {
	k.t.Helper()
	a = k.dial()
	k.arrive(a, k.port, msg)
	k.turn()
	b = k.accept()
	k.read(b, len(msg))
	return a, b
}

// end ends a flow from the client's side.
func (k *streamCosts) end(a, b net.Conn) {
	k.t.Helper()
	a.Close()
	testwait.Until(k.t, "the client's end has arrived", func() bool {
		s, ok := k.socket("tcp", k.port, portOf(a.LocalAddr()))
		return ok && s.state == tcpCloseWait
	})
	k.turn()
	if n, err := inTime(b).Read(make([]byte, 1)); err != io.EOF {
		k.t.Fatalf("%d bytes and %v behind the end", n, err)
	}
	b.Close()
	testwait.Until(k.t, "the upstream's end has arrived", func() bool {
		s, ok := k.socket("tcp", portOf(b.RemoteAddr()), portOf(b.LocalAddr()))
		return !ok || s.state == tcpTimeWait
	})
	k.turn()
}

// arrive sends a message to the relay's socket with a port, and waits until all of it is there.
func (k *streamCosts) arrive(from net.Conn, port string, msg []byte) {
	k.t.Helper()
	if _, err := inTime(from).Write(msg); err != nil {
		k.t.Fatal(err)
	}
	k.queued(port, portOf(from.LocalAddr()), len(msg))
}

func (k *streamCosts) read(c net.Conn, n int) {
	k.t.Helper()
	if _, err := io.ReadFull(inTime(c), make([]byte, n)); err != nil {
		k.t.Fatal(err)
	}
}

// pass sends a message through the relay.
func (k *streamCosts) pass(from, to net.Conn, port string, msg []byte) {
	k.t.Helper()
	k.arrive(from, port, msg)
	k.turn()
	k.read(to, len(msg))
}

func TestCostsOfStreams(t *testing.T) {
	testnet.OneGoroutine(t)
	for name, size := range map[string]int{
		"TCP round trip, 64 B": 64, "TCP round trip, 16 KiB": 16 << 10, "TCP round trip, 64 KiB": 64 << 10, "TCP round trip, 256 KiB": 256 << 10,
	} {
		t.Run(name, func(t *testing.T) {
			k := newStreamCosts(t, bigBuffers(t, size))
			msg := make([]byte, size)
			a, b := k.begin(msg)
			calls := k.count(4, func() {
				k.pass(b, a, portOf(b.RemoteAddr()), msg)
				k.pass(a, b, k.port, msg)
			})
			checkCosts(t, name, &calls)
		})
	}
	const bulk = "TCP bulk, 2 MiB that arrive 256 KiB at a time"
	t.Run(bulk, func(t *testing.T) {
		msg := make([]byte, 256<<10)
		k := newStreamCosts(t, bigBuffers(t, len(msg)))
		a, b := k.begin(msg)
		for range 4 {
			k.pass(a, b, k.port, msg)
		}
		// Less than 16 MiB in all samples: a longer stream may get a low-water mark, and with it turns by the clock.
		calls := k.count(0, func() {
			for range 8 {
				k.pass(a, b, k.port, msg)
			}
		})
		checkCosts(t, bulk, &calls)
	})
	const connection = "TCP connection: connect, 64 B and back, close"
	t.Run(connection, func(t *testing.T) {
		k := newStreamCosts(t)
		msg := make([]byte, 64)
		calls := k.count(2, func() {
			a, b := k.begin(msg)
			k.pass(b, a, portOf(b.RemoteAddr()), msg)
			k.end(a, b)
		})
		checkCosts(t, connection, &calls)
	})
}

// bigBuffers is a flag with which a message of a size fits into the relay's receive buffers as a whole.
func bigBuffers(t *testing.T, size int) string {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/net/core/rmem_max")
	if err != nil {
		t.Fatal(err)
	}
	most, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	if most < 2*size {
		t.Skipf("net.core.rmem_max is %d: a message of %d bytes does not fit into a buffer", most, size)
	}
	return fmt.Sprintf("--recv-buffer=%d", most)
}
