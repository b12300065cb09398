package relay

import (
	"errors"
	"fmt"

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
	l := d.loop
	for range attemptsAtOnce {
		if f.settings != nil {
			f.settings.preface.b = f.settings.preface.b[:0]
		}
		d.choosing = f
		to := f.cfg.Hooks.Upstream(&f.Flow, int(f.attempts))
		d.choosing = nil
		if to == nil {
			break
		}
		if f.prefaced() {
			f.settings.preface.each = f.dialConfig().PrefaceEach
		}
		f.to = to
		f.attempts++
		f.since = l.Now
		f.requests, f.answers, f.drops = 0, 0, 0
		if to.Network.BuiltIn() {
			f.echo = to.Network == Echo
			d.giveDescriptor(f)
			f.connect = max(1, l.Now-f.start)
			return CauseNone
		}
		err := d.dial(f)
		if err == nil {
			d.loopStats.Connects++
			f.connect = max(1, l.Now-f.start)
			return CauseNone
		}
		d.attemptFailed(f, err)
	}
	switch {
	case errors.Is(f.err, sys.EMFILE), errors.Is(f.err, sys.ENFILE):
		return CauseNoDescriptors
	case errors.Is(f.err, errNoPort):
		return CauseNoPorts
	}
	return CauseNoUpstream
}

// attemptFailed closes the attempt's socket and calls the hook.
func (d *datagrams) attemptFailed(f *datagramFlow, err error) {
	if f.kept { // the key of its socket is the next one's
		if f.fd >= 0 {
			d.loop.Unwatch(int(f.fd)) // the holder has the socket too
		}
		d.dropFlow(f)
		d.keep.add(f.ref(), d.loop.Now)
	}
	d.closeUpstream(f, false)
	f.err = err
	d.loopStats.ConnectErrors++
	if hook := f.cfg.Hooks.Connected; hook != nil {
		hook(&f.Flow, f.to, d.loop.Now-f.since, err)
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
		f.err = e
		if hook := f.cfg.Hooks.Connected; hook != nil {
			hook(&f.Flow, f.to, d.loop.Now-f.since, e)
		}
		return true
	case UnreachableEnd:
		d.attemptFailed(f, e)
		return false
	}
	d.attemptFailed(f, e)
	return d.connect(f) == CauseNone
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
