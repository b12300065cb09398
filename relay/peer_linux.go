package relay

import "github.com/penstock/penstock/internal/sys"

// Two functions rather than one that is told whom to ask: an indirect call
// would move sa to the heap.

func localAddr(fd int) Addr {
	var sa sys.Sockaddr
	if fd < 0 || sys.LocalAddr(fd, &sa) != 0 {
		return Addr{}
	}
	return addrOf(&sa)
}

func peerAddr(fd int) Addr {
	var sa sys.Sockaddr
	if fd < 0 || sys.PeerAddr(fd, &sa) != 0 {
		return Addr{}
	}
	return addrOf(&sa)
}

func addrOf(sa *sys.Sockaddr) Addr {
	if sa.Family() == sys.Unix {
		return Addr{Network: Unix, Path: sa.UnixPath()}
	}
	return Addr{Network: TCP, AddrPort: sa.AddrPort()}
}

// remote is the address of a side's peer: the one that was noted, for a TCP
// socket whose connection has ended knows it no more.
func (f *Flow) remote(side int) Addr {
	switch {
	case side == sideA && f.peer.IsValid():
		return Addr{Network: TCP, AddrPort: f.peer}
	case side == sideB && f.to != nil:
		return *f.to
	}
	return peerAddr(int(f.fd[side]))
}

// notePeers notes the addresses of an adopted pair's TCP peers, for its record.
func (l *loop) notePeers(f *Flow) {
	if f.tcp[sideA] && sys.PeerAddr(int(f.fd[sideA]), &l.peer) == 0 {
		f.peer = l.peer.AddrPort()
	}
	if f.tcp[sideB] && sys.PeerAddr(int(f.fd[sideB]), &l.peer) == 0 {
		if n := len(l.addrs); n > 0 {
			f.to, l.addrs = l.addrs[n-1], l.addrs[:n-1]
		} else {
			f.to = new(Addr)
		}
		*f.to = Addr{Network: TCP, AddrPort: l.peer.AddrPort()}
	}
}
