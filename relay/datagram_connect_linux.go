package relay

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/stats"
)

var errNoDatagrams = errors.New("relay: the upstream of a datagram flow is not a datagram address")

// open connects a flow for the first time. If that fails, it returns the flow's cause, and why its messages are dropped.
func (d *datagrams) open(f *datagramFlow) (stats.Drop, Cause) {
	switch c := d.connect(f); c {
	case CauseNone:
	case CauseNoDescriptors, CauseNoPorts:
		return stats.DropNoRoom, c
	default:
		return stats.DropRefused, c
	}
	d.rearm(f)
	if d.keep != nil {
		d.keep.add(f.ref(), d.loop.Now)
	}
	return 0, CauseNone
}

// connect asks the hook for the next upstream until a socket is connected to
// one. CauseNone: it is.
func (d *datagrams) connect(f *datagramFlow) Cause {
	for range attemptsAtOnce {
		to := d.ask(f)
		if to == nil {
			break
		}
		if d.use(f, to) {
			return CauseNone
		}
	}
	switch {
	case errors.Is(f.err, sys.EMFILE), errors.Is(f.err, sys.ENFILE):
		return CauseNoDescriptors
	case errors.Is(f.err, errNoPort):
		return CauseNoPorts
	}
	return CauseNoUpstream
}

// ask asks the hook for the next upstream; nil: there is none.
func (d *datagrams) ask(f *datagramFlow) *Addr {
	if f.settings != nil {
		f.settings.preface.b = f.settings.preface.b[:0]
	}
	d.choosing = f
	to := f.cfg.Hooks.Upstream(&f.Flow, int(f.attempts))
	d.choosing = nil
	if to != nil && f.prefaced() {
		f.settings.preface.each = f.dialConfig().PrefaceEach
	}
	return to
}

// use begins the flow's life with an upstream, and reports whether it is connected to it.
func (d *datagrams) use(f *datagramFlow, to *Addr) bool {
	l := d.loop
	f.to = to
	f.attempts++
	f.since = l.Now
	f.requests, f.answers, f.drops = 0, 0, 0
	if to.Network.BuiltIn() {
		f.echo = to.Network == Echo
		d.giveDescriptor(f)
		f.connect = max(1, l.Now-f.start)
		return true
	}
	if err := d.dial(f); err != nil {
		d.attemptFailed(f, err)
		return false
	}
	d.loopStats.Connects++
	f.connect = max(1, l.Now-f.start)
	return true
}

// attemptFailed closes the attempt's socket and calls the hook.
func (d *datagrams) attemptFailed(f *datagramFlow, err error) {
	d.leaveUpstream(f)
	d.failed(f, f.to, d.loop.Now-f.since, err)
}

// leaveUpstream closes the socket towards an upstream, because the flow goes elsewhere.
func (d *datagrams) leaveUpstream(f *datagramFlow) {
	if f.kept { // the key of its socket is the next one's
		if f.fd >= 0 {
			d.loop.Unwatch(int(f.fd)) // the holder has the socket too
		}
		d.dropFlow(f)
		d.keep.add(f.ref(), d.loop.Now)
	}
	d.closeUpstream(f, false)
}

// failed tells the hook that an attempt has failed.
func (d *datagrams) failed(f *datagramFlow, to *Addr, took time.Duration, err error) {
	f.err = err
	d.loopStats.ConnectErrors++
	if hook := f.cfg.Hooks.Connected; hook != nil {
		hook(&f.Flow, to, took, err)
	}
}

// errNoPort is as for streams that find no port (connect(2)): it says nothing about the upstream.
var errNoPort = fmt.Errorf("no local port is free, or has been silent for %v: %w", restLeast, sys.EADDRNOTAVAIL)

// dial connects a socket to f.to. That does not block.
func (d *datagrams) dial(f *datagramFlow) error {
	if !f.to.Network.Datagrams() {
		return errNoDatagrams
	}
	if err := sockaddr(&d.address, *f.to); err != nil {
		return err
	}
	if f.reserved == 0 && !d.takeDescriptor(f) {
		return sys.EMFILE
	}
	f.reserved = 1
	err := d.socket(f, &d.address)
	for range 2 {
		if !scarce(err) {
			break
		}
		if errors.Is(err, sys.EMFILE) || errors.Is(err, sys.ENFILE) {
			if !d.freeDescriptor(f) {
				break
			}
		} else if !d.freePort(f) {
			return errNoPort
		}
		err = d.socket(f, &d.address)
	}
	if err != nil {
		return err
	}
	d.setRuns(f, up, d.address.Family(), f.toV6())
	return nil
}

func (d *datagrams) socket(f *datagramFlow, to *sys.Sockaddr) error {
	kernel := d.shared.kernel
	fd, e := kernel.Datagram(to.Family())
	if e != 0 {
		return e
	}
	d.descriptors.opened(1)
	err := d.setUp(f, fd, to)
	if err == nil {
		if e = kernel.Connect(fd, to); e == 0 {
			f.fd = int32(fd)
			e = d.loop.Watch(fd, f.events(), f.ref().Token(sideUpstream))
		}
		if e != 0 {
			err = e
		}
	}
	if err != nil {
		d.descriptors.closing(1)
		kernel.Close(fd)
		f.fd = -1
	}
	return err
}

// setUp prepares an upstream's socket. Where one of the options fails that only
// make it better, it works without it.
func (d *datagrams) setUp(f *datagramFlow, fd int, to *sys.Sockaddr) error {
	how, kernel := f.dialConfig(), d.shared.kernel
	if to.Family() == sys.Unix {
		if e := kernel.Bind(fd, &d.unnamed); e != 0 {
			return e
		}
		return nil
	}
	if d.gro {
		sys.SetGRO(kernel, fd, true)
	}
	sys.SetRecvDrops(kernel, fd)
	recv := how.Socket.RecvBuffer
	if recv == 0 {
		recv = upstreamRecvBuffer
	}
	sys.SetRecvBuffer(kernel, fd, recv)
	if how.Socket.SendBuffer > 0 {
		sys.SetBuffers(kernel, fd, 0, how.Socket.SendBuffer)
	}
	if err := d.prepareSocket(fd, socketKind{UDP, to.Family(), true}, how, &f.Flow); err != nil {
		return err
	}
	f.receiveTOS(kernel, fd, to.Family())
	return nil
}

// unreachable is called when the upstream's socket reports that datagrams do
// not arrive; away: because this host has no route there. It reports whether the flow goes on, which the caller ends if not, and
// whether it does so with another socket.
func (d *datagrams) unreachable(f *datagramFlow, e sys.Errno, away bool) (goesOn, moved bool) {
	err := error(e)
	if away {
		err = os.NewSyscallError("send", e)
	} else {
		d.stats.ICMPErrors++
	}
	switch f.cfg.Datagram.OnUnreachable {
	case UnreachableIgnore:
		f.err = err
		if hook := f.cfg.Hooks.Connected; hook != nil {
			hook(&f.Flow, f.to, d.loop.Now-f.since, err)
		}
		return true, false
	case UnreachableEnd:
		d.attemptFailed(f, err)
		return false, false
	}
	if away {
		return d.withoutRoute(f, err)
	}
	d.attemptFailed(f, err)
	return d.connect(f) == CauseNone, true
}

// withoutRoute goes on to an upstream that this host has a route to. If the hook returns the flow's own again, nothing changes: it has the
// socket by which it goes on when the route is back, and the upstream knows it by that socket's port. So the socket is closed only once
// there is a route to another one, or to its own from another address of this host: its own address is gone then.
func (d *datagrams) withoutRoute(f *datagramFlow, err error) (goesOn, moved bool) {
	d.failed(f, f.to, d.loop.Now-f.since, err)
	for range attemptsAtOnce {
		to := d.ask(f)
		if to == nil {
			break
		}
		from, err := d.tryRoute(f, to)
		switch own := *to == *f.to; {
		case own && (err != nil || !from.IsValid() || from == d.localOf(int(f.fd))):
			if f.prefaced() && !f.settings.preface.each && f.requests > 0 {
				f.settings.preface.b = f.settings.preface.b[:0] // it has had it
			}
			return true, false
		case err != nil:
			f.attempts++
			d.failed(f, to, 0, err)
		default:
			d.leaveUpstream(f)
			return d.use(f, to) || d.connect(f) == CauseNone, true
		}
	}
	return false, false
}

// tryRoute returns from which address of this host there is a route to an upstream, or why there is none. That there is no descriptor and
// no port to try it with says nothing of the route; the address is not valid then.
func (d *datagrams) tryRoute(f *datagramFlow, to *Addr) (from netip.Addr, err error) {
	if to.Network != UDP {
		return from, nil
	}
	if err := sockaddr(&d.address, *to); err != nil {
		return from, err
	}
	kernel, family := d.shared.kernel, d.address.Family()
	fd, e := kernel.Datagram(family)
	if e != 0 {
		return from, nil
	}
	defer kernel.Close(fd)
	if err = d.prepareSocket(fd, socketKind{UDP, family, true}, f.dialConfig(), &f.Flow); err == nil {
		if e = kernel.Connect(fd, &d.address); e == 0 {
			return d.localOf(fd), nil
		}
		err = e
	}
	if scarce(err) {
		return from, nil
	}
	return from, err
}

// localOf returns the address of this host that a socket sends from.
func (d *datagrams) localOf(fd int) netip.Addr {
	var sa sys.Sockaddr
	if d.shared.kernel.LocalAddr(fd, &sa) != 0 {
		return netip.Addr{}
	}
	return sa.AddrPort().Addr()
}

// away reports whether e, the error of a send, says that this host has no route to the flow's upstream, which knows nothing of that. A
// firewall's ICMP message that came before says EHOSTUNREACH, too (code 13; icmp_err_convert), so the kernel is asked for the route.
func (d *datagrams) away(f *datagramFlow, e sys.Errno) bool {
	if e != sys.ENETUNREACH && e != sys.EHOSTUNREACH && e != sys.ENETDOWN {
		return false
	}
	from, err := d.tryRoute(f, f.to)
	return err != nil || !from.IsValid() || from != d.localOf(int(f.fd))
}

// isUnreachable reports whether e is an ICMP error or the like, as opposed to an error of
// the send itself. A socket reports it once, on whatever call comes next (udp(7), unix(7)).
func isUnreachable(e sys.Errno) bool {
	switch e {
	case sys.ECONNREFUSED, sys.EHOSTUNREACH, sys.ENETUNREACH, sys.EHOSTDOWN, sys.ENONET, sys.ENETDOWN, sys.ENOPROTOOPT, sys.EPROTO, sys.EPIPE, sys.ENOTCONN,
		sys.ECONNRESET, sys.EACCES, sys.EOPNOTSUPP:
		return true
	}
	return false
}
