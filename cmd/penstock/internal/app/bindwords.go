package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// bindError returns the error of a listener that cannot listen, with the name of the listener and what can be done.
func bindError(l *spec.Listener, err error) error {
	if hint := bindHint(l, err); hint != "" {
		return fmt.Errorf("listener %s: %w (%s)", l.Name, err, hint)
	}
	return fmt.Errorf("listener %s: %w", l.Name, err)
}

// bindHint returns what is behind an error of bind(2) and of the socket options before it, and what can be done; empty: the
// error says it.
func bindHint(l *spec.Listener, err error) string {
	at := l.Listen
	if at.Kind == spec.TCP || at.Kind == spec.UDP {
		switch {
		case errors.Is(err, syscall.EACCES) && at.Port < 1024:
			return "ports below net.ipv4.ip_unprivileged_port_start need CAP_NET_BIND_SERVICE: AmbientCapabilities= of a unit, or setcap; penstock doctor says more"
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			return "no interface of this host has " + at.Host + ": ip address"
		case errors.Is(err, syscall.ENOENT) && l.TCP.Congestion != "":
			return fmt.Sprintf("tcp.congestion: the kernel has no %s: sysctl net.ipv4.tcp_available_congestion_control", l.TCP.Congestion)
		case errors.Is(err, syscall.EADDRINUSE):
			return fmt.Sprintf("another process listens there: ss -lpn 'sport = %d'", at.Port)
		}
		return ""
	}
	there, failed := os.Lstat(at.Path)
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && failed == nil && there.Mode().Type() != os.ModeSocket:
		return at.Path + " exists and is not a socket; allowed: a new path"
	case errors.Is(err, syscall.EADDRINUSE):
		return "another process listens there; allowed: a separate path for each daemon"
	case errors.Is(err, syscall.ENOENT):
		return "the folder " + filepath.Dir(at.Path) + " does not exist: mkdir, or RuntimeDirectory= of a unit"
	}
	return ""
}
