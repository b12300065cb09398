package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// lookupTimeout bounds the lookup of one listener's name and, at the start, of all members' names.
const lookupTimeout = 10 * time.Second

// A bindKey identifies a listener's socket. A listener of a new configuration takes over the
// socket with the same key, whatever its name is.
type bindKey struct {
	addr         spec.Endpoint
	inherit      string
	datagrams    bool
	netInterface string
	transparent  bool
	mptcp        bool
	freePortName string // the listener's name if it asks for a free port, so that each such listener has its own
}

func bindKeyOf(l *spec.Listener) bindKey {
	b := bindKey{addr: l.Listen, inherit: l.Inherit, datagrams: l.Datagrams, netInterface: l.Interface, transparent: l.Transparent, mptcp: l.TCP.MPTCP}
	if l.Inherit == "" && l.Listen.Path == "" && l.Listen.Port == 0 {
		b.freePortName = l.Name
	}
	return b
}

// bindListeners returns the bound sockets of listeners: those that exist, and new ones, which are
// paused until they are updated. On an error it returns what it has bound so far.
func (d *daemon) bindListeners(ctx context.Context, listeners []*spec.Listener) (map[bindKey]*boundListener, error) {
	posts := map[bindKey]*boundListener{}
	for _, l := range listeners {
		b := bindKeyOf(l)
		if p := d.bound[b]; p != nil {
			posts[b] = p
			continue
		}
		p, err := d.listen(ctx, l)
		if err != nil {
			return posts, fmt.Errorf("listener %s: %w", l.Name, err)
		}
		posts[b] = p
	}
	return posts, nil
}

// closeListeners closes the listeners of posts that are not in others.
func (d *daemon) closeListeners(posts, others map[bindKey]*boundListener) {
	var wg sync.WaitGroup
	for b, p := range posts {
		if others[b] != p {
			wg.Go(func() { p.Close() })
		}
	}
	wg.Wait()
}

func (d *daemon) listen(ctx context.Context, l *spec.Listener) (*boundListener, error) {
	p := &boundListener{}
	c := d.listenConfig(l, p)
	c.Paused = true
	var err error
	if l.Inherit != "" {
		p.Listener, err = d.inherit(l, c)
		return p, err
	}
	at, err := listenAddr(ctx, l.Listen)
	if err != nil {
		return nil, err
	}
	p.Listener, err = d.engine.Listen(at, c)
	if errors.Is(err, syscall.EAFNOSUPPORT) && at.AddrPort.Addr() == netip.IPv6Unspecified() {
		at.AddrPort = netip.AddrPortFrom(netip.IPv4Unspecified(), at.AddrPort.Port())
		p.Listener, err = d.engine.Listen(at, c) // all addresses, on a host without IPv6
	}
	return p, err
}

// inherit takes over the socket that the service manager passed under the listener's name.
func (d *daemon) inherit(l *spec.Listener, c relay.ListenConfig) (*relay.Listener, error) {
	streams, packets := d.inherited.Streams[l.Inherit], d.inherited.Datagrams[l.Inherit]
	switch {
	case !l.Datagrams && len(streams) == 1:
		return d.engine.ListenOn(streams[0], c)
	case l.Datagrams && len(packets) == 1:
		return d.engine.ListenOnPacket(packets[0], c)
	}
	return nil, fmt.Errorf("the service manager passed %d stream and %d datagram sockets named %q; allowed: exactly one, of the listener's kind",
		len(streams), len(packets), l.Inherit)
}

var networks = map[spec.Kind]relay.Network{
	spec.TCP: relay.TCP, spec.UDP: relay.UDP, spec.Unix: relay.Unix, spec.Unixgram: relay.Unixgram,
}

// listenAddr returns the address to bind: all addresses if there is no host, and for a name
// its first address, IPv4 before IPv6.
func listenAddr(ctx context.Context, e spec.Endpoint) (relay.Addr, error) {
	network := networks[e.Kind]
	switch ip := e.Addr(); {
	case e.Path != "":
		return relay.Addr{Network: network, Path: e.Path}, nil
	case e.Host == "":
		return relay.Addr{Network: network, AddrPort: netip.AddrPortFrom(netip.IPv6Unspecified(), e.Port)}, nil
	case ip.IsValid():
		return relay.Addr{Network: network, AddrPort: ip}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", e.Host)
	if err != nil {
		return relay.Addr{}, fmt.Errorf("%v: %w", e, err)
	}
	best := ips[0].Unmap()
	for _, ip := range ips {
		if best.Is6() && ip.Unmap().Is4() {
			best = ip.Unmap()
		}
	}
	return relay.Addr{Network: network, AddrPort: netip.AddrPortFrom(best, e.Port)}, nil
}

// listenConfig returns the engine's configuration of a listener.
func (d *daemon) listenConfig(l *spec.Listener, p *boundListener) relay.ListenConfig {
	o := socketOptions(l.TCP)
	o.Interface, o.Transparent = l.Interface, l.Transparent
	c := relay.ListenConfig{
		Hooks:    d.hooks(),
		Timeouts: timeouts(l.Timeouts),
		Socket:   o,
		Datagram: relay.DatagramConfig{Replies: l.Replies},
		Backlog:  l.Backlog,
		Mode:     l.Mode,
		Value:    p,
	}
	switch l.Unreachable {
	case "end":
		c.Datagram.OnUnreachable = relay.UnreachableEnd
	case "ignore":
		c.Datagram.OnUnreachable = relay.UnreachableIgnore
	}
	return c
}
