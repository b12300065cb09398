package relay

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// Listen listens on addr, which must not be a built-in upstream, and accepts clients
// from then on. If the port of a TCP or UDP address is 0, a free one is chosen; see
// [Listener.Addr]. If addr is the path of a Unix socket that nobody listens on any
// more, that socket is replaced.
func (e *Engine) Listen(addr Addr, cfg ListenConfig) (*Listener, error) {
	l, err := e.newListener(cfg)
	if err != nil {
		return nil, err
	}
	l.addr, l.label = addr, addr.String()
	earlier, unfit := l.takeEarlier()
	if unfit == nil {
		err = l.bindOn(earlier)
	} else if err = l.bindOn(nil); err == nil {
		e.holding.giveBack(l.label, earlier) // for Restore to close
		earlier = nil
	} else { // they are better than none
		l.lack(fmt.Errorf("%w; new sockets: %w", unfit, err))
		err = l.bindOn(earlier)
	}
	if err != nil {
		l.giveBack(earlier)
		if addr == (Addr{}) {
			return nil, fmt.Errorf("relay: listen on the zero Addr: %w", err)
		}
		return nil, fmt.Errorf("relay: listen on %s: %w", addr, err)
	}
	l.setUpEarlier(earlier)
	l.earlier = earlier
	if addr.AddrPort.Port() == 0 {
		addr = l.addr
	}
	l.hold(addr)
	return l, l.begin()
}

// bindOn makes the listener's sockets, beside those of an earlier process. After an error it has none, and the earlier
// ones are the caller's.
func (l *Listener) bindOn(earlier []*listenSocket) (err error) {
	e := l.engine
	switch l.addr.Network {
	case TCP:
		err = e.streams.bindTCP(l, earlier)
	case Unix:
		err = e.streams.bindUnix(l, earlier)
	case UDP:
		err = e.datagrams.bindUDP(l, earlier)
	case Unixgram:
		err = e.datagrams.bindUnixgram(l, earlier)
	default:
		err = errors.New("not a network to listen on; it must be tcp, unix, udp or unixgram")
	}
	if err != nil {
		l.leave(earlier)
		l.closeSockets()
		l.ports, l.path = nil, ""
	}
	return err
}

// ListenOn accepts clients from a listener that is already bound, a *net.TCPListener or
// a *net.UnixListener. After ListenOn has returned nil the engine owns the listener and
// closes it. The socket is made non-blocking, for all processes that share it, and
// again before each accept.
func (e *Engine) ListenOn(inherited net.Listener, cfg ListenConfig) (*Listener, error) {
	l, err := e.newListener(cfg)
	if err != nil {
		return nil, err
	}
	fd, _, err := e.inherit(inherited, sys.SockStream)
	if err != nil {
		return nil, err
	}
	e.streams.share(l, &listenSocket{fd: fd})
	l.inherited = true // before its options are set
	l.addr = boundAddr(e.kernel, fd)
	if err := l.setOptions(fd, &l.cfg.Load().Socket, &fresh); err != nil {
		l.closeSockets()
		return nil, fmt.Errorf("relay: listen on %s: %w", l.addr, err)
	}
	l.holdInherited()
	if err := l.begin(); err != nil {
		return nil, err
	}
	if u, ok := inherited.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	inherited.Close()
	return l, nil
}

// inherit returns a second descriptor of a bound socket of the given type; one of
// streams must listen.
func (e *core) inherit(c any, want int) (int, sys.Family, error) {
	no := func(err error) (int, sys.Family, error) {
		return -1, 0, fmt.Errorf("relay: listen on a %T: %w", c, err)
	}
	in, ok := c.(syscall.Conn)
	if !ok {
		return no(errors.ErrUnsupported)
	}
	rc, err := in.SyscallConn()
	if err != nil {
		return no(err)
	}
	fd, err := e.dup(rc)
	if err != nil {
		return no(err)
	}
	family, typ, listening, errno := sys.SocketKind(e.kernel, fd)
	if errno != 0 || typ != want || listening != (want == sys.SockStream) {
		e.kernel.Close(fd)
		return no(errors.ErrUnsupported)
	}
	return fd, family, nil
}

func (e *Engine) newListener(cfg ListenConfig) (*Listener, error) {
	e.check("Listen", false)
	l := &Listener{engine: e}
	c, err := complete(cfg)
	if err != nil {
		return nil, err
	}
	l.cfg.Store(c)
	return l, nil
}

// ListenOnPacket receives datagrams from a socket that is already bound, a *net.UDPConn
// or a *net.UnixConn of network unixgram, which it takes over as ListenOn does. The
// first loop serves the socket. The options that Listen would have set are set now.
func (e *Engine) ListenOnPacket(inherited net.PacketConn, cfg ListenConfig) (*Listener, error) {
	l, err := e.newListener(cfg)
	if err != nil {
		return nil, err
	}
	fd, family, err := e.inherit(inherited, sys.SockDgram)
	if err != nil {
		return nil, err
	}
	l.addr = boundAddr(e.kernel, fd)
	l.addr.Network = UDP
	if family == sys.Unix {
		l.addr.Network = Unixgram
	}
	e.datagrams.add(l, 0, &listenSocket{fd: fd}, family)
	l.inherited = true
	if family != sys.Unix {
		// What whoever bound it may have set: a queue of errors, which nobody would
		// read, and a segment size, by which replies would be cut.
		sys.SetRecvErr(e.kernel, fd, family, false)
		sys.HasGSO(e.kernel, fd)
	}
	if err := l.setUpPort(fd, family, &fresh); err != nil {
		l.closeSockets()
		return nil, fmt.Errorf("relay: listen on %s: %w", l.addr, err)
	}
	l.holdInherited()
	if err := l.begin(); err != nil {
		return nil, err
	}
	inherited.Close()
	return l, nil
}
