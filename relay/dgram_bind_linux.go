package relay

import (
	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/sys"
)

// bindUDP makes a socket for each loop. The kernel spreads clients over them by a
// hash of the addresses, so that a client stays on its loop (socket(7), SO_REUSEPORT).
func (l *Listener) bindUDP() error {
	for range l.engine.loops {
		var sa sys.Sockaddr
		if err := sa.SetAddrPort(l.addr.IP); err != nil {
			return err
		}
		fd, err := l.bindDatagram(&sa)
		if err != nil {
			return err
		}
		l.dgrams = append(l.dgrams, &dgramPort{listener: l, fd: fd, family: sa.Family(), wild: l.addr.IP.Addr().IsUnspecified()})
		if l.addr.IP.Port() == 0 {
			if e := sys.LocalAddr(fd, &sa); e != 0 {
				return e
			}
			l.addr.IP = sa.AddrPort()
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

// bindDatagram makes a socket with all options that a port needs. Those that
// only make it better may fail.
func (l *Listener) bindDatagram(sa *sys.Sockaddr) (int, error) {
	kernel := l.engine.kernel
	fd, e := kernel.Datagram(sa.Family())
	if e != 0 {
		return -1, e
	}
	if sa.Family() != sys.Unix {
		if e = sys.SetReusePort(uintptr(fd)); e == 0 && l.addr.IP.Addr().IsUnspecified() {
			e = sys.SetRecvLocal(uintptr(fd), sa.Family())
		}
		if !l.engine.cfg.NoGRO && feature.GRO.Err() == nil {
			sys.SetGRO(uintptr(fd), true)
		}
	}
	if e == 0 {
		sys.SetRecvDrops(uintptr(fd))
		recv, send := l.cfg.Socket.RecvBuffer, l.cfg.Socket.SendBuffer
		if recv <= 0 {
			recv = portRecvBuffer
		}
		if send <= 0 {
			send = portSendBuffer
		}
		sys.SetBuffer(uintptr(fd), false, recv)
		sys.SetBuffer(uintptr(fd), true, send)
		e = sys.Bind(fd, sa)
	}
	if e != 0 {
		kernel.Close(fd)
		return -1, e
	}
	return fd, nil
}
