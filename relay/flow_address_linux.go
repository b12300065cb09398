package relay

import "github.com/penstock/penstock/internal/sys"

// upstream returns the address of the upstream, as far as it is known.
func (f *Flow) upstream() Addr {
	switch {
	case f.to != nil:
		return *f.to
	case f.listener == nil:
		return f.owner.remote(f, sideUpstream)
	}
	return Addr{}
}

// localAddr returns the address of a socket of one of the loop's flows.
func (t *tenant) localAddr(fd int) Addr {
	if fd < 0 || t.shared.kernel.LocalAddr(fd, &t.asked) != 0 {
		return Addr{}
	}
	return addrOf(&t.asked)
}

// peerAddr returns the address of its peer.
func (t *tenant) peerAddr(fd int) Addr {
	if fd < 0 || t.shared.kernel.PeerAddr(fd, &t.asked) != 0 {
		return Addr{}
	}
	return addrOf(&t.asked)
}

// boundAddr returns the address of a listener's socket.
func boundAddr(k sys.Kernel, fd int) Addr {
	var sa sys.Sockaddr
	if k.LocalAddr(fd, &sa) != 0 {
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

func sockaddr(sa *sys.Sockaddr, a Addr) error {
	if a.Network == Unix || a.Network == Unixgram {
		return sa.SetUnix(a.Path)
	}
	return sa.SetAddrPort(a.AddrPort)
}
