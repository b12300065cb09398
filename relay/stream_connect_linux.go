package relay

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/sys"
)

var errZeroAddr = errors.New("relay: Hooks.Upstream returned the zero Addr")

// attemptsMost is how many attempts to connect there are before a flow ends for lack of an
// upstream. Hooks.Upstream documents it.
const attemptsMost = 32

// toUpstream goes on with a flow for which no upstream was tried yet.
func (s *streams) toUpstream(f *streamFlow) {
	f.goesOn()
	f.state = streamConnecting
	s.connect(f)
}

// goesOn notes that replies so far were not the last thing that the client gets.
func (f *streamFlow) goesOn() {
	if f.early != nil {
		f.early.replied = false
	}
}

// connect asks the hook for the next upstream until an attempt is under way or the flow
// has to wait.
func (s *streams) connect(f *streamFlow) {
	for {
		f.state = streamChoosing
		to := f.cfg.Hooks.Upstream(&f.Flow, int(f.attempts))
		queued := f.state == streamQueued
		f.state = streamConnecting
		if to == nil {
			if queued {
				f.goesOn()
				s.enqueue(f)
			} else {
				s.noUpstream(f)
			}
			return
		}
		f.goesOn()
		f.to = to
		if err := to.wrongForStream(); err != nil {
			s.turnAway(f, CauseNoUpstream, err)
			return
		}
		f.attempts++
		f.since = s.loop.Now
		if to.Network.BuiltIn() {
			s.builtin(f)
			return
		}
		err := s.dial(f)
		if err == nil {
			s.rearm(f)
			return
		}
		if noDescriptors(err) {
			s.waitForDescriptor(f)
			return
		}
		s.attemptFailed(f, err)
		if !s.nextAttempt(f) {
			return
		}
	}
}

// wrongForStream returns an error if no stream can ever be connected to a, which is a mistake of the hook.
func (a *Addr) wrongForStream() error {
	switch {
	case a.Network == TCP && a.AddrPort.IsValid(), a.Network == Unix && a.Path != "" && a.Path != "@" && len(a.Path) <= sys.MaxUnixPath, a.Network.BuiltIn():
		return nil
	case *a == (Addr{}):
		return errZeroAddr
	case a.Network == Unix && len(a.Path) > sys.MaxUnixPath:
		return fmt.Errorf("relay: Hooks.Upstream returned the path of a Unix socket with %d bytes; the longest has %d", len(a.Path), sys.MaxUnixPath)
	}
	return fmt.Errorf("relay: Hooks.Upstream returned %v, which is not the address of a stream socket", a)
}

// nextAttempt reports whether the next attempt follows a failed one at once. If not, it
// has arranged for what follows instead.
func (s *streams) nextAttempt(f *streamFlow) bool {
	switch {
	case f.attempts >= attemptsMost:
		s.noUpstream(f)
	case f.hungUp, f.ended && f.attempts >= attemptsAtOnce:
		s.end(f, CauseClientGone, nil)
	case f.attempts >= attemptsAtOnce:
		f.state, f.since = streamRetrying, s.loop.Now
		s.rearm(f)
	default:
		return true
	}
	return false
}

// retry makes the next attempt.
func (s *streams) retry(f *streamFlow) {
	f.state = streamConnecting
	s.connect(f)
}

// dial starts one attempt and watches the upstream, whose first event is the attempt's
// outcome.
func (s *streams) dial(f *streamFlow) error {
	if err := sockaddr(&s.address, *f.to); err != nil {
		return err
	}
	d := f.dialConfig()
	fd, e := s.env.Kernel.Socket(s.address.Family(), d.Socket.MPTCP)
	if e != 0 && scarce(e) && s.loop.Spare() {
		fd, e = s.env.Kernel.Socket(s.address.Family(), d.Socket.MPTCP)
	}
	if e != 0 {
		return e
	}
	s.descriptors.opened(1)
	f.fd[sideUpstream] = int32(fd)
	f.tcp[sideUpstream] = f.to.Network == TCP
	f.straight = f.straight && !d.Socket.MPTCP
	if err := s.prepareSocket(fd, socketKind{f.to.Network, s.address.Family(), true}, d, &f.Flow); err != nil {
		return err
	}
	switch e := s.env.Kernel.Connect(fd, &s.address); e {
	case 0, sys.EINPROGRESS:
	case sys.EAGAIN:
		// A Unix listener's accept queue is full (unix(7)), and no event will
		// say when it is not.
		s.descriptors.closing(1)
		s.env.Kernel.Close(fd)
		f.fd[sideUpstream] = -1
		f.backlogFull = true
		return nil
	default:
		return e
	}
	if e := s.watch(f, sideUpstream); e != 0 {
		return e
	}
	return nil
}

// redial tries to connect to the same upstream again.
func (s *streams) redial(f *streamFlow) {
	f.backlogFull = false
	switch err := s.dial(f); {
	case err == nil:
		s.rearm(f)
	case noDescriptors(err):
		s.waitForDescriptor(f)
	default:
		s.connectFailed(f, err)
	}
}

// connectEvent handles the upstream's first event: it is connected, or has failed.
func (s *streams) connectEvent(f *streamFlow, ev uint32) {
	if ev&(sys.Err|sys.Hup) != 0 {
		if e := sys.SockError(s.env.Kernel, int(f.fd[sideUpstream])); e != 0 {
			s.connectFailed(f, e)
			return
		}
		// a connection that its peer has already ended is a connection
	}
	if ev&(sys.Out|sys.In|sys.RdHup|sys.Hup) == 0 {
		return
	}
	f.connect = s.loop.Now - f.start
	s.loopStats.Connects++
	if hook := f.cfg.Hooks.Connected; hook != nil {
		hook(&f.Flow, f.to, s.loop.Now-f.since, nil)
	}
	if x := f.early; x != nil && x.answer != nil {
		s.ask(f)
		return
	}
	s.connected(f, ev&(sys.In|sys.RdHup|sys.Hup) != 0)
}

// firstTurns gives both halves a turn, if there is something for them to do.
func (s *streams) firstTurns(f *streamFlow, answered bool) {
	gen := f.gen
	s.firstTurn(f)
	if answered && f.alive(gen) && f.wait[down] == pump.WantRead {
		s.carry(f, down)
	}
}

// connectFailed ends an attempt and goes on to the next upstream.
func (s *streams) connectFailed(f *streamFlow, err error) {
	s.attemptFailed(f, err)
	if s.nextAttempt(f) {
		s.connect(f)
	}
}

// attemptFailed closes the attempt's socket and calls the hook.
func (s *streams) attemptFailed(f *streamFlow, err error) {
	if f.tls != nil {
		f.tls.refused = false
	}
	s.closeAttempt(f, err)
	if hook := f.cfg.Hooks.Connected; hook != nil {
		hook(&f.Flow, f.to, s.loop.Now-f.since, err)
	}
}

// closeAttempt closes the attempt's socket.
func (s *streams) closeAttempt(f *streamFlow, err error) {
	f.backlogFull = false
	if fd := f.fd[sideUpstream]; fd >= 0 {
		s.descriptors.closing(1) // it is the next attempt's
		s.env.Kernel.Close(int(fd))
		f.fd[sideUpstream], f.odd[sideUpstream] = -1, false
	}
	f.err = err
	s.loopStats.ConnectErrors++
}

// noUpstream ends a flow after its last attempt.
func (s *streams) noUpstream(f *streamFlow) {
	c := CauseNoUpstream
	switch {
	case f.tls != nil && f.tls.refused:
		c = CauseUpstreamTLS
	case f.err == os.ErrDeadlineExceeded: // of connecting or of the answer
		c = CauseConnectTimeout
	case errors.Is(f.err, sys.EMFILE), errors.Is(f.err, sys.ENFILE):
		c = CauseNoDescriptors
	}
	s.turnAway(f, c, f.err)
}

// builtin relays to a built-in upstream: Echo has one direction, from the client to
// itself, and Discard one that leads nowhere.
func (s *streams) builtin(f *streamFlow) {
	f.connect = time.Nanosecond
	f.reserved--
	s.descriptors.give(1)
	f.echo = f.to.Network == Echo
	f.half[up].Sink = !f.echo
	s.start(f, false)
}

// firstTurn gives the half that reads from the client a turn, if there is something for it to do.
func (s *streams) firstTurn(f *streamFlow) {
	if f.pending || f.half[up].Held() > 0 {
		s.carry(f, up)
	}
}
