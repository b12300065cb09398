package relay

import (
	"net/netip"
	"slices"

	"github.com/penstock/penstock/internal/sys"
)

// A flow of a port that is closed receives what its client sends by a socket of its own, and sends replies by
// the port's.

// give gives a flow a socket of its own, if there may be one more.
func (d *datagrams) give(f *datagramFlow) {
	p, l := f.port, d.loop
	if p.listener.toMany || p.wild && !f.localAddr.IsValid() || f.shares() {
		return // whoever else has the port receives the same, or other clients are behind the same proxy
	}
	if d.receives(f) {
		return
	}
	if d.share.own.Add(1) > d.share.ownMost {
		d.share.own.Add(-1)
		return
	}
	if !d.descriptors.takeAhead(1, l.Now) && !d.descriptors.takeAbove(1, d.descriptors.budget.forStreams()) {
		d.share.own.Add(-1)
		return
	}
	fd, err := p.connected(f)
	if err == nil {
		d.descriptors.opened(1)
		if e := l.Watch(fd, sys.In, f.ref().Token(sideClient)); e != 0 {
			d.descriptors.closing(1)
			d.shared.kernel.Close(fd)
			err = e
		}
	}
	if err != nil {
		p.refused = true
		d.descriptors.give(1)
		d.share.own.Add(-1)
		return
	}
	f.own = int32(fd)
	p.owned++
	p.given++
}

// giveLate is give for a flow that began while its port closed.
func (d *datagrams) giveLate(f *datagramFlow) {
	if d.give(f); !d.receives(f) && f.port.state == portClosed {
		d.stats.AnswersOnly++
	}
}

// receives reports whether there is a socket of its own for what the client of a flow sends: the flow's, or that of another flow of its
// address, which is for all of them.
func (d *datagrams) receives(f *datagramFlow) bool {
	return f.own >= 0 || slices.ContainsFunc(f.port.siblings(f), func(s *Flow) bool { return d.of(s).own >= 0 })
}

// connected makes a socket that is bound to the address that the client of f writes to, and connected to the
// client. From then on the kernel gives it what the client sends, rather than any socket that is not
// connected (compute_score in net/ipv4/udp.c and net/ipv6/udp.c, Linux 6.18).
//
// If the port is bound to no address, the socket may get what others have sent before it is connected. Then
// they are strangers to the port, and their flows are found as those of other strangers.
//
// If the port is bound to one address, a socket that was bound to the same one would be in the port's
// SO_REUSEPORT group (udp_reuseport_add_sock, Linux 6.18), take what is sent to others until it is connected, and
// change which sockets of the group they reach. So for IPv4 it is an IPv6 one, which is in another group, and gets
// what the others do not want. For IPv6 it is bound to no address, and gets the port's when it is connected, if
// that is the one from which the kernel would write to the client.
func (p *datagramPort) connected(f *datagramFlow) (fd int, err error) {
	client, zone := sys.GetAddrPort(f.name[:f.nameLen])
	kernel := p.listener.engine.kernel
	var its sys.Sockaddr
	if p.wild {
		return p.connectFrom(p.family, netip.AddrPortFrom(f.localAddr, p.listener.addr.AddrPort.Port()), f.zone, client, zone)
	}
	if e := kernel.LocalAddr(p.fd, &its); e != 0 {
		return -1, e
	}
	local, scope := sys.GetAddrPort(its.Raw())
	if local.Addr().Is4() {
		if fd, err = p.connectFrom(sys.IPv6, local, 0, client, 0); err == nil {
			return fd, nil
		}
	} else if fd, err = p.connectFrom(sys.IPv6, netip.AddrPortFrom(netip.IPv6Unspecified(), local.Port()), 0, client, zone); err == nil {
		if e := kernel.LocalAddr(fd, &its); e == 0 && its.AddrPort().Addr().WithZone("") == local.Addr() {
			return fd, nil
		}
		kernel.Close(fd)
	}
	p.joins()
	return p.connectFrom(p.family, local, scope, client, zone)
}

// joins is called before a flow gets an own socket that is in the group of the port's after all: the host has no IPv6, or had no descriptor
// for the other socket. As long as there may be such a socket, and those of other listeners beside it, the kernel may give what their
// clients send to any loop.
func (p *datagramPort) joins() {
	if !p.joined {
		p.joined = true
		p.address.astray.Add(1)
	}
}

// connectFrom makes a socket with the options of the port's, which is bound to a local address and connected to a client.
func (p *datagramPort) connectFrom(family sys.Family, local netip.AddrPort, scope uint32, client netip.AddrPort, zone uint32) (int, error) {
	l := p.listener
	kernel := l.engine.kernel
	fd, e := kernel.Datagram(family)
	if e != 0 {
		return -1, e
	}
	err := l.setUpPort(fd, family, &fresh)
	if err == nil {
		if local.Addr() == netip.IPv6Unspecified() {
			sys.SetV6Only(kernel, fd)
		}
		l.setOwner(fd)
		var sa sys.Sockaddr
		sa.PutAddrPort(family, local, scope)
		if e = sys.BindShared(kernel, fd, &sa); e == 0 {
			sa.PutAddrPort(family, client, zone)
			e = kernel.Connect(fd, &sa)
		}
		if e == 0 {
			return fd, nil
		}
		err = e
	}
	kernel.Close(fd)
	return -1, err
}

// receiveOwn reads what was sent to the own socket of a flow.
func (d *datagrams) receiveOwn(f *datagramFlow) {
	in := d.input(f.port.family)
	n, e := d.shared.kernel.RecvBatch(int(f.own), f.port.family, in, 0, dgramBatch)
	if e != 0 {
		return // EAGAIN, or an error that this call has taken from the socket: the client does not listen
	}
	d.unread = d.unread || n == dgramBatch
	d.handle(f.port, in, n, &f.ownDrops, f)
}

// sentBy reports whether name is the address of the client, be it an IPv4 one in an IPv6 one.
func (f *datagramFlow) sentBy(name []byte) bool { return sameSender(f.name[:f.nameLen], name) }

// sameSender reports whether two names are one address, be one an IPv4 one in an IPv6 one.
func sameSender(a, b []byte) bool {
	x, zone := sys.GetAddrPort(a)
	y, scope := sys.GetAddrPort(b)
	return x == y && zone == scope
}
