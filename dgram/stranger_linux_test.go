package dgram

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

// TestListenReusePortIsNobodyElses: a free port is one that no socket has. With the
// option set first, the kernel takes any port whose sockets have it too.
func TestListenReusePortIsNobodyElses(t *testing.T) {
	if !testnet.Netns(t) {
		return
	}
	testnet.Sysctl(t, "net.ipv4.ip_local_port_range", "40000 40001")
	open := func(address string) (port uint16, err error) {
		all, err := ListenReusePort(context.Background(), "udp4", address, 2)
		if err != nil {
			return 0, err
		}
		for _, c := range all {
			t.Cleanup(func() { c.Close() })
		}
		return local(all[1]).Port(), nil
	}
	if _, err := open("127.0.0.1:40000"); err != nil {
		t.Fatal(err)
	}
	for try := range 2 {
		port, err := open("127.0.0.1:0")
		if try == 0 && port != 40001 {
			t.Errorf("port %d, %v; want 40001, which alone is free", port, err)
		}
		if try == 1 && !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("with no port free: %d, %v", port, err)
		}
	}
	// A given port is shared with other sockets that share it.
	if _, err := open("127.0.0.1:40000"); err != nil {
		t.Error(err)
	}
}
