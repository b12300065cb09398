package relay

import "github.com/penstock/penstock/internal/sys"

// share makes a port per loop for a listener that is one socket.
func (sh *streamShare) share(l *Listener, fd int) {
	l.shared = fd
	for _, s := range sh.all {
		l.ports = append(l.ports, &streamPort{streams: s, listener: l, fd: fd})
	}
}

// bindTCP makes a socket per loop.
func (sh *streamShare) bindTCP(l *Listener) error {
	var sa sys.Sockaddr
	for _, s := range sh.all {
		if err := sa.SetAddrPort(l.addr.AddrPort); err != nil {
			return err
		}
		fd, err := l.bind(&sa, true)
		if err != nil {
			return err
		}
		l.ports = append(l.ports, &streamPort{streams: s, listener: l, fd: fd})
		l.addr = localAddr(fd)
	}
	return nil
}

func (sh *streamShare) bindUnix(l *Listener) error {
	fd, err := l.bindPath(func(f sys.Family) (int, sys.Errno) { return sys.Linux{}.Socket(f, false) }, func(sa *sys.Sockaddr) (int, error) { return l.bind(sa, false) })
	if err != nil {
		return err
	}
	sh.share(l, fd)
	return nil
}
