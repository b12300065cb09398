//go:build linux

package peer

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/certs"
	"github.com/penstock/penstock/relay"
)

// Engine is package relay by itself, without the daemon around it. Its setup comes as JSON.
func Engine(text string) error {
	var s Setup
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	listen, err := netip.ParseAddrPort(s.Listen)
	if err != nil {
		return err
	}
	upstream, err := netip.ParseAddrPort(s.Upstream)
	if err != nil {
		return err
	}
	to := &relay.Addr{Network: relay.TCP, AddrPort: upstream}
	cfg := relay.ListenConfig{Timeouts: relay.Timeouts{Connect: 5 * time.Second, Idle: 2 * time.Minute, Handshake: 30 * time.Second}}
	cfg.Hooks.Upstream = func(_ *relay.Flow, attempt int) *relay.Addr {
		if attempt > 0 {
			return nil
		}
		return to
	}
	if err := engineTLS(&cfg.Hooks, s.TLS); err != nil {
		return err
	}
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), s.Loops))
	e, err := relay.New(relay.Config{Loops: s.Loops})
	if err != nil {
		return err
	}
	if _, err := e.Listen(relay.Addr{Network: relay.TCP, AddrPort: listen}, cfg); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	<-term
	return e.Close()
}

// engineTLS sets the hooks that end and begin TLS.
func engineTLS(h *relay.Hooks, t TLS) error {
	if t.Terminate {
		server, err := goServer(t)
		if err != nil {
			return err
		}
		h.Admit = func(f *relay.Flow) relay.Cause {
			f.StartSniff(64<<10, 30*time.Second)
			return relay.CauseNone
		}
		h.Sniff = func(f *relay.Flow, _ []byte, _ bool) (int, relay.SniffNext) {
			if f.Terminate(server) != nil {
				return 0, relay.SniffRefuse
			}
			return 0, relay.SniffDone
		}
	}
	if t.Originate {
		roots, err := certs.Roots(t.CA)
		if err != nil {
			return err
		}
		client := &tls.Config{ServerName: t.Name, RootCAs: roots, ClientSessionCache: tls.NewLRUClientSessionCache(0)}
		h.Connected = func(f *relay.Flow, _ *relay.Addr, _ time.Duration, err error) {
			if err == nil {
				f.Originate(client)
			}
		}
	}
	return nil
}
