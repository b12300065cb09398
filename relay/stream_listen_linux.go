package relay

import "github.com/penstock/penstock/internal/sys"

// share makes a port per loop for a listener that is one socket.
func (sh *streamShare) share(l *Listener, s *listenSocket) {
	l.shared = s.fd
	for _, owner := range sh.all {
		l.ports = append(l.ports, &streamPort{streams: owner, listener: l, listenSocket: s})
	}
}

// bindTCP makes a socket for each loop, except for those that have one of an earlier process.
func (sh *streamShare) bindTCP(l *Listener, earlier []*listenSocket) error {
	for i, s := range earlier {
		l.ports = append(l.ports, &streamPort{streams: sh.all[i%len(sh.all)], listener: l, listenSocket: s})
		l.addr = localAddr(s.fd)
	}
	var sa sys.Sockaddr
	for _, s := range sh.all[min(len(earlier), len(sh.all)):] {
		if err := sa.SetAddrPort(l.addr.AddrPort); err != nil {
			return err
		}
		fd, err := l.bind(&sa, true)
		if err != nil {
			return err
		}
		l.ports = append(l.ports, &streamPort{streams: s, listener: l, listenSocket: &listenSocket{fd: fd}})
		l.addr = localAddr(fd)
	}
	return nil
}

func (sh *streamShare) bindUnix(l *Listener, earlier []*listenSocket) error {
	if len(earlier) > 0 {
		sh.share(l, earlier[0])
		return l.takePath()
	}
	fd, err := l.bindPath(func(f sys.Family) (int, sys.Errno) { return sys.Linux{}.Socket(f, false) }, func(sa *sys.Sockaddr) (int, error) { return l.bind(sa, false) })
	if err != nil {
		return err
	}
	sh.share(l, &listenSocket{fd: fd})
	return nil
}
