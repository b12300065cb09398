package relay

import (
	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/sys"
)

// add makes the port of a listener on one loop.
func (sh *datagramShare) add(l *Listener, loop int, s *listenSocket, family sys.Family) {
	l.ports = append(l.ports, &datagramPort{datagrams: sh.all[loop], listener: l, listenSocket: s, family: family, wild: l.wild()})
}

// bindUDP makes a socket for each loop. The kernel spreads clients over them by a
// hash of the addresses, so that a client stays on its loop (socket(7), SO_REUSEPORT).
//
// The sockets of an earlier process stay the only ones, however many loops there are now: with
// another one the kernel would give datagrams of flows to other sockets than theirs.
func (sh *datagramShare) bindUDP(l *Listener, earlier []*listenSocket) error {
	for _, s := range earlier {
		family, e := sys.SocketFamily(uintptr(s.fd))
		if e != 0 {
			return e
		}
		sh.add(l, loopOf(s.key)%len(sh.all), s, family)
	}
	if len(earlier) > 0 {
		return nil
	}
	for i := range sh.all {
		var sa sys.Sockaddr
		if err := sa.SetAddrPort(l.addr.AddrPort); err != nil {
			return err
		}
		fd, err := l.bindDatagram(&sa)
		if err != nil {
			return err
		}
		sh.add(l, i, &listenSocket{fd: fd}, sa.Family())
		if l.addr.AddrPort.Port() == 0 {
			if e := sys.LocalAddr(fd, &sa); e != 0 {
				return e
			}
			l.addr.AddrPort = sa.AddrPort()
		}
	}
	return nil
}

// bindUnixgram makes the one socket of a path, which the first loop serves.
func (sh *datagramShare) bindUnixgram(l *Listener, earlier []*listenSocket) error {
	if len(earlier) > 0 {
		sh.add(l, 0, earlier[0], sys.Unix)
		return l.takePath()
	}
	fd, err := l.bindPath(sys.Linux{}.Datagram, l.bindDatagram)
	if err != nil {
		return err
	}
	sh.add(l, 0, &listenSocket{fd: fd}, sys.Unix)
	return nil
}

// bindDatagram makes a socket with all options that a port needs.
func (l *Listener) bindDatagram(sa *sys.Sockaddr) (int, error) {
	kernel := l.engine.kernel
	fd, e := kernel.Datagram(sa.Family())
	if e != 0 {
		return -1, e
	}
	bind := sys.BindShared
	if sa.Family() == sys.Unix {
		bind = sys.Bind
	}
	err := l.setUpPort(fd, sa.Family(), &fresh)
	if err == nil {
		if e := bind(fd, sa); e != 0 {
			err = e
		}
	}
	if err != nil {
		kernel.Close(fd)
		return -1, err
	}
	return fd, nil
}

// wild reports whether the listener is bound to no address of its own.
func (l *Listener) wild() bool {
	return l.addr.Network == UDP && l.addr.AddrPort.Addr().IsUnspecified()
}

// setUpPort sets the options of a port's socket, which had those of was. Those that only make it
// better may fail.
func (l *Listener) setUpPort(fd int, family sys.Family, was *SocketOptions) error {
	if family != sys.Unix {
		if l.wild() {
			if e := sys.SetRecvLocal(uintptr(fd), family); e != 0 {
				return e
			}
		}
		if feature.GRO.Err() == nil {
			sys.SetGRO(uintptr(fd), !l.engine.cfg.NoGRO)
		}
	}
	sys.SetRecvDrops(uintptr(fd))
	o := &l.cfg.Load().Socket
	setPortBuffers(fd, o)
	return l.setOptions(fd, o, was)
}

// setPortBuffers asks for the buffers of a port's socket.
func setPortBuffers(fd int, o *SocketOptions) {
	recv, send := o.RecvBuffer, o.SendBuffer
	if recv <= 0 {
		recv = portRecvBuffer
	}
	if send <= 0 {
		send = portSendBuffer
	}
	sys.SetBuffer(uintptr(fd), false, recv)
	sys.SetBuffer(uintptr(fd), true, send)
}
