package relay

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/testnet"
)

// TestFreePort: a listener that leaves the port to the kernel gets one that
// nobody has, though its sockets share it among themselves.
func TestFreePort(t *testing.T) {
	if !testnet.Netns(t) {
		return
	}
	// The probes take a port for a moment, the loops' when they first need to know.
	feature.GRO.Err()
	feature.GSO.Err()
	testnet.Sysctl(t, "net.ipv4.ip_local_port_range", "40000 40001")
	e, err := New(Config{Loops: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, network := range []Network{UDP, TCP} { // TCP needs nothing for it: net/ipv4/inet_connection_sock.c, inet_csk_find_open_port
		freePort(t, e, network)
	}
}

func freePort(t *testing.T, e *Engine, network Network) {
	t.Helper()
	listen := func(port uint16) (uint16, error) {
		at := Addr{Network: network, AddrPort: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)}
		l, err := e.Listen(at, ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return &Addr{Network: Echo} }}})
		if err != nil {
			return 0, err
		}
		return l.Addr().AddrPort.Port(), nil
	}
	if _, err := listen(40000); err != nil {
		t.Fatal(err)
	}
	if port, err := listen(0); port != 40001 {
		t.Errorf("%v: port %d, %v; want 40001, which alone is free", network, port, err)
	}
	if port, err := listen(0); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%v: with no port free: %d, %v", network, port, err)
	}
}
