package main

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

// freshListener returns a LISTEN argument for a kind of socket.
func freshListener(t *testing.T, network string) string {
	switch network {
	case "tcp4":
		return "tcp://127.0.0.1:0"
	case "tcp6":
		testnet.Listen(t, "tcp6") // or skip
		return "tcp://[::1]:0"
	case "unix":
		return "unix://" + filepath.Join(t.TempDir(), "s")
	default:
		l := testnet.Listen(t, "abstract")
		defer l.Close()
		return "unix:" + l.Addr().String()
	}
}

// Every kind of socket in and out; each flow's record has the bytes that its ends have seen.
func TestEveryPair(t *testing.T) {
	for _, in := range testnet.Networks {
		for _, out := range testnet.Networks {
			t.Run(in+"-"+out, func(t *testing.T) {
				addr, _ := testnet.StartServer(t, out, testnet.Script{Echo: true})
				d := relay(t, "--log-flows=all", freshListener(t, in), url(addr))
				sizes := []struct {
					size  int64
					chunk int
				}{{0, 1}, {1, 1}, {5 << 20, 64 << 10}, {100_000, 777}}
				for i, s := range sizes {
					mustEcho(t, d.dial(), s.size, s.chunk)
					flow := d.wait("flow", i+1)[i]
					if flow["cause"] != "end" || flow["bytes_up"] != float64(s.size) || flow["bytes_down"] != float64(s.size) {
						t.Errorf("%d bytes: %v", s.size, flow)
					}
					if flow["upstream"] != url(addr) {
						t.Errorf("upstream is %v, want %v", flow["upstream"], url(addr))
					}
				}
			})
		}
	}
}

func TestBuiltinUpstreams(t *testing.T) {
	t.Run("echo", func(t *testing.T) {
		d := relay(t, "--log-flows=all", "tcp://127.0.0.1:0", "echo:")
		mustEcho(t, d.dial(), 1<<20, 1000)
		mustBe(t, d.line("flow"), "cause", "end", "bytes_up", float64(1<<20), "bytes_down", float64(1<<20))
	})
	t.Run("discard", func(t *testing.T) {
		d := relay(t, "--log-flows=all", "tcp://127.0.0.1:0", "discard:")
		c := d.dial()
		r := testnet.Play(c, testnet.Script{Send: 1 << 20})
		if r.Err != "" || r.Received != 0 {
			t.Errorf("%+v", r)
		}
		if flow := d.line("flow"); flow["cause"] != "end" || flow["bytes_up"] != float64(1<<20) || flow["bytes_down"] != 0.0 {
			t.Errorf("%v", flow)
		}
	})
}

// Each upstream sends its name; the clients must reach them in turn.
func TestUpstreamsInTurn(t *testing.T) {
	args := []string{"tcp://127.0.0.1:0"}
	for i := range 3 {
		l := testnet.Listen(t, "tcp4")
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				fmt.Fprint(c, i)
				c.Close()
			}
		}()
		args = append(args, url(l.Addr()))
	}
	d := relay(t, args...)
	var got string
	for range 7 {
		name, err := io.ReadAll(d.dial())
		if err != nil {
			t.Fatal(err)
		}
		got += string(name)
	}
	if got != "0120120" {
		t.Errorf("clients met %s", got)
	}
}

// refusing returns an address that refuses connections.
func refusing(t *testing.T, network string) string {
	t.Helper()
	l := testnet.Listen(t, network)
	defer l.Close()
	return url(l.Addr())
}

func TestRefusedUpstreamIsPassedOver(t *testing.T) {
	for _, network := range []string{"tcp4", "unix", "abstract"} {
		t.Run(network, func(t *testing.T) {
			d := relay(t, "--log-flows=all", "tcp://127.0.0.1:0", refusing(t, network), refusing(t, "tcp4"), "echo:")
			for i := range 3 {
				mustEcho(t, d.dial(), 1000, 100)
				flow := d.wait("flow", i+1)[i]
				attempts, _ := flow["attempts"].(float64)
				if want := []float64{3, 2, 0}[i]; flow["cause"] != "end" || attempts != want {
					t.Errorf("flow %d: %v, want %v attempts", i, flow, want)
				}
			}
		})
	}
}

func TestNoUpstreamLeft(t *testing.T) {
	d := relay(t, "tcp://127.0.0.1:0", refusing(t, "tcp4"), refusing(t, "unix"))
	// The reset may come before the client's connect has returned.
	if c, err := net.Dial("tcp", d.addr().String()); err == nil {
		defer c.Close()
		if _, err := io.ReadAll(c); err == nil {
			t.Error("the client's stream ended as if all were well")
		}
	}
	flow := d.line("flow") // a failed flow has a line by default
	if flow["cause"] != "no-upstream" || flow["level"] != "WARN" || flow["attempts"] != 2.0 || flow["error"] == nil {
		t.Errorf("%v", flow)
	}
}

// An upstream whose accept queue is full does not answer at all.
func TestSilentUpstreamIsPassedOver(t *testing.T) {
	// 192.0.2.0/24 is reserved for documentation and not routed. Without a default route the error
	// comes at once, which is just as good.
	d := relay(t, "--connect-timeout=200ms", "--log-flows=all", "tcp://127.0.0.1:0", "tcp://192.0.2.1:9", "echo:")
	mustEcho(t, d.dial(), 1000, 100)
	if flow := d.line("flow"); flow["attempts"] != 2.0 {
		t.Errorf("%v", flow)
	}
}

func TestIdleTimeout(t *testing.T) {
	d := relay(t, "--idle-timeout=200ms", "--log-flows=all", "tcp://127.0.0.1:0", "echo:")
	mustEnd(t, d.dial())
	if flow := d.line("flow"); flow["cause"] != "idle" {
		t.Errorf("%v", flow)
	}
}

func TestReset(t *testing.T) {
	l := testnet.Listen(t, "tcp4")
	d := relay(t, "--log-flows=all", "tcp://127.0.0.1:0", url(l.Addr()))
	c := d.dial()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	u, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	// The byte has arrived, so the relay knows that it is connected.
	if _, err := io.ReadFull(u, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	u.(*net.TCPConn).SetLinger(0)
	u.Close()
	if _, err := io.ReadAll(c); err == nil {
		t.Error("the upstream's reset reached the client as an end")
	}
	if flow := d.line("flow"); flow["cause"] != "upstream-reset" {
		t.Errorf("%v", flow)
	}
}
