package relay

import (
	"fmt"
	"net"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/sys"
)

// bindUDP makes a socket for each loop. The kernel spreads clients over them by a
// hash of the addresses, so that a client stays on its loop (socket(7), SO_REUSEPORT).
func (l *Listener) bindUDP() error {
	for range l.engine.loops {
		var sa sys.Sockaddr
		if err := sa.SetAddrPort(l.addr.AddrPort); err != nil {
			return err
		}
		fd, err := l.bindDatagram(&sa)
		if err != nil {
			return err
		}
		l.dgrams = append(l.dgrams, &dgramPort{listener: l, fd: fd, family: sa.Family(), wild: l.wild()})
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
func (l *Listener) bindUnixgram() error {
	fd, err := l.bindPath(sys.Linux{}.Datagram, l.bindDatagram)
	if err != nil {
		return err
	}
	l.dgrams = []*dgramPort{{listener: l, fd: fd, family: sys.Unix}}
	return nil
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
	l.addr = localAddr(fd)
	l.addr.Network = UDP
	if family == sys.Unix {
		l.addr.Network = Unixgram
	}
	l.dgrams = []*dgramPort{{listener: l, fd: fd, family: family, wild: l.wild()}}
	if family != sys.Unix {
		// What whoever bound it may have set: a queue of errors, which nobody would
		// read, and a segment size, by which replies would be cut.
		sys.SetRecvErr(uintptr(fd), family, false)
		sys.HasGSO(uintptr(fd))
	}
	if err := l.setUpPort(fd, family); err != nil {
		l.closeSockets()
		return nil, fmt.Errorf("relay: serve %s: %w", l.addr, err)
	}
	if err := l.begin(); err != nil {
		return nil, err
	}
	inherited.Close()
	return l, nil
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
	err := l.setUpPort(fd, sa.Family())
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

// wild tells whether the listener is bound to no address of its own.
func (l *Listener) wild() bool {
	return l.addr.Network == UDP && l.addr.AddrPort.Addr().IsUnspecified()
}

// setUpPort sets the options of a port's socket. Those that only make it better may fail.
func (l *Listener) setUpPort(fd int, family sys.Family) error {
	if family != sys.Unix {
		if l.wild() {
			if e := sys.SetRecvLocal(uintptr(fd), family); e != 0 {
				return e
			}
		}
		if !l.engine.cfg.NoGRO && feature.GRO.Err() == nil {
			sys.SetGRO(uintptr(fd), true)
		}
	}
	sys.SetRecvDrops(uintptr(fd))
	o := &l.cfg.Load().Socket
	l.setPortBuffers(fd, o)
	return l.setOptions(fd, o, &fresh)
}

// setPortBuffers asks for the buffers of a port's socket.
func (l *Listener) setPortBuffers(fd int, o *SocketOptions) {
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
