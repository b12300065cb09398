package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
)

// What a listener cannot have says what can be done, and nothing else does.
func TestBindError(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		listener string
		err      error
		want     string
	}{
		{"listen: 'tcp://:443'", syscall.EACCES, " (ports below net.ipv4.ip_unprivileged_port_start need CAP_NET_BIND_SERVICE: AmbientCapabilities= of a unit, or setcap; penstock doctor says more)"},
		{"listen: 'tcp://:8443'", syscall.EACCES, ""},
		{"listen: 'tcp://:8443', tcp: {congestion: nope}", syscall.ENOENT, " (tcp.congestion: the kernel has no nope: sysctl net.ipv4.tcp_available_congestion_control)"},
		{"listen: 'tcp://192.0.2.1:8443'", syscall.EADDRNOTAVAIL, " (no interface of this host has 192.0.2.1: ip address)"},
		{"listen: 'udp://:53'", syscall.EADDRINUSE, " (another process listens there: ss -lpn 'sport = 53')"},
		{"listen: 'udp://:53'", errors.New("other"), ""},
		{"listen: 'unix://" + file + "'", syscall.EADDRINUSE, " (" + file + " exists and is not a socket; allowed: a new path)"},
		{"listen: 'unix://" + dir + "/s'", syscall.EADDRINUSE, " (another process listens there; allowed: a separate path for each daemon)"},
		{"listen: 'unix://" + dir + "/no/s'", syscall.ENOENT, " (the folder " + dir + "/no does not exist: mkdir, or RuntimeDirectory= of a unit)"},
	} {
		cfg, err := config.Parse("x", []byte("listeners: {a: {"+c.listener+", to: 'echo:'}}"))
		if err != nil {
			t.Fatal(err)
		}
		if got := bindError(cfg.Listeners[0], fmt.Errorf("listen: %w", c.err)).Error(); got != "listener a: listen: "+c.err.Error()+c.want {
			t.Errorf("%s: %s, want %s", c.listener, got, c.want)
		}
	}
}
