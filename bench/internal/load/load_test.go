//go:build linux

package load

import (
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		text string
		want Spec
	}{
		{"bulk1m", Spec{Kind: Bulk, Size: 1 << 20, Conns: 1}},
		{"bulk16kx4", Spec{Kind: Bulk, Size: 16 << 10, Conns: 4}},
		{"bulk100", Spec{Kind: Bulk, Size: 100, Conns: 1}},
		{"pingpong", Spec{Kind: PingPong, Size: 64, Conns: 64}},
		{"pingpong1", Spec{Kind: PingPong, Size: 64, Conns: 1}},
		{"pingpong16kx64", Spec{Kind: PingPong, Size: 16 << 10, Conns: 64}},
		{"pingpong256kx1", Spec{Kind: PingPong, Size: 256 << 10, Conns: 1}},
		{"pingpong100x2", Spec{Kind: PingPong, Size: 100, Conns: 2}},
		{"connect", Spec{Kind: Connect, Size: 64, Conns: 32}},
		{"connect8", Spec{Kind: Connect, Size: 64, Conns: 8}},
		{"udp1200", Spec{Kind: Flood, Size: 1200, Conns: 4}},
		{"udpquic1200x2", Spec{Kind: Flood, Size: 1200, Conns: 2, QUIC: true}},
		{"udpgso100x2", Spec{Kind: Flood, Size: 100, Conns: 2, Burst: 32}},
		{"udpping64", Spec{Kind: UDPPing, Size: 200, Conns: 64}},
		{"udpsession", Spec{Kind: UDPConnect, Size: 200, Conns: 32}},
		{"idle", Spec{Kind: Idle, Size: 64, Conns: 10000}},
		{"settle", Spec{Kind: Settle, Size: 64, Conns: 4500}},
	} {
		got, err := Parse(c.text)
		if err != nil || got != c.want {
			t.Errorf("Parse(%q) = %+v, %v; want %+v", c.text, got, err, c.want)
		}
		if again, err := Parse(got.String()); err != nil || again != got {
			t.Errorf("Parse(%q), the text of %q, is %+v, %v", got, c.text, again, err)
		}
	}
	for _, text := range []string{"", "bulk", "bulk0", "bulk1g", "bulk99m", "pingpong0", "pingpong0x1", "pingpong257kx1", "pingpong65kx2", "pingpong4kx", "idle100001", "udp", "udp1", "udpgso", "xbulk1m"} {
		if got, err := Parse(text); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", text, got)
		}
	}
}

// relayWith serves a simple relay in this process; alter sees each piece on its way to the sink and
// may change it.
func relayWith(t *testing.T, upstream string, alter func([]byte)) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			u, err := net.Dial("tcp", upstream)
			if err != nil {
				c.Close()
				return
			}
			go func() {
				io.Copy(c, u)
				c.(*net.TCPConn).CloseWrite()
			}()
			go func() {
				io.Copy(alterer{u, alter}, c)
				u.(*net.TCPConn).CloseWrite()
			}()
		}
	}()
	return ln.Addr().String()
}

type alterer struct {
	io.Writer
	alter func([]byte)
}

func (a alterer) Write(p []byte) (int, error) {
	a.alter(p)
	return a.Writer.Write(p)
}

// run drives a load through a relay in this process, with the sink also in this process.
func run(t *testing.T, text string, verify bool, alter func([]byte)) (Result, error) {
	spec, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	sink, err := NewSink(spec, "127.0.0.1", verify)
	if err != nil {
		t.Fatal(err)
	}
	go sink.Serve()
	return Run(spec, Config{
		Addr:   relayWith(t, sink.Addr, alter),
		Relay:  os.Getpid(),
		Warm:   20 * time.Millisecond,
		Window: 80 * time.Millisecond,
		Verify: verify,
	})
}

func TestEveryLoadMeasures(t *testing.T) {
	for _, text := range []string{"bulk16k", "bulk1mx3", "pingpong1", "pingpong256kx1", "pingpong16", "connect8", "idle50"} {
		t.Run(text, func(t *testing.T) {
			r, err := run(t, text, false, func([]byte) {})
			if err != nil {
				t.Fatal(err)
			}
			if r.Ops == 0 || r.Window < 80*time.Millisecond || r.RelayCPU <= 0 {
				t.Errorf("nothing measured: %+v", r)
			}
		})
	}
}

func TestVerifyPasses(t *testing.T) {
	r, err := run(t, "bulk16kx2", true, func([]byte) {})
	if err != nil {
		t.Fatal(err)
	}
	if r.Bytes != 64<<20 {
		t.Errorf("verified %d bytes, want 64 MiB", r.Bytes)
	}
}

// TestOneWrongBit runs every check against a relay that flips one bit.
func TestOneWrongBit(t *testing.T) {
	for _, c := range []struct {
		text   string
		verify bool
		want   string
	}{
		{"bulk16k", true, "CRC"},
		{"pingpong1", false, "differs from what was sent"},
		{"pingpong4", false, "differs from what was sent"},
		{"connect4", false, "differs from what was sent"},
		{"idle4", false, "differs from what was sent"},
	} {
		t.Run(c.text, func(t *testing.T) {
			var once atomic.Bool
			_, err := run(t, c.text, c.verify, func(p []byte) {
				if !once.Swap(true) {
					p[len(p)/2] ^= 1
				}
			})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("a flipped bit gave %v, want an error about %q", err, c.want)
			}
		})
	}
}
