package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/hooks"
	"github.com/penstock/penstock/cmd/penstock/internal/host"
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

// bindKeysOf returns the keys of a listener's sockets: one for each port of its range.
func bindKeysOf(l *spec.Listener) []bindKey {
	keys := make([]bindKey, l.Listen.Ports())
	for i := range keys {
		keys[i] = bindKeyOf(l, i)
	}
	return keys
}

// bindKeyOf returns the key of a listener's i-th port.
func bindKeyOf(l *spec.Listener, i int) bindKey {
	b := bindKey{addr: l.Listen.At(i), inherit: l.Inherit, datagrams: l.Datagrams, netInterface: l.Interface, transparent: l.Transparent, mptcp: l.TCP.MPTCP}
	if l.Inherit == "" && l.Listen.Path == "" && l.Listen.Port == 0 {
		b.freePortName = l.Name
	}
	return b
}

// bindListeners returns the bound sockets of listeners: those that exist, and new ones, which are
// paused until they are updated. On an error it returns what it has bound so far.
func (d *daemon) bindListeners(ctx context.Context, listeners []*spec.Listener) (map[bindKey]*hooks.Socket, error) {
	bound := map[bindKey]*hooks.Socket{}
	if err := d.goWithout(d.checkPorts(listeners)); err != nil {
		return bound, err
	}
	for _, l := range listeners {
		var at relay.Addr // of the first port; a name is looked up once
		for i, b := range bindKeysOf(l) {
			if p := d.listening.bound[b]; p != nil {
				bound[b] = p
				continue
			}
			closed := d.nodeDrain.closed && l.Inherit == ""
			if closed && !d.opensForFlows(l) {
				continue
			}
			var err error
			if at.Network == 0 && l.Inherit == "" {
				at, err = d.listenAddr(ctx, l)
			}
			var p *hooks.Socket
			if err == nil {
				p, err = d.listen(l, at, i)
			}
			if err != nil && closed {
				continue // its flows end, which is told
			}
			if err != nil {
				if err = d.goWithout(bindError(l, err)); err != nil {
					return bound, err
				}
				continue
			}
			if err := p.Degraded(); err != nil {
				d.noteLack(fmt.Errorf("listener %s: %w", l.Name, err))
			}
			bound[b] = p
		}
	}
	return bound, nil
}

// checkPorts returns an error if listeners need more descriptors than the process may have: one for
// each port and loop.
func (d *daemon) checkPorts(listeners []*spec.Listener) error {
	ports := 0
	for _, l := range listeners {
		ports += l.Listen.Ports()
	}
	loops := len(d.engine.Stats().Loops)
	if needed, limit := int64(ports*loops), host.MaxDescriptors(); limit > 0 && needed > limit/2 {
		return fmt.Errorf("%d ports of listeners need %d descriptors (one per port and loop), more than half of the limit of %d; allowed: a limit of at least %d (LimitNOFILE= of systemd, ulimit -n), fewer ports, or fewer loops",
			ports, needed, limit, 2*needed)
	}
	return nil
}

// closeListeners closes the listeners of bound that are not in others.
func (d *daemon) closeListeners(bound, others map[bindKey]*hooks.Socket) {
	var wg sync.WaitGroup
	for b, p := range bound {
		if others[b] != p {
			wg.Go(func() { p.Close() })
		}
	}
	wg.Wait()
}

// listen binds the i-th port of a listener; at is the address of the first one.
func (d *daemon) listen(l *spec.Listener, at relay.Addr, i int) (*hooks.Socket, error) {
	p := &hooks.Socket{Port: int(l.Listen.Port) + i}
	c := d.listenConfig(l, p)
	c.Paused = true
	var err error
	if l.Inherit != "" {
		p.Listener, err = d.inherit(l, c)
		return p, err
	}
	if i > 0 {
		at.AddrPort = netip.AddrPortFrom(at.AddrPort.Addr(), at.AddrPort.Port()+uint16(i))
	}
	// What the worker before has written must not make this one, which may still have the privileges that the other had given up, bind a
	// port that needs them (b8c2300).
	if was, ok := d.keeping.AddressesBefore()[l.Name]; ok && was.AddrPort.Port() >= host.FirstUnprivilegedPort() && at.AddrPort.Port() == 0 && at.Path == "" && was.Network == at.Network {
		if p.Listener, err = d.engine.Listen(was, c); err == nil {
			return p, nil
		}
	}
	if was, ok := d.nodeDrain.ports[l.Name]; ok && at.AddrPort.Port() == 0 && at.Path == "" && was.Network == at.Network {
		if p.Listener, err = d.engine.Listen(was, c); err == nil {
			return p, nil
		}
	}
	p.Listener, err = d.engine.Listen(at, c)
	if errors.Is(err, syscall.EAFNOSUPPORT) && at.AddrPort.Addr() == netip.IPv6Unspecified() {
		at.AddrPort = netip.AddrPortFrom(netip.IPv4Unspecified(), at.AddrPort.Port())
		p.Listener, err = d.engine.Listen(at, c) // all addresses, on a host without IPv6
	}
	return p, err
}

// inherit listens on the socket that the service manager passed under the listener's name. It stays open, for a listener that comes after
// this one.
func (d *daemon) inherit(l *spec.Listener, c relay.ListenConfig) (*relay.Listener, error) {
	streams, packets := d.listening.inherited.Streams[l.Inherit], d.listening.inherited.Datagrams[l.Inherit]
	switch {
	case !l.Datagrams && len(streams) == 1:
		return listenOn(streams[0], net.FileListener, d.engine.ListenOn, c)
	case l.Datagrams && len(packets) == 1:
		return listenOn(packets[0], net.FilePacketConn, d.engine.ListenOnPacket, c)
	}
	return nil, fmt.Errorf("the service manager passed %d stream and %d datagram sockets named %q; allowed: exactly one, of the listener's kind",
		len(streams), len(packets), l.Inherit)
}

// listenOn gives the engine a duplicate of a socket.
func listenOn[S io.Closer](socket S, fromFile func(*os.File) (S, error), listen func(S, relay.ListenConfig) (*relay.Listener, error), c relay.ListenConfig) (*relay.Listener, error) {
	f, err := any(socket).(interface{ File() (*os.File, error) }).File()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	own, err := fromFile(f)
	if err != nil {
		return nil, err
	}
	l, err := listen(own, c)
	if err != nil {
		own.Close()
	}
	return l, err
}

// addressesToKeep returns the addresses that the next worker is to have again: those of listeners on any free port, and of those
// whose host is a name.
func (d *daemon) addressesToKeep(cfg *spec.Config, bound map[bindKey]*hooks.Socket) map[string]relay.Addr {
	before, addresses := d.keeping.AddressesBefore(), map[string]relay.Addr{}
	for _, l := range cfg.Listeners {
		b := bindKeyOf(l, 0)
		if b.freePortName == "" && !hasName(l) {
			continue
		}
		if p := bound[b]; p != nil {
			addresses[l.Name] = p.Addr()
		} else if was, ok := before[l.Name]; ok { // it is closed for now
			addresses[l.Name] = was
		}
	}
	return addresses
}

// listenAddr returns the address to bind. After a crash, a name has the address that it had: its sockets are held, and
// name servers may not answer.
func (d *daemon) listenAddr(ctx context.Context, l *spec.Listener) (relay.Addr, error) {
	if was, ok := d.keeping.AddressesBefore()[l.Name]; ok && d.keeping.Unplanned() && hasName(l) && was.Network == l.Listen.Kind {
		was.AddrPort = netip.AddrPortFrom(was.AddrPort.Addr(), l.Listen.Port)
		return was, nil
	}
	return listenAddr(ctx, l.Listen)
}

// hasName reports whether the host of a listener is a name.
func hasName(l *spec.Listener) bool {
	return l.Inherit == "" && l.Listen.Path == "" && l.Listen.Host != "" && !l.Listen.Addr().IsValid()
}

// listenAddr returns the address to bind: all addresses if there is no host, and for a name
// its first address, IPv4 before IPv6.
func listenAddr(ctx context.Context, e spec.Endpoint) (relay.Addr, error) {
	network := e.Kind
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
func (d *daemon) listenConfig(l *spec.Listener, p *hooks.Socket) relay.ListenConfig {
	o := hooks.SocketOptions(l.TCP)
	o.Interface, o.Transparent = l.Interface, l.Transparent
	c := relay.ListenConfig{
		Hooks:    d.hooks.Funcs(),
		Timeouts: hooks.Timeouts(l.Timeouts),
		Socket:   o,
		Datagram: relay.DatagramConfig{Replies: l.Replies, Amplification: l.Amplification.Ratio, AmplificationAlways: l.Amplification.Always},
		Backlog:  l.Backlog,
		Mode:     l.Mode,
		Value:    p,
	}
	if !hooks.Divides(l) {
		c.Hooks.Choose = nil
	}
	if l.Datagrams && len(l.ProxyFrom) > 0 {
		c.Datagram.Origin = p.Origin(l.ProxyFirst)
	}
	if l.TLS != nil {
		c.Timeouts.Handshake = l.TLS.Handshake
	}
	switch l.Unreachable {
	case "end":
		c.Datagram.OnUnreachable = relay.UnreachableEnd
	case "ignore":
		c.Datagram.OnUnreachable = relay.UnreachableIgnore
	}
	switch l.TOS {
	case "ecn":
		c.Datagram.TOS = relay.TOSECN
	case "copy":
		c.Datagram.TOS = relay.TOSCopy
	}
	return c
}

// Another process of the same user may have a port, too (SO_REUSEPORT). The kernel spreads new clients over both, and those
// of UDP by a hash and the number of sockets: when one more process binds the port, sessions move to it that the other one
// has. A restart begins like that, and so does a daemon that somebody starts twice by mistake.

// warnOfSharedPorts warns of ports that others had bound before.
func (d *daemon) warnOfSharedPorts(bound map[bindKey]*hooks.Socket, before host.Ports) {
	for b, p := range bound {
		a := p.Addr()
		if b.inherit != "" || a.AddrPort.Addr().IsMulticast() || !before[a.Network][a.AddrPort] {
			continue
		}
		what := "the kernel spreads new clients over both"
		if a.Network == relay.UDP {
			what = "the kernel spreads clients anew over both, so that sessions of the other one move here"
		}
		d.log.Warn("another process has the port, too: "+what+". Drain that one, or stop this one", "listener", a.String())
	}
}
