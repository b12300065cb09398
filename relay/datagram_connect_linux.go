package relay

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
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
	f.countAttempt()
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

// countAttempt counts an attempt to connect. A flow that lasts may make more of them than there are numbers for.
func (f *datagramFlow) countAttempt() {
	if f.attempts < math.MaxUint16 {
		f.attempts++
	}
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
// not arrive. It reports whether the flow goes on; if not the caller ends it.
func (d *datagrams) unreachable(f *datagramFlow, e sys.Errno) bool {
	d.stats.ICMPErrors++
	switch f.cfg.Datagram.OnUnreachable {
	case UnreachableIgnore:
		d.ignore(f, d.loop.Now-f.since, e)
		return true
	case UnreachableEnd:
		d.attemptFailed(f, e)
		return false
	}
	d.attemptFailed(f, e)
	return d.connect(f) == CauseNone
}

// ignore tells the hook of an error by which nothing changes.
func (d *datagrams) ignore(f *datagramFlow, took time.Duration, err error) {
	f.err = err
	if hook := f.cfg.Hooks.Connected; hook != nil {
		hook(&f.Flow, f.to, took, err)
	}
}

// away reports whether e, the error of a send, says that this host has no route to the flow's upstream, which knows nothing of that: its
// link is down, the route is gone or forbids it (ip-route(8)), or the socket's own address or device is gone. A firewall's ICMP message that came
// before says the same (icmp_err_convert), so the kernel is asked: connecting the socket to where it is connected looks for the route and
// changes nothing (__ip4_datagram_connect, __ip6_datagram_connect; see docs/kernel.md).
func (d *datagrams) away(f *datagramFlow, e sys.Errno) bool {
	return f.to.Network == UDP && saysNoRoute(e) && (sockaddr(&d.address, *f.to) != nil || d.shared.kernel.Connect(int(f.fd), &d.address) != 0)
}

// saysNoRoute reports whether e, the error of a send, may say that this host has no route.
func saysNoRoute(e sys.Errno) bool {
	switch e {
	case sys.ENETUNREACH, sys.EHOSTUNREACH, sys.ENETDOWN, sys.EACCES, sys.EINVAL, sys.ENODEV:
		return true
	}
	return false
}

// askAgain is how often a flow without a route asks for another upstream: that takes system calls and the hook, and its client may send
// much. Each send still looks for the route itself.
const askAgain = time.Second

// wasAway reports whether the flow has had no route a moment ago.
func (d *datagrams) wasAway(f *datagramFlow) bool {
	s := f.settings
	return s != nil && s.asked > 0 && d.loop.Now-s.asked < askAgain
}

// withoutRoute goes on to an upstream that this host has a route to. It reports whether the flow goes on, which the caller ends if not, and
// whether it does so with another socket. If the hook returns the flow's own upstream again, nothing changes: it has the
// socket by which it goes on when the route is back, and the upstream knows it by that socket's port. So the socket is closed only once
// there is a route to another one, or to its own for a new socket: its own address is gone then.
func (d *datagrams) withoutRoute(f *datagramFlow, e sys.Errno) (goesOn, moved bool) {
	if d.wasAway(f) {
		return true, false
	}
	d.settingsOf(f).asked = d.loop.Now
	err := os.NewSyscallError("send", e)
	switch f.cfg.Datagram.OnUnreachable {
	case UnreachableIgnore:
		d.ignore(f, 0, err)
		return true, false
	case UnreachableEnd:
		d.attemptFailed(f, err)
		return false, false
	}
	d.failed(f, f.to, 0, err)
	tried, before := f.attempts, f.prefaceNow()
	for range attemptsAtOnce {
		to := d.ask(f)
		if to == nil {
			return false, false
		}
		own := *to == *f.to
		err := d.tryRoute(f, to)
		if !own && scarce(err) && d.tryRouteByOwn(f, to) {
			err = nil
		}
		switch {
		case own && (err != nil || !d.away(f, e)):
			if f.prefaced() && !f.settings.preface.each && f.requests > 0 {
				f.settings.preface.b = f.settings.preface.b[:0] // it has had it
			}
			d.stays(f, tried)
			return true, false
		case err != nil:
			f.countAttempt()
			d.failed(f, to, 0, err)
		default:
			d.leaveUpstream(f)
			return d.use(f, to) || d.connect(f) == CauseNone, true
		}
	}
	f.settings.preface = before // the hook has not come back to the flow's own upstream yet
	d.stays(f, tried)
	return true, false
}

// stays is called when a flow has asked for another upstream in vain, and had made that many attempts before.
func (d *datagrams) stays(f *datagramFlow, tried uint16) {
	if f.attempts != tried {
		f.Changed() // the next process knows of them, too
	}
}

// prefaceNow returns a copy of what is in front of a flow's datagrams.
func (f *datagramFlow) prefaceNow() preface {
	p := f.settings.preface
	p.b = slices.Clone(p.b)
	return p
}

// tryRoute returns why a new socket of this host has no route to an upstream, or cannot be connected to that of a Unix upstream.
func (d *datagrams) tryRoute(f *datagramFlow, to *Addr) error {
	if !to.Network.Datagrams() {
		return nil
	}
	if err := sockaddr(&d.address, *to); err != nil {
		return err
	}
	kernel, family := d.shared.kernel, d.address.Family()
	fd, e := kernel.Datagram(family)
	if (e == sys.EMFILE || e == sys.ENFILE) && d.spareRest() {
		fd, e = kernel.Datagram(family)
	}
	if e != 0 {
		return e
	}
	defer kernel.Close(fd)
	if family != sys.Unix {
		if err := d.prepareSocket(fd, socketKind{UDP, family, true}, f.dialConfig(), &f.Flow); err != nil {
			return err
		}
	}
	if e := kernel.Connect(fd, &d.address); e != 0 {
		return e
	}
	return nil
}

// tryRouteByOwn reports whether this host has a route to an upstream, which is d.address, where there is no descriptor or no port for a new
// socket: it connects the flow's own socket there. If that fails, the socket is connected to where it was. If it succeeds, the flow must leave the
// socket; if a process dies in between, the flow ends as crashed. A socket of another family cannot be asked, nor one of another interface: even
// an attempt to connect to a link-local address binds it to that one for good (__ip6_datagram_connect). Then the flow stays.
func (d *datagrams) tryRouteByOwn(f *datagramFlow, to *Addr) bool {
	var own sys.Sockaddr
	if sockaddr(&own, *f.to) != nil || f.to.Network != UDP || own.Family() != d.address.Family() {
		return false
	}
	if zone := to.AddrPort.Addr().Zone(); zone != "" && zone != f.to.AddrPort.Addr().Zone() {
		return false
	}
	var flags uint32
	if f.kept {
		flags = d.record(f).Flags()
		d.record(f).SetFlags(flags &^ recordHeld)
	}
	if d.shared.kernel.Connect(int(f.fd), &d.address) == 0 {
		return true
	}
	if f.kept {
		d.record(f).SetFlags(flags)
	}
	return false
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
