package relay

import (
	"errors"
	"os"
	"time"

	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/sys"
)

const (
	// attemptsAtOnce is how many attempts to connect follow each other at once;
	// attemptsMost is how many there are before a flow ends for want of an
	// upstream. Hooks.Upstream documents both.
	attemptsAtOnce = 8
	attemptsMost   = 32
	// retryFirst is the pause before the first of the others. Each is twice as
	// long as the one before, up to retryMost.
	retryFirst = tick
	retryMost  = time.Second
)

// connect asks the hook for the next upstream until an attempt is under way, or
// the next one has to wait.
func (l *loop) connect(f *Flow) {
	for {
		f.state = flowChoosing
		to := f.cfg.Hooks.Upstream(f, int(f.attempts))
		queued := f.state == flowParked
		f.state = flowConnecting
		if to == nil {
			if queued {
				l.park(f)
			} else {
				l.noUpstream(f)
			}
			return
		}
		f.to = to
		f.attempts++
		f.since = l.now
		if to.Network == Echo || to.Network == Discard {
			l.builtin(f)
			return
		}
		err := l.dial(f)
		if err == nil {
			l.rearm(f)
			return
		}
		if noDescriptors(err) {
			l.starve(f)
			return
		}
		l.attemptFailed(f, err)
		if !l.another(f) {
			return
		}
	}
}

// another decides what follows a failed attempt: true, the next one at once.
func (l *loop) another(f *Flow) bool {
	switch {
	case f.attempts >= attemptsMost:
		l.noUpstream(f)
	case f.hungUp, f.ended && f.attempts >= attemptsAtOnce:
		l.end(f, CauseClientGone, nil)
	case f.attempts >= attemptsAtOnce:
		f.state, f.since = flowRetrying, l.now
		l.rearm(f)
	default:
		return true
	}
	return false
}

// retryAt is when a flow that waits for its next attempt makes it.
func (f *Flow) retryAt() time.Duration {
	return f.since + min(retryFirst<<(f.attempts-attemptsAtOnce), retryMost)
}

// retry makes the next attempt.
func (l *loop) retry(f *Flow) {
	f.state = flowConnecting
	l.connect(f)
}

// dial starts one attempt. Side B is then watched: its first event tells how
// the attempt ended.
func (l *loop) dial(f *Flow) error {
	if f.to.Network != TCP && f.to.Network != Unix {
		return errNoStream
	}
	if err := sockaddr(&l.peer, *f.to); err != nil {
		return err
	}
	d := f.dialConfig()
	fd, e := l.env.Kernel.Socket(l.peer.Family(), d.Socket.MPTCP)
	if e != 0 && scarce(e) && l.dgrams.spareRest() {
		fd, e = l.env.Kernel.Socket(l.peer.Family(), d.Socket.MPTCP)
	}
	if e != 0 {
		return e
	}
	f.fd[sideB] = int32(fd)
	f.tcp[sideB] = f.to.Network == TCP
	if err := l.prepare(fd, socketKind{f.to.Network, l.peer.Family(), true}, d, f); err != nil {
		return err
	}
	switch e := l.env.Kernel.Connect(fd, &l.peer); e {
	case 0, sys.EINPROGRESS:
	case sys.EAGAIN:
		// A Unix listener's accept queue is full, unix(7): nobody will say
		// when it no longer is.
		l.env.Kernel.Close(fd)
		f.fd[sideB] = -1
		f.again = true
		return nil
	default:
		return e
	}
	if e := l.watch(f, sideB); e != 0 {
		return e
	}
	return nil
}

// redial tries the same upstream once more.
func (l *loop) redial(f *Flow) {
	f.again = false
	switch err := l.dial(f); {
	case err == nil:
		l.rearm(f)
	case noDescriptors(err):
		l.starve(f)
	default:
		l.connectFailed(f, err)
	}
}

// connectEvent is side B's first event: it is connected, or has failed.
func (l *loop) connectEvent(f *Flow, ev uint32) {
	if ev&(sys.Err|sys.Hup) != 0 {
		if e := sys.SockError(int(f.fd[sideB])); e != 0 {
			l.connectFailed(f, e)
			return
		}
		// a connection that its peer has already ended is a connection
	}
	if ev&(sys.Out|sys.In|sys.RdHup|sys.Hup) == 0 {
		return
	}
	f.connect = l.now - f.start
	l.stats.Connects++
	if hook := f.cfg.Hooks.Connected; hook != nil {
		hook(f, f.to, l.now-f.since, nil)
	}
	l.relay(f)
	gen := f.gen
	l.begin(f)
	if ev&(sys.In|sys.RdHup|sys.Hup) != 0 && f.alive(gen) && f.wait[sideB] == pump.WantRead {
		l.turn(f, sideB)
	}
}

// connectFailed goes on to the next upstream.
func (l *loop) connectFailed(f *Flow, err error) {
	l.attemptFailed(f, err)
	if l.another(f) {
		l.connect(f)
	}
}

// attemptFailed closes the attempt's socket and tells the hook.
func (l *loop) attemptFailed(f *Flow, err error) {
	f.again = false
	if fd := f.fd[sideB]; fd >= 0 {
		l.env.Kernel.Close(int(fd))
		f.fd[sideB], f.odd[sideB] = -1, false
	}
	f.err = err
	l.stats.ConnectErrors++
	if hook := f.cfg.Hooks.Connected; hook != nil {
		hook(f, f.to, l.now-f.since, err)
	}
}

// noUpstream ends a flow after its last attempt.
func (l *loop) noUpstream(f *Flow) {
	c := CauseNoUpstream
	switch {
	case f.err == os.ErrDeadlineExceeded:
		c = CauseConnectTimeout
	case errors.Is(f.err, sys.EMFILE), errors.Is(f.err, sys.ENFILE):
		c = CauseNoDescriptors
	}
	l.end(f, c, f.err)
}

// builtin relays to the upstream inside: echo has one direction, from the
// client to itself; discard has one that leads nowhere.
func (l *loop) builtin(f *Flow) {
	f.connect = time.Nanosecond
	f.echo = f.to.Network == Echo
	f.half[sideA].Sink = !f.echo
	l.relay(f)
	f.wait[sideB] = pump.End
	l.begin(f)
}

// begin gives the client's half its first turn, if there is something for it to do.
func (l *loop) begin(f *Flow) {
	if f.pending || f.half[sideA].Held() > 0 {
		l.turn(f, sideA)
	}
}

func sockaddr(sa *sys.Sockaddr, a Addr) error {
	if a.Network == Unix || a.Network == Unixgram {
		return sa.SetUnix(a.Path)
	}
	return sa.SetAddrPort(a.AddrPort)
}
