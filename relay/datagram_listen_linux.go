package relay

import (
	"net/netip"
	"slices"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/sys"
)

// add makes the port of a listener on one loop.
func (sh *datagramShare) add(l *Listener, loop int, s *listenSocket, family sys.Family) {
	p := &datagramPort{datagrams: sh.all[loop], listener: l, listenSocket: s, index: len(l.ports), family: family, wild: l.wild()}
	l.ports = append(l.ports, p)
}

// bindUDP makes a socket for each loop. The kernel spreads clients over them by a
// hash of the addresses, so that a client stays on its loop (socket(7), SO_REUSEPORT).
// It delivers what is sent to a broadcast or multicast address to each of them
// (__udp4_lib_mcast_deliver in net/ipv4/udp.c, Linux 6.18). So a listener that is bound to
// such an address has one socket, which the first loop serves; see datagramPort.another for
// one that is bound to no address.
//
// The sockets of an earlier process stay the only ones, however many loops there are now: with
// another one the kernel would give datagrams of flows to other sockets than theirs. But a loop that has flows of the listener, and none of
// these sockets, gets one: the process died when it had made, or given up, some of them only.
func (sh *datagramShare) bindUDP(l *Listener, earlier []*listenSocket) error {
	l.toMany = toMany(l.engine.kernel, l.addr.AddrPort.Addr())
	for _, s := range earlier {
		family, e := sys.FamilyOf(l.engine.kernel, s.fd)
		if e != 0 {
			return e
		}
		sh.add(l, loopOf(s.key)%len(sh.all), s, family)
	}
	if len(earlier) > 0 {
		sh.addMissing(l)
		return nil
	}
	loops := sh.all
	if l.toMany {
		loops = loops[:1]
	}
	for i := range loops {
		if err := sh.bindOne(l, i); err != nil {
			return err
		}
	}
	return nil
}

// bindOne makes the socket of a loop.
func (sh *datagramShare) bindOne(l *Listener, loop int) error {
	var sa sys.Sockaddr
	if err := sa.SetAddrPort(l.addr.AddrPort); err != nil {
		return err
	}
	fd, err := l.bindDatagram(&sa)
	if err != nil {
		return err
	}
	sh.add(l, loop, &listenSocket{fd: fd}, sa.Family())
	if l.addr.AddrPort.Port() == 0 {
		if e := l.engine.kernel.LocalAddr(fd, &sa); e != 0 {
			return e
		}
		l.addr.AddrPort = sa.AddrPort()
	}
	return nil
}

// addMissing makes sockets for the loops that have flows of the listener and no socket. Without one their flows are lost.
func (sh *datagramShare) addMissing(l *Listener) {
	if l.toMany {
		return
	}
	name := l.addr.String()
	for i := range sh.all {
		if !sh.homes[name][i] || slices.ContainsFunc(l.ports, func(p port) bool { return p.loop() == i }) {
			continue
		}
		if sh.bindOne(l, i) == nil {
			sh.regrouped[name] = true
		}
	}
}

// setHome notes that a loop has a flow of a listener of an earlier process.
func (sh *datagramShare) setHome(listener string, loop int) {
	if sh.homes == nil {
		sh.homes = make(map[string]map[int]bool)
	}
	if sh.homes[listener] == nil {
		sh.homes[listener] = make(map[int]bool)
	}
	sh.homes[listener][loop] = true
}

// toMany reports whether an address is a broadcast or multicast one.
func toMany(kernel sys.Kernel, ip netip.Addr) bool {
	return ip.IsMulticast() || ip.Unmap().Is4() && sys.IsBroadcast(kernel, ip.Unmap())
}

// another reports whether a datagram that was sent to a broadcast or multicast address is another
// port's. Each port of the listener gets it, and so all have to agree on one, which is always the same
// one for a client. It need not be the one that the kernel gives the client's other datagrams to.
func (p *datagramPort) another(name []byte) bool {
	h := uint32(2166136261) // FNV-1a
	for _, b := range name {
		h = (h ^ uint32(b)) * 16777619
	}
	return int(h%uint32(len(p.listener.ports))) != p.index
}

// bindUnixgram makes the one socket of a path, which the first loop serves.
func (sh *datagramShare) bindUnixgram(l *Listener, earlier []*listenSocket) error {
	if len(earlier) > 0 {
		sh.add(l, 0, earlier[0], sys.Unix)
		l.takePath()
		return nil
	}
	fd, err := l.bindPath(l.engine.kernel.Datagram, l.bindDatagram)
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
	l.setOwner(fd)
	err := l.setUpPort(fd, sa.Family(), &fresh)
	if err == nil {
		if sa.Family() == sys.Unix {
			e = kernel.Bind(fd, sa)
		} else {
			e = sys.BindShared(kernel, fd, sa)
		}
		if e != 0 {
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
	kernel := l.engine.kernel
	if family != sys.Unix {
		if l.wild() {
			if e := sys.SetRecvLocal(kernel, fd, family); e != 0 {
				return e
			}
		}
		if feature.GRO.Err() == nil {
			sys.SetGRO(kernel, fd, !l.engine.cfg.NoGRO)
		}
	}
	sys.SetRecvDrops(kernel, fd)
	cfg := l.cfg.Load()
	setPortTOS(kernel, fd, family, cfg)
	o := &cfg.Socket
	setPortBuffers(kernel, fd, o)
	return l.setOptions(fd, o, was)
}

// setPortTOS makes a port's socket tell the TOS byte of each datagram, if the listener's new flows keep something of it.
// It does not take that back: flows that began with another configuration may go on to keep it.
func setPortTOS(kernel sys.Kernel, fd int, family sys.Family, cfg *ListenConfig) {
	if cfg.Datagram.TOS != TOSNone && family != sys.Unix {
		sys.SetRecvTOS(kernel, fd, family, true)
	}
}

// setPortBuffers asks for the buffers of a port's socket.
func setPortBuffers(kernel sys.Kernel, fd int, o *SocketOptions) {
	recv, send := o.RecvBuffer, o.SendBuffer
	if recv <= 0 {
		recv = portRecvBuffer
	}
	if send <= 0 {
		send = portSendBuffer
	}
	sys.SetBuffer(kernel, fd, false, recv)
	sys.SetBuffer(kernel, fd, true, send)
}
