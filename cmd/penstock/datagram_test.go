package main

import (
	"bytes"
	"errors"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
)

// datagramEcho answers every datagram with its name and the datagram.
func datagramEcho(t *testing.T, network, address, name string) net.Addr {
	t.Helper()
	c, err := net.ListenPacket(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			c.WriteTo(append([]byte(name), buf[:n]...), from)
		}
	}()
	return c.LocalAddr()
}

// datagramClient is a UDP socket connected to the daemon.
func datagramClient(t *testing.T, d *daemon) net.Conn {
	t.Helper()
	c, err := net.Dial("udp", d.listener[len("udp://"):])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

// ask sends one datagram and returns the answer.
func ask(t *testing.T, c net.Conn, question []byte) []byte {
	t.Helper()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write(question); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1<<16)
	n, err := c.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return buf[:n]
}

// Datagrams of every length arrive whole, with one answer each, and the flow's line counts their
// bytes.
func TestDatagrams(t *testing.T) {
	udp := datagramEcho(t, "udp4", "127.0.0.1:0", "a")
	unix := datagramEcho(t, "unixgram", filepath.Join(t.TempDir(), "s"), "a")
	for name, upstream := range map[string]string{"udp": "udp://" + udp.String(), "unixgram": "unixgram://" + unix.String()} {
		t.Run(name, func(t *testing.T) {
			d := relay(t, "--drain-timeout=0", "--log-flows=all", "udp://127.0.0.1:0", upstream)
			c := datagramClient(t, d)
			sent, received := 0, 0
			for _, size := range []int{0, 1, 100, 1200, 1472, 9000, 60000} {
				question := bytes.Repeat([]byte{byte(size)}, size)
				answer := ask(t, c, question)
				if !bytes.Equal(answer, append([]byte("a"), question...)) {
					t.Errorf("%d bytes: an answer of %d", size, len(answer))
				}
				sent += size
				received += len(answer)
			}
			d.signal(syscall.SIGTERM) // which ends the flow
			f := d.line("flow")
			if f["cause"] != "drained" || f["bytes_up"] != float64(sent) || f["bytes_down"] != float64(received) || f["datagrams_dropped"] != nil {
				t.Errorf("%d sent, %d received: %v", sent, received, f)
			}
		})
	}
}

// A flow that moves nothing ends.
func TestDatagramIdleTimeout(t *testing.T) {
	d := relay(t, "--idle-timeout=200ms", "--log-flows=all", "udp://127.0.0.1:0", "discard:")
	if _, err := datagramClient(t, d).Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	mustBe(t, d.line("flow"), "cause", "idle", "bytes_up", 1.0)
}

// Each client has its own flow, and they go to the upstreams in turn.
func TestDatagramUpstreamsInTurn(t *testing.T) {
	args := []string{"--replies=1", "--log-flows=all", "udp://127.0.0.1:0"}
	for _, name := range []string{"0", "1", "2"} {
		args = append(args, "udp://"+datagramEcho(t, "udp4", "127.0.0.1:0", name).String())
	}
	d := relay(t, append(args, "--loops=1")...)
	var got string
	for range 7 {
		got += string(ask(t, datagramClient(t, d), nil))
	}
	if got != "0120120" {
		t.Errorf("clients met %s", got)
	}
	for _, f := range d.wait("flow", 7) {
		if f["cause"] != "answered" {
			t.Errorf("%v", f)
		}
	}
}

// If nothing listens at an upstream, the flow goes on to the next one once the ICMP error has come.
func TestDatagramUpstreamUnreachable(t *testing.T) {
	d := relay(t, "udp://127.0.0.1:0", "udp://127.0.0.1:"+testnet.Port(t), "echo:")
	c := datagramClient(t, d)
	buf := make([]byte, 10)
	for deadline := time.Now().Add(patience); ; {
		if _, err := c.Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if n, err := c.Read(buf); err == nil && string(buf[:n]) == "ping" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the next upstream is never asked")
		}
	}
}

// While a daemon drains and another one has its port, each new client is answered by one of the two, and the old
// daemon keeps its clients. Without another one they are told at once that nobody is there.
func TestDatagramRestart(t *testing.T) {
	one, two := datagramEcho(t, "udp4", "127.0.0.1:0", "1"), datagramEcho(t, "udp4", "127.0.0.1:0", "2")
	old := relay(t, "--loops=4", "--drain-timeout=1h", "--idle-timeout=1h", "udp://127.0.0.1:0", "udp://"+one.String())
	var clients []net.Conn
	for range 20 {
		c := datagramClient(t, old)
		ask(t, c, nil)
		clients = append(clients, c)
	}
	next := relay(t, "--loops=4", "--drain-timeout=1h", old.listener, "udp://"+two.String())
	next.wait("another process has the port, too: the kernel spreads clients anew over both, so that sessions of the other one move here. Drain that one, or stop this one", 1)
	old.signal(syscall.SIGTERM)
	served := map[string]int{}
	for served["2"] < 40 {
		answer := string(ask(t, datagramClient(t, old), nil))
		served[answer]++
	}
	for _, c := range clients {
		if answer := ask(t, c, nil); string(answer) != "1" {
			t.Errorf("a client of the old daemon is answered by %s", answer)
		}
	}
	next.signal(syscall.SIGTERM)
	next.wait("draining", 1)
	next.signal(syscall.SIGINT)
	next.mustExit(4)
	for deadline := time.Now().Add(patience); ; {
		c := datagramClient(t, old)
		c.Write(nil)
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, syscall.ECONNREFUSED) {
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	old.signal(syscall.SIGINT) // the second one
	old.mustExit(4)
}
