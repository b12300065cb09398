package relay

import (
	"errors"
	"time"

	"github.com/penstock/penstock/internal/segment"
	"github.com/penstock/penstock/internal/sys"
)

var (
	errNoDatagrams = errors.New("relay: the upstream of a datagram flow is no datagram address")
	errNoStream    = errors.New("relay: the upstream of a stream flow is no stream address")
)

// begin starts the flow of a new client, whose first message has n bytes in
// count datagrams. Where it comes to nothing the message is dropped, and nil returned.
func (d *dgrams) begin(p *dgramPort, name []byte, c *sys.Control, n, count int) *session {
	refuse := func(why Drop) *session {
		d.drop(nil, toB, why, n, count)
		return nil
	}
	l := d.loop
	switch {
	case p.draining:
		return refuse(DropDraining)
	case p.family != sys.Unix && !returnable(name):
		return refuse(DropNoReturn)
	case !d.allowed():
		return refuse(DropLimited)
	case !d.reserve():
		return refuse(DropNoRoom)
	}
	s := d.sessions.take()
	s.fd, s.port, s.first, s.width = -1, p, -1, 1
	s.cfg = p.listener.cfg.Load()
	s.start, s.since, s.active = l.now, l.now, l.now
	s.idle, s.life = s.cfg.Timeouts.Idle, s.cfg.Timeouts.Life
	if p.family == sys.Unix {
		s.path = string(name)
		p.paths[s.path] = s
	} else {
		s.nameLen = uint8(copy(s.name[:], name))
		ap, _ := sys.GetAddrPort(name)
		s.v6 = ap.Addr().Is6()
		if p.wild {
			s.local = c.Local
			if c.Local.IsLinkLocalUnicast() {
				s.index2 = uint32(c.Interface)
			}
		}
		p.flows[p.key(name, c.Local)] = s
	}
	d.setLimit(s, toA, p.family, s.v6)
	d.silent.add(s)
	d.stats.Begun++
	l.stats.Accepted++
	if admit := s.cfg.Hooks.Admit; admit != nil {
		if c := admit(d.hookFlow(s)); c != CauseNone {
			d.end(s, c.or(CauseRefused), nil)
			return refuse(DropRefused)
		}
	}
	if c := d.connect(s); c != CauseNone {
		d.end(s, c, s.err)
		return refuse(DropRefused)
	}
	d.rearm(s)
	return s
}

// returnable tells whether a reply can be sent to name: an IP address and a port that is not 0.
func returnable(name []byte) bool {
	ap, _ := sys.GetAddrPort(name)
	return ap.Port() != 0
}

// age is the list that s is in.
func (d *dgrams) age(s *session) *ages {
	if s.answered {
		return &d.answered
	}
	return &d.silent
}

// connect asks the hook for the next upstream until a socket is connected to
// one. CauseNone: it is.
func (d *dgrams) connect(s *session) Cause {
	l := d.loop
	for range attemptsAtOnce {
		to := s.cfg.Hooks.Upstream(d.hookFlow(s), int(s.attempts))
		if to == nil {
			break
		}
		s.to = to
		s.attempts++
		s.since = l.now
		s.requests, s.answers, s.drops = 0, 0, 0
		if to.Network == Echo || to.Network == Discard {
			s.echo = to.Network == Echo
			s.connect = max(1, l.now-s.start)
			return CauseNone
		}
		err := d.dial(s)
		if err == nil {
			l.stats.Connects++
			s.connect = max(1, l.now-s.start)
			return CauseNone
		}
		d.attemptFailed(s, err)
	}
	if errors.Is(s.err, sys.EMFILE) || errors.Is(s.err, sys.ENFILE) {
		return CauseNoDescriptors
	}
	return CauseNoUpstream
}

// attemptFailed closes the attempt's socket and tells the hook.
func (d *dgrams) attemptFailed(s *session, err error) {
	d.closeUpstream(s)
	s.err = err
	d.loop.stats.ConnectErrors++
	if hook := s.cfg.Hooks.Connected; hook != nil {
		hook(d.hookFlow(s), s.to, d.loop.now-s.since, err)
	}
}

// dial connects a socket to s.to, which waits for nobody.
func (d *dgrams) dial(s *session) error {
	l := d.loop
	if !s.to.Network.datagrams() {
		return errNoDatagrams
	}
	if err := sockaddr(&l.peer, *s.to); err != nil {
		return err
	}
	err := d.socket(s, &l.peer)
	for range 2 {
		if !scarce(err) || !d.freeSocket(s) {
			break
		}
		err = d.socket(s, &l.peer)
	}
	if err != nil {
		return err
	}
	ip := s.to.AddrPort.Addr()
	d.setLimit(s, toB, l.peer.Family(), ip.Is6() && !ip.Is4In6())
	return nil
}

// scarce reports whether descriptors or ports have run out. For ports the error is
// EAGAIN where connecting chooses one (ip(7)), and EADDRINUSE where a source
// address is bound.
func scarce(err error) bool {
	e, ok := errors.AsType[sys.Errno](err)
	return ok && (e == sys.EMFILE || e == sys.ENFILE || e == sys.EAGAIN || e == sys.EADDRINUSE)
}

func (d *dgrams) socket(s *session, to *sys.Sockaddr) error {
	l := d.loop
	kernel := l.env.Kernel
	fd, e := kernel.Datagram(to.Family())
	if e != 0 {
		return e
	}
	err := d.setUp(s, fd, to)
	if err == nil {
		if e = kernel.Connect(fd, to); e == 0 {
			s.fd = int32(fd)
			e = sys.EpollAdd(l.epoll, fd, s.events(), s.token())
		}
		if e != 0 {
			err = e
		}
	}
	if err != nil {
		kernel.Close(fd)
		s.fd = -1
	}
	return err
}

// setUp prepares an upstream's socket. Where one of the options fails that only
// make it better, it works without it.
func (d *dgrams) setUp(s *session, fd int, to *sys.Sockaddr) error {
	f := d.hookFlow(s)
	how := f.dialConfig()
	if to.Family() == sys.Unix {
		var own sys.Sockaddr
		own.SetUnnamed()
		if e := sys.Bind(fd, &own); e != 0 {
			return e
		}
		return nil
	}
	if d.gro {
		sys.SetGRO(uintptr(fd), true)
	}
	sys.SetRecvDrops(uintptr(fd))
	recv := how.Socket.RecvBuffer
	if recv == 0 {
		recv = upstreamRecvBuffer
	}
	sys.SetRecvBuffer(fd, recv)
	if how.Socket.SendBuffer > 0 {
		sys.SetBuffers(fd, 0, how.Socket.SendBuffer)
	}
	return d.loop.prepare(fd, socketKind{UDP, to.Family(), true}, how, f)
}

// unreachable is called when the upstream's socket reports that datagrams do
// not arrive. It tells whether the flow goes on; if not the caller ends it.
func (d *dgrams) unreachable(s *session, e sys.Errno) bool {
	d.stats.ICMPErrors++
	switch s.cfg.Datagram.OnUnreachable {
	case UnreachableIgnore:
		s.err = e
		if hook := s.cfg.Hooks.Connected; hook != nil {
			hook(d.hookFlow(s), s.to, d.loop.now-s.since, e)
		}
		return true
	case UnreachableEnd:
		d.attemptFailed(s, e)
		return false
	}
	d.attemptFailed(s, e)
	return d.connect(s) == CauseNone
}

// isUnreachable tells an ICMP error, or the like, from an error of the send
// itself: sockets report it once, on whatever call comes next (udp(7), unix(7)).
func isUnreachable(e sys.Errno) bool {
	switch e {
	case sys.ECONNREFUSED, sys.EHOSTUNREACH, sys.ENETUNREACH, sys.EHOSTDOWN, sys.ENONET, sys.ENETDOWN, sys.ENOPROTOOPT, sys.EPROTO, sys.EPIPE, sys.ENOTCONN,
		sys.ECONNRESET, sys.EACCES, sys.EOPNOTSUPP:
		return true
	}
	return false
}

// answer notes that the upstream has sent count datagrams.
func (d *dgrams) answer(s *session, count int) {
	s.answers += int64(count)
	waited := d.loop.now - s.active // since the client's last datagram, before the first answer
	s.active = d.loop.now
	if s.answered {
		d.answered.touch(s)
	} else {
		d.silent.remove(s)
		s.answered = true
		d.answered.add(s)
		s.firstByte = max(1, waited)
		s.port.answers.add(d.loop.now, s.firstByte)
		if hook := s.cfg.Hooks.Connected; hook != nil && !s.builtin() {
			hook(d.hookFlow(s), s.to, s.firstByte, nil)
		}
	}
	if s.full() {
		d.finished = append(d.finished, s.ref())
	}
}

// full tells whether the flow has had all its replies.
func (s *session) full() bool {
	n := s.cfg.Datagram.Replies
	return n > 0 && s.hold == nil && s.answers >= s.requests*int64(n)
}

// due tells when the flow has been idle for too long, or has lived for too
// long; CauseNone: never.
func (s *session) due() (time.Duration, Cause) {
	at, c := time.Duration(0), CauseNone
	switch {
	case s.idle == 0:
		at, c = s.active+DefaultDatagramIdle, CauseIdle
	case s.idle > 0:
		at, c = after(s.active, s.idle), CauseIdle
	}
	if end := after(s.start, s.life); s.life > 0 && (c == CauseNone || end < at) {
		at, c = end, CauseLife
	}
	return at, c
}

func (d *dgrams) rearm(s *session) {
	if at, c := s.due(); c != CauseNone {
		d.wheel.add(s.index, tickAt(at))
	}
}

func (d *dgrams) expire(s *session) {
	at, c := s.due()
	switch {
	case c == CauseNone:
	case at > d.loop.seen:
		d.rearm(s)
	default:
		d.end(s, c, nil)
	}
}

// exceeds tells whether a direction has used up its share of the bandwidth; if
// not, n more bytes are counted. One message may exceed the share, for it may be
// longer than a burst: the next ones pay for it.
func (d *dgrams) exceeds(s *session, dir, n int) bool {
	if s.extra == nil || s.extra.pace.rate == 0 {
		return false
	}
	if s.extra.pace.left(dir, d.loop.now) == 0 {
		return true
	}
	s.extra.pace.spend(dir, int64(n))
	return false
}

// end closes a flow, gives home what it held, and hands out its record.
func (d *dgrams) end(s *session, c Cause, err error) {
	l, p := d.loop, s.port
	if s.pending > 0 {
		d.back.flush()
		p.out.flush()
		p.out.forget(s)
	}
	d.dropHeld(s)
	for i := s.first; i >= 0; i = d.batch[i].next {
		m := &d.batch[i]
		d.drop(s, toB, DropEnded, len(m.b), segment.Count(len(m.b), m.seg))
	}
	done := s.cfg.Hooks.Done
	if done != nil {
		d.fill(s, c, err)
	}
	d.closeUpstream(s)
	if p.family == sys.Unix {
		delete(p.paths, s.path)
	} else {
		delete(p.flows, p.key(s.name[:s.nameLen], s.local))
	}
	if p.recent == s {
		p.recent = nil
	}
	d.age(s).remove(s)
	d.wheel.remove(s.index)
	if s.extra != nil {
		*s.extra = extra{}
		l.engine.extras.Put(s.extra)
	}
	d.sessions.put(s)
	l.stats.Ended[c]++
	if done != nil {
		done(&l.record)
		l.record = Record{}
	}
	l.engine.dgramFlows.Add(-1) // after its record: Drain returns when none is left
	l.flowEnded()
}

// fill writes the flow's account into the loop's record.
func (d *dgrams) fill(s *session, c Cause, err error) {
	l := d.loop
	l.record = Record{
		ID: s.id(l), Listener: s.port.listener, Value: s.value, Peer: s.peer(), Attempts: int(s.attempts),
		Start: l.engine.start.Add(s.start), Connect: s.connect, FirstByte: s.firstByte, Duration: l.now - s.start, Cause: c, Err: err,
		Up: s.transfer(toB), Down: s.transfer(toA),
	}
	l.record.Client = l.record.Peer
	if s.client != nil {
		l.record.Client = *s.client
	}
	if s.to != nil {
		l.record.Upstream = *s.to
	}
}
