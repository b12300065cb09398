package host

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/penstock/penstock/relay"
)

// Sockets that are connected are nobody else's to have.
func TestReadBound(t *testing.T) {
	word := func(b ...byte) string { return fmt.Sprintf("%08X", binary.NativeEndian.Uint32(b)) }
	local4, zero := word(127, 0, 0, 1), word(0, 0, 0, 0)
	local6 := strings.Repeat(zero, 3) + word(0, 0, 0, 1)
	text := "  sl  local_address rem_address   st tx_queue\n" +
		"  1: " + local4 + ":1F90 " + zero + ":0000 07 0\n" +
		"  2: " + local4 + ":1F91 " + local4 + ":0035 01 0\n" +
		"  3: " + local6 + ":1F92 " + strings.Repeat(zero, 4) + ":0000 07 0\n" +
		"  4: 7F0000:1F93 " + zero + ":0000\n  5: " + local4 + ":1FFFF " + zero + ":0000\n  6: " + local4 + " x\n7\n\n"
	got := map[netip.AddrPort]bool{}
	readBound(strings.NewReader(text), got)
	want := map[netip.AddrPort]bool{netip.MustParseAddrPort("127.0.0.1:8080"): true, netip.MustParseAddrPort("[::1]:8082"): true}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Sockets that are not this daemon's cost its start no memory.
func TestReadBoundAllocates(t *testing.T) {
	text := strings.Repeat("  1: 0100007F:1F91 0100007F:0035 01 00000000:00000000 00:00000000 00000000     0        0 1\n", 1000)
	bound := map[netip.AddrPort]bool{}
	if n := testing.AllocsPerRun(10, func() { readBound(strings.NewReader(text), bound) }); n > 10 {
		t.Errorf("%v allocations for 1000 lines", n)
	}
}

// The kernel's own text and messages are understood, and say the same.
func TestPortsInUse(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		c, err := net.ListenPacket("udp", net.JoinHostPort(host, "0"))
		if err != nil && host == "::1" {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		in := PortsInUse()
		if own := c.LocalAddr().(*net.UDPAddr).AddrPort(); !in[relay.UDP][own] {
			t.Errorf("%v is not among %v", own, in)
		}
		own := l.Addr().(*net.TCPAddr).AddrPort()
		if !in[relay.TCP][own] {
			t.Errorf("%v is not among %v", own, in)
		}
		told := map[netip.AddrPort]bool{}
		for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			if f, err := os.Open(path); err == nil {
				readBound(f, told)
				f.Close()
			}
		}
		if !told[own] {
			t.Errorf("%v is not among %v", own, told)
		}
		client, err := net.Dial("tcp", own.String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if to := client.LocalAddr().(*net.TCPAddr).AddrPort(); PortsInUse()[relay.TCP][to] {
			t.Errorf("%v is among those that listen, and is connected", to)
		}
	}
}
