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

// There are two functions rather than one with an argument, because an indirect call
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

func sockaddr(sa *sys.Sockaddr, a Addr) error {
	if a.Network == Unix || a.Network == Unixgram {
		return sa.SetUnix(a.Path)
	}
	return sa.SetAddrPort(a.AddrPort)
}
