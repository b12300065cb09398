//go:build linux

package main

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/world"
)

// options are those of the daemon's configuration.
type options struct {
	dir    string
	host   string // a loopback address that only this run uses
	keeper string // the value of the key keeper; "": none
	loops  int
	copy   bool          // never splice
	idle   time.Duration // after which a datagram flow ends that carries nothing
}

// places returns the listeners of the configuration, and its text.
func (o options) places() (all []*world.Place, config string) {
	unixPath := func(name string) string { return filepath.Join(o.dir, name) }
	port := 20000
	next := func() string { port++; return fmt.Sprintf("%s:%d", o.host, port) }
	tcp := func(p world.Place) *world.Place { p.Network, p.Addr = "tcp", next(); return &p }
	unix := func(p world.Place) *world.Place { p.Network, p.Addr = "unix", unixPath(p.Name); return &p }
	all = []*world.Place{
		tcp(world.Place{Name: "tcp-tcp", Upstream: "tcp"}),
		tcp(world.Place{Name: "tcp-unix", Upstream: "unix"}),
		unix(world.Place{Name: "unix-tcp", Upstream: "tcp"}),
		unix(world.Place{Name: "unix-unix", Upstream: "unix"}),
		tcp(world.Place{Name: "tcp-echo", Upstream: "tcp", Echo: true}),
		tcp(world.Place{Name: "header-v1", Upstream: "tcp", Gets: 1}),
		tcp(world.Place{Name: "header-v2", Upstream: "tcp", Sends: 1, Gets: 2}),
		tcp(world.Place{Name: "header-in", Upstream: "tcp", Sends: 2}),
		tcp(world.Place{Name: "limited", Upstream: "tcp", Slow: true}),
		{Name: "udp", Network: "udp", Addr: next(), Upstream: "udp"},
		{Name: "udp-echo", Network: "udp", Addr: next(), Upstream: "udp", Echo: true},
		{Name: "unixgram", Network: "unixgram", Addr: unixPath("unixgram"), Upstream: "unixgram"},
	}
	var b strings.Builder
	pipes := 0 // the engine's default
	if o.copy {
		pipes = -1
	}
	fmt.Fprintf(&b, "engine: {loops: %d, pipes: %d}\n", o.loops, pipes)
	if o.keeper != "" {
		fmt.Fprintf(&b, "keeper: %s\n", o.keeper)
	}
	fmt.Fprintf(&b, "admin: {listen: \"unix://%s\"}\naccess-log: {to: %q}\ndrain: 5s\nlog: {format: json, flows: none}\n", unixPath("admin"), unixPath("access.log"))
	fmt.Fprintf(&b, "groups:\n  tcp: {members: [\"tcp://%s\"]}\n  v1: {members: [\"tcp://%s\"], proxy-protocol: v1}\n  v2: {members: [\"tcp://%s\"], proxy-protocol: v2}\n",
		o.upstream(0), o.upstream(1), o.upstream(2))
	fmt.Fprintf(&b, "  unix: {members: [\"unix://%s\"]}\n  udp: {members: [\"udp://%s\"]}\n  unixgram: {members: [\"unixgram://%s\"]}\n",
		unixPath("upstream"), o.upstream(0), unixPath("upstream-gram"))
	fmt.Fprintln(&b, "listeners:")
	for _, p := range all {
		at, to, more := p.Network+"://"+p.Addr, p.Upstream, ""
		switch {
		case p.Echo:
			to = `"echo:"`
		case p.Gets > 0:
			to = fmt.Sprint("v", p.Gets)
		}
		if p.Sends > 0 {
			more += ", proxy-protocol: {from: 127.0.0.0/8}, sniff: {timeout: 5m}" // a client that has no CPU time may send its header late
		}
		if p.Network == "udp" || p.Network == "unixgram" {
			more += fmt.Sprintf(", timeouts: {idle: %v}", o.idle) // so that clients which have gone do not fill the table
		}
		if p.Slow {
			more += ", limits: {bandwidth: 8MiB/s}"
		}
		fmt.Fprintf(&b, "  %s: {listen: %q, to: %s%s}\n", p.Name, at, to, more)
	}
	return all, b.String()
}

// upstream returns the address of an upstream, by the version of the PROXY header that it gets.
func (o options) upstream(header int) string { return fmt.Sprintf("%s:%d", o.host, 20900+header) }

// listen starts the upstreams.
func (o options) listen(w *world.World) error {
	for header := range 3 {
		l, err := net.Listen("tcp", o.upstream(header))
		if err != nil {
			return err
		}
		w.Serve(l, header, nil)
	}
	l, err := net.Listen("unix", filepath.Join(o.dir, "upstream"))
	if err != nil {
		return err
	}
	w.Serve(l, 0, nil)
	udp, err := net.ListenPacket("udp", o.upstream(0))
	if err != nil {
		return err
	}
	udp.(*net.UDPConn).SetReadBuffer(4 << 20)
	w.ServeDatagrams(udp, nil)
	gram, err := net.ListenPacket("unixgram", filepath.Join(o.dir, "upstream-gram"))
	if err != nil {
		return err
	}
	w.ServeDatagrams(gram, nil)
	return nil
}
