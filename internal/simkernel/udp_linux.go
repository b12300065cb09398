package simkernel

import (
	"net/netip"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// UDP: udp(7), net/ipv4/udp.c and net/ipv6/udp.c. All addresses are this host's, and of the loopback interface.

const loopbackIndex = 1

var loopback4 = netip.AddrFrom4([4]byte{127, 0, 0, 1})

func loopbackOf(ip netip.Addr) netip.Addr {
	if ip.Is4() {
		return loopback4
	}
	return netip.IPv6Loopback()
}

func (g *gram) wildcard() netip.Addr {
	if g.family == sys.IPv4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

func (g *gram) onlyV6() bool { return g.v6Only || g.has(sys.V6Only) }

// takes reports whether what is sent to an address can be a socket's; exact says that it is bound to that address.
func (g *gram) takes(to netip.AddrPort) (takes, exact bool) {
	switch ip := g.local.Addr(); {
	case g.local.Port() != to.Port():
		return false, false
	case ip == to.Addr():
		return true, true
	case !ip.IsUnspecified():
		return false, false
	case ip.Is4():
		return to.Addr().Is4(), false
	}
	return to.Addr().Is6() || !g.onlyV6(), false
}

// conflicts reports whether two sockets cannot be bound beside each other.
func (g *gram) conflicts(at netip.AddrPort, other *gram) bool {
	if at.Port() != other.local.Port() || g.has(sys.ReusePort) && other.has(sys.ReusePort) {
		return false
	}
	probe := &gram{family: g.family, local: at, options: g.options}
	mine, _ := other.takes(at)
	its, _ := probe.takes(other.local)
	if !at.Addr().IsUnspecified() && !other.local.Addr().IsUnspecified() {
		return at.Addr() == other.local.Addr()
	}
	return mine || its || at.Addr().IsUnspecified() && other.local.Addr().IsUnspecified() &&
		(at.Addr().Is4() == other.local.Addr().Is4() || !g.onlyV6() && !other.onlyV6())
}

// bind is inet_bind.
func (g *gram) bind(at netip.AddrPort) sys.Errno {
	if g.local.IsValid() {
		return sys.EINVAL
	}
	if g.family == sys.IPv4 && at.Addr().Is6() {
		return syscall.EAFNOSUPPORT
	}
	if g.family == sys.IPv6 && at.Addr() == netip.IPv4Unspecified() {
		at = netip.AddrPortFrom(netip.IPv6Unspecified(), at.Port())
	}
	if at.Port() == 0 {
		port, ok := g.w.freeGramPort()
		if !ok {
			return sys.EADDRINUSE
		}
		at = netip.AddrPortFrom(at.Addr(), port)
	}
	for _, other := range g.w.grams[at.Port()] {
		if g.conflicts(at, other) {
			return sys.EADDRINUSE
		}
	}
	if at.Addr().Is6() && !at.Addr().IsUnspecified() { // __inet6_bind
		g.v6Only = true
	}
	g.local = at
	g.joinGroup()
	g.w.grams[at.Port()] = append(g.w.grams[at.Port()], g)
	return 0
}

// gramGroup are the sockets that are bound to one address with SO_REUSEPORT: struct sock_reuseport.
type gramGroup struct{ all []*gram }

// joinGroup is udp_reuseport_add_sock.
func (g *gram) joinGroup() {
	if !g.has(sys.ReusePort) {
		return
	}
	g.group = new(gramGroup)
	for _, other := range g.w.grams[g.local.Port()] {
		if other.group != nil && other.family == g.family && other.local == g.local && other.onlyV6() == g.onlyV6() {
			g.group = other.group
			break
		}
	}
	g.group.all = append(g.group.all, g)
}

// leaveGroup is reuseport_detach_sock: the last one gets the place of the one that leaves.
func (g *gram) leaveGroup() {
	if g.group == nil {
		return
	}
	all := g.group.all
	for i, other := range all {
		if other == g {
			all[i] = all[len(all)-1]
			g.group.all = all[:len(all)-1]
			break
		}
	}
	g.group = nil
}

// choose is reuseport_select_sock: a hash of the addresses chooses a place, and the first socket from there on that is not connected
// gets what was sent.
func (group *gramGroup) choose(hash uint32) *gram {
	for i := range group.all {
		if g := group.all[(int(hash)+i)%len(group.all)]; !g.remote.IsValid() {
			return g
		}
	}
	return nil
}

func (g *gram) unbind() {
	g.leaveGroup()
	port := g.local.Port()
	all := g.w.grams[port]
	for i, other := range all {
		if other == g {
			all = append(all[:i:i], all[i+1:]...)
			break
		}
	}
	if g.w.grams[port] = all; len(all) == 0 {
		delete(g.w.grams, port)
	}
}

// freeGramPort returns a port that no socket has.
func (w *World) freeGramPort() (uint16, bool) {
	for range w.GramPorts {
		if w.gramPort++; w.gramPort < 32768 || w.gramPort >= 32768+w.GramPorts {
			w.gramPort = 32768
		}
		if len(w.grams[w.gramPort]) == 0 {
			return w.gramPort, true
		}
	}
	return 0, false
}

// autobind binds a socket that sends without being bound.
func (g *gram) autobind() sys.Errno {
	if !g.local.IsValid() && g.bind(netip.AddrPortFrom(g.wildcard(), 0)) != 0 {
		return sys.EAGAIN
	}
	return 0
}

// otherFamily returns why a socket of one version of IP cannot send to an address of the other.
func (g *gram) otherFamily(to netip.AddrPort) sys.Errno {
	ip := g.local.Addr()
	switch {
	case to.Addr().Is4() && g.onlyV6():
		return sys.ENETUNREACH
	case ip.Is4() && !ip.IsUnspecified() && to.Addr().Is6():
		return syscall.EAFNOSUPPORT
	}
	return 0
}

// connectTo is ip4_datagram_connect and ip6_datagram_connect. What is in the queue stays there.
func (g *gram) connectTo(to netip.AddrPort) sys.Errno {
	switch {
	case !to.IsValid():
		return sys.EINVAL
	case g.family == sys.IPv4 && to.Addr().Is6():
		return syscall.EAFNOSUPPORT
	}
	if e := g.otherFamily(to); e != 0 {
		return e
	}
	if e := g.autobind(); e != 0 {
		return e
	}
	if e := g.w.noRoute(to); e != 0 { // it is connected to where it was
		return e
	}
	if g.local.Addr().IsUnspecified() {
		g.leaveGroup() // udp_lib_rehash
		g.local = netip.AddrPortFrom(loopbackOf(to.Addr()), g.local.Port())
	}
	g.remote = to
	return 0
}

// Sharing returns how many UDP sockets are among those of a port of which the kernel chooses one by their number, for what clients send.
func (w *World) Sharing(port uint16) (n int) {
	for _, g := range w.grams[port] {
		if g.group != nil && g.group.choose(0) != nil {
			n++
		}
	}
	return n
}

// find returns the socket that gets what is sent from one address to another; nil: none. udp4_lib_lookup: sockets that are bound to the
// address come before those that are bound to none, and of these the connected ones; of several that share the port a hash of the
// addresses chooses.
func (w *World) find(from, to netip.AddrPort) *gram {
	var found *gram
	best := 0
	for _, g := range w.grams[to.Port()] {
		takes, exact := g.takes(to)
		if !takes || g.remote.IsValid() && g.remote != from {
			continue
		}
		score := 1
		if exact {
			score += 4
		}
		if g.remote.IsValid() {
			score += 2
		}
		if (g.family == sys.IPv4) == to.Addr().Is4() {
			score++
		}
		if score > best {
			best, found = score, g
		}
	}
	if found == nil || found.group == nil || found.remote.IsValid() {
		return found
	}
	h := uint32(2166136261)
	for _, ap := range [2]netip.AddrPort{from, to} {
		ip := ap.Addr().As16()
		for _, c := range append(ip[:], byte(ap.Port()), byte(ap.Port()>>8)) {
			h = (h ^ uint32(c)) * 16777619
		}
	}
	return found.group.choose(h >> 7)
}

// sendUDP is udp_sendmsg. An invalid to is the address that the socket is connected to, and an invalid local leaves the source to
// the kernel.
func (g *gram) sendUDP(b []byte, to netip.AddrPort, local netip.Addr, segment int, tos uint8) sys.Errno {
	if len(b) > 65535 && g.family == sys.IPv4 {
		return sys.EMSGSIZE
	}
	if !to.IsValid() {
		if to = g.remote; !to.IsValid() {
			return syscall.EDESTADDRREQ
		}
	}
	most, headers := 65535-28, 28+14
	if to.Addr().Is6() {
		most, headers = 65535-8, 48+14
	}
	switch {
	case to.Port() == 0:
		return sys.EINVAL
	case g.family == sys.IPv4 && to.Addr().Is6():
		return syscall.EAFNOSUPPORT
	}
	if e := g.otherFamily(to); e != 0 && (e == sys.ENETUNREACH || !local.IsValid()) {
		return e
	}
	if e := g.autobind(); e != 0 {
		return e
	}
	if e := g.w.noRoute(to); e != 0 { // before sock_alloc_send_skb, which takes what is pending
		return e
	}
	if len(b) > most {
		return sys.EMSGSIZE
	}
	if e := g.takeError(); e != 0 {
		return e
	}
	if g.unsent >= g.sendBuffer {
		g.blocked = true
		return sys.EAGAIN
	}
	const segmentsMost = 128 // UDP_MAX_SEGMENTS, since Linux 6.9
	if segment > 0 && len(b) > segment*segmentsMost {
		g.freed(0)
		return sys.EINVAL
	}
	from := local
	if !from.IsValid() {
		if from = g.local.Addr(); from.IsUnspecified() || from.Is4() != to.Addr().Is4() {
			from = loopbackOf(to.Addr())
		}
	}
	p := &packet{from: netip.AddrPortFrom(from, g.local.Port()), to: to, sender: g, b: b, tos: tos}
	if len(b) > segment {
		p.segment = segment
	}
	// What is longer than the device takes with its headers is cut before it: netif_skb_features.
	if p.segment == 0 || len(b)+headers < 65536 {
		g.w.fly(p)
		return 0
	}
	for _, one := range p.split() {
		g.w.fly(one)
	}
	return 0
}

// arrive is udp_rcv.
func (w *World) arrive(p *packet) {
	g := w.find(p.from, p.to)
	if g == nil {
		w.lost(p)
		// ICMP port unreachable. Only connected sockets are told, and whoever has the address of the source, which need not be
		// the sender: __udp4_lib_err.
		w.Unreachable(p.from, p.to, sys.ECONNREFUSED)
		return
	}
	if p.segment == 0 || g.has(sys.GRO) {
		g.enqueue(p)
		return
	}
	for _, one := range p.split() { // udp_queue_rcv_skb
		g.enqueue(one)
	}
}

// Unreachable has an ICMP message arrive about what was sent from one address to another, and reports whether a socket is told e:
// icmp_err_convert and icmpv6_err_convert.
func (w *World) Unreachable(from, to netip.AddrPort, e sys.Errno) bool {
	s := w.find(to, from)
	if s == nil || !s.remote.IsValid() {
		return false
	}
	s.fail(e)
	if w.Told != nil {
		w.Told(s.local, e)
	}
	return true
}

// noRoute is ip_route_output_flow and ip6_dst_lookup_flow. The route that a connected socket has found before is of no use once any route has
// changed: rt_cache_flush, fib6_get_cookie_safe.
func (w *World) noRoute(to netip.AddrPort) sys.Errno {
	if w.NoRoute == nil {
		return 0
	}
	return w.NoRoute(to)
}

// control returns the control messages that a packet arrives with.
func (g *gram) control(b []byte, p *packet) []byte {
	v6 := p.to.Addr().Is6()
	c := sys.Control{TOS: p.tos, Segment: p.segment}
	if !g.has(sys.GRO) {
		c.Segment = 0
	}
	if g.has(sys.RecvDrops) && p.dropped > 0 {
		c.Drops, c.HasDrops = p.dropped, true
	}
	if g.has(sys.RecvLocal) && !v6 || g.has(sys.RecvLocal6) && v6 {
		c.Local, c.Interface = p.to.Addr(), loopbackIndex
	}
	return sys.AppendReceived(b, &c, v6, g.has(sys.RecvTOS) && !v6 || g.has(sys.RecvTrafficClass) && v6)
}
