package simkernel

import (
	"net/netip"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// gram returns the datagram socket of a descriptor; nil: it is of something else.
func (p *Process) gram(fd int) *gram {
	if f := p.file(fd); f != nil {
		return f.gram
	}
	return nil
}

// Datagram implements [sys.Kernel].
func (p *Process) Datagram(family sys.Family) (int, sys.Errno) {
	if _, e := p.begin("datagram", 0); e != 0 {
		return -1, e
	}
	fd, e := p.install(newGramFile(p.w.newGram(family)))
	p.point("datagram")
	return fd, e
}

// RecvBatch implements [sys.Kernel].
func (p *Process) RecvBatch(fd int, family sys.Family, v *sys.Vector, from, n int) (int, sys.Errno) {
	most, e := p.beginOn("recv-batch", n, fd, wakeRead)
	if e != 0 {
		return 0, e
	}
	g := p.gram(fd)
	if g == nil {
		return 0, syscall.EBADF
	}
	var name, control [sys.ControlSize]byte
	got := 0
	for ; got < min(n, most); got++ {
		x, errno := g.next()
		if errno != 0 {
			if got == 0 {
				e = errno
			}
			break
		}
		if g.family == sys.Unix {
			v.Store(from+got, family, x.b, sys.UnixName(name[:0], x.name), nil)
		} else {
			v.Store(from+got, family, x.b, sys.PutInetAddr(name[:0], g.family, x.from), g.control(control[:0], x))
		}
	}
	p.point("recv-batch")
	return got, e
}

// SendBatch implements [sys.Kernel]. An error behind the first message is not told, and is gone: __sys_sendmmsg.
func (p *Process) SendBatch(fd int, v *sys.Vector, from, n int) (int, sys.Errno) {
	most, e := p.beginOn("send-batch", n, fd, wakeWrite)
	if e != 0 {
		return 0, e
	}
	g := p.gram(fd)
	if g == nil {
		return 0, syscall.EBADF
	}
	sent := 0
	for ; sent < min(n, most); sent++ {
		if errno := g.sendMessage(v, from+sent); errno != 0 {
			if sent == 0 {
				e = errno
			}
			break
		}
	}
	p.point("send-batch")
	return sent, e
}

func (g *gram) sendMessage(v *sys.Vector, i int) sys.Errno {
	b, name := v.AppendPayload(nil, i), v.Destination(i)
	if g.family == sys.Unix {
		if len(name) > 2 {
			return g.sendUnix(b, string(name[2:]))
		}
		return g.sendUnix(b, "")
	}
	to, _ := sys.GetAddrPort(name)
	c := sys.ParseControl(v.SentControl(i))
	segment, _ := v.Segmented(i)
	v6 := to.Addr().Is6() || !to.IsValid() && g.remote.Addr().Is6()
	if c.Local.Is6() != v6 { // of the other version of IP: it says nothing
		c.Local = netip.Addr{}
	}
	tos, ok := sys.SentTOS(v.SentControl(i), v6)
	if !ok {
		tos = g.ownTOS(to)
	}
	return g.sendUDP(b, to, c.Local, segment, tos)
}

// ownTOS is the TOS byte of what a socket sends.
func (g *gram) ownTOS(to netip.AddrPort) uint8 {
	o := sys.TypeOfService
	if to.Addr().Is6() || !to.IsValid() && g.remote.Addr().Is6() {
		o = sys.TrafficClass
	}
	for k, v := range g.options {
		if o.Is(k[0], k[1]) {
			return uint8(v)
		}
	}
	return 0
}

// send is send(2) of a connected socket.
func (g *gram) send(b []byte) (int, sys.Errno) {
	b = append([]byte(nil), b...)
	var e sys.Errno
	if g.family == sys.Unix {
		e = g.sendUnix(b, "")
	} else {
		e = g.sendUDP(b, netip.AddrPort{}, netip.Addr{}, 0, g.ownTOS(netip.AddrPort{}))
	}
	if e != 0 {
		return 0, e
	}
	return len(b), 0
}

func (g *gram) connect(sa *sys.Sockaddr) sys.Errno {
	if g.family == sys.Unix {
		return g.connectUnix(unixName(sa))
	}
	return g.connectTo(sa.AddrPort())
}

func (g *gram) bindTo(sa *sys.Sockaddr) sys.Errno {
	if g.family == sys.Unix {
		return g.bindUnix(unixName(sa))
	}
	return g.bind(sa.AddrPort())
}

func unixName(sa *sys.Sockaddr) string { return string(sa.Raw()[2:]) }

// localAddr and peerAddr are getsockname(2) and getpeername(2).
func (g *gram) localAddr(sa *sys.Sockaddr) sys.Errno {
	var b [sys.ControlSize]byte
	switch {
	case g.family != sys.Unix:
	case g.name == "":
		sa.SetUnnamed()
		return 0
	default:
		sa.SetRaw(sys.UnixName(b[:0], g.name))
		return 0
	}
	at := g.local
	if !at.IsValid() {
		at = netip.AddrPortFrom(g.wildcard(), 0)
	}
	sa.SetRaw(sys.PutInetAddr(b[:0], g.family, at))
	return 0
}

func (g *gram) peerAddr(sa *sys.Sockaddr) sys.Errno {
	var b [sys.ControlSize]byte
	switch {
	case g.family == sys.Unix && g.peer != nil:
		sa.SetRaw(sys.UnixName(b[:0], g.peer.name))
	case g.family != sys.Unix && g.remote.IsValid():
		sa.SetRaw(sys.PutInetAddr(b[:0], g.family, g.remote))
	default:
		return syscall.ENOTCONN
	}
	return 0
}

// Memory implements [sys.Kernel].
func (p *Process) Memory(fd int) (bytes int64, drops uint32, errno sys.Errno) {
	// It is not counted: an engine that estimates how much memory it uses asks some of its sockets, at random.
	switch f := p.file(fd); {
	case f == nil:
		return 0, 0, syscall.EBADF
	case f.gram != nil:
		return int64(f.gram.received + f.gram.unsent), f.gram.drops, 0
	case f.socket != nil:
		in, _ := f.socket.readQueued()
		return int64(in), 0, 0
	}
	return 0, 0, sys.ENOTSOCK
}
