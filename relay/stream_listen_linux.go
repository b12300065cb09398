package relay

import (
	"fmt"
	"slices"

	"github.com/penstock/penstock/internal/sys"
)

// own makes the port of a socket that is one loop's.
func (sh *streamShare) own(l *Listener, loop int, s *listenSocket) {
	l.ports = append(l.ports, &streamPort{streams: sh.all[loop], listener: l, listenSocket: s})
}

// share makes the ports of a socket from which all loops accept.
func (sh *streamShare) share(l *Listener, s *listenSocket) {
	all := &sharedPorts{}
	all.open.Store(int32(len(sh.all)))
	for _, owner := range sh.all {
		p := &streamPort{streams: owner, listener: l, listenSocket: s, shared: all}
		all.ports = append(all.ports, p)
		l.ports = append(l.ports, p)
	}
}

// bindTCP makes a socket for each loop, except for those that have one of an earlier process. If that is refused, the
// loops share the sockets that there are: a process after a crash may have fewer privileges than the one that bound
// them.
func (sh *streamShare) bindTCP(l *Listener, earlier []*listenSocket) (err error) {
	sockets := slices.Clip(earlier)
	if n := len(earlier); n > 0 {
		l.addr = boundAddr(l.engine.kernel, earlier[n-1].fd)
	}
	for len(sockets) < len(sh.all) && err == nil {
		var s *listenSocket
		if s, err = l.bindTCPSocket(); err == nil {
			sockets = append(sockets, s)
		}
	}
	for i, s := range sockets {
		if err == nil {
			sh.own(l, i%len(sh.all), s)
		} else {
			sh.share(l, s)
		}
	}
	if err != nil && len(earlier) > 0 {
		l.lack(fmt.Errorf("%d sockets for %d loops: %w", len(sockets), len(sh.all), err))
		return nil
	}
	return err
}

// bindTCPSocket makes one more socket of the listener.
func (l *Listener) bindTCPSocket() (*listenSocket, error) {
	var sa sys.Sockaddr
	if err := sa.SetAddrPort(l.addr.AddrPort); err != nil {
		return nil, err
	}
	fd, err := l.bind(&sa, true)
	if err != nil {
		return nil, err
	}
	l.addr = boundAddr(l.engine.kernel, fd)
	return &listenSocket{fd: fd}, nil
}

func (sh *streamShare) bindUnix(l *Listener, earlier []*listenSocket) error {
	if len(earlier) > 0 {
		sh.share(l, earlier[0])
		l.takePath()
		return nil
	}
	fd, err := l.bindPath(func(f sys.Family) (int, sys.Errno) { return sys.Linux{}.Socket(f, false) }, func(sa *sys.Sockaddr) (int, error) { return l.bind(sa, false) })
	if err != nil {
		return err
	}
	sh.share(l, &listenSocket{fd: fd})
	return nil
}
