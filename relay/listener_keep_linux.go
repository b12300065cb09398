package relay

import (
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/hold"
)

// takeEarlier returns the sockets that an earlier process had at the listener's address. They are all
// taken, even if they are more than loops: the kernel resets the clients that wait at one that is closed.
// The error says why new ones would be better: an option cannot be changed any more.
func (l *Listener) takeEarlier() (sockets []*listenSocket, unfit error) {
	h := l.engine.holding
	if h == nil {
		return nil, nil
	}
	sockets = slices.DeleteFunc(h.take(l.label), func(s *listenSocket) bool {
		deaf := isDeaf(h.kernel, l.addr.Network, s.fd)
		if deaf {
			h.release(hold.Held{Key: s.key, FDs: []int{s.fd}})
		}
		return deaf
	})
	want := &l.cfg.Load().Socket
	for _, s := range sockets {
		l.setOwner(s.fd) // the earlier process may have been another user
		was, err := l.optionsOf(s.fd, want)
		if err == nil {
			err = l.unchangeableOption(want, &was)
		}
		if err != nil {
			unfit = err
		}
	}
	if l.addr.Path != "" {
		// A path leads to the socket that was bound to it last. The process may have died while it closed
		// another one, which had left it the path.
		for ; len(sockets) > 1; sockets = sockets[1:] {
			h.release(hold.Held{Key: sockets[0].key, FDs: []int{sockets[0].fd}})
		}
	}
	return sockets, unfit
}

// isDeaf reports whether a listener's socket of an earlier process receives nothing any more: the process has died while it closed it.
func isDeaf(kernel sys.Kernel, network Network, fd int) bool {
	if network == UDP {
		return sys.Connected(kernel, fd)
	}
	return kernel.Poll(fd, 0)&sys.PollHup != 0
}

// lack notes what the listener works without.
func (l *Listener) lack(err error) {
	if l.degraded != nil {
		err = fmt.Errorf("%w; %w", l.degraded, err)
	}
	l.degraded = err
}

// giveBack undoes takeEarlier after a listener could not be made, or was closed before Restore: who tries again gets
// them, be it another process, which may not be allowed to bind the address.
func (l *Listener) giveBack(earlier []*listenSocket) {
	if len(earlier) > 0 {
		l.leave(earlier)
		l.engine.holding.giveBack(l.label, earlier)
	}
}

// leave takes sockets of an earlier process, and their path, from the listener.
func (l *Listener) leave(earlier []*listenSocket) {
	if len(earlier) > 0 {
		l.ports = slices.DeleteFunc(l.ports, func(p port) bool { return slices.Contains(earlier, p.socket()) })
		l.path = ""
	}
}

// takePath makes the path of an earlier process's socket the listener's.
func (l *Listener) takePath() {
	if l.addr.Path[0] == '@' {
		return
	}
	l.path = l.addr.Path
	mode := l.cfg.Load().Mode
	if mode == 0 || !sys.HasOtherMode(l.path, mode) {
		return // also where the path belongs to another user, who has made it so
	}
	if err := sys.Chmod(l.path, mode); err != nil {
		l.lack(fmt.Errorf("mode %04o of the path: %w", mode, err))
	}
}

// setUpEarlier sets on sockets of an earlier process what differs from the listener's configuration.
func (l *Listener) setUpEarlier(earlier []*listenSocket) {
	cfg := l.cfg.Load()
	for _, p := range l.sockets() {
		s := p.socket()
		if !slices.Contains(earlier, s) {
			continue
		}
		was, err := l.optionsOf(s.fd, &cfg.Socket)
		if err != nil {
			was = fresh
		}
		if err := p.setUp(cfg, &was); err != nil {
			l.lack(err)
			return // the others lack it, too
		}
	}
}

// hold has those sockets held that are not yet.
func (l *Listener) hold(addr Addr) {
	h := l.engine.holding
	if h == nil {
		return
	}
	all := l.sockets()
	for _, p := range all {
		// The key has the loop, so that the next process gives the socket to the same one, where the
		// flows of datagrams are that came by it.
		if s := p.socket(); s.key == (holdKey{}) || loopOf(s.key) != p.loop() && l.addr.Network.Datagrams() {
			old := *s
			h.holdSocket(p.loop(), s, addr.String(), len(all))
			if old.key != (holdKey{}) {
				h.dropSocket(&old)
			}
		}
	}
}

// holdInherited is hold for a listener that somebody else has bound, who may have given the same
// socket to an earlier process, too.
func (l *Listener) holdInherited() {
	h := l.engine.holding
	if h == nil {
		return
	}
	label := l.addr.String()
	own := l.ports[0].socket()
	earlier := h.take(label)
	for i, s := range earlier {
		if h.kernel.SameSocket(s.fd, own.fd) {
			own.key = s.key
			l.engine.kernel.Close(s.fd)
			earlier = slices.Delete(earlier, i, i+1)
			break
		}
	}
	h.giveBack(label, earlier)
	l.hold(l.addr)
}

// closeSocket closes one of the listener's sockets.
func (l *Listener) closeSocket(s *listenSocket) {
	if h := l.engine.holding; h != nil {
		if !l.inherited && l.addr.Network != UDP {
			l.engine.kernel.ShutdownBoth(s.fd) // the duplicate would go on listening until it is closed
		}
		h.dropSocket(s)
	}
	l.engine.kernel.Close(s.fd)
}

// optionsOf returns the options that a socket has. Those that want leaves to the kernel, and that
// cannot be told from what an earlier configuration has set, are as in want.
func (l *Listener) optionsOf(fd int, want *SocketOptions) (was SocketOptions, err error) {
	was = *want
	was.RecvBuffer, was.SendBuffer = 0, 0 // set them again: the kernel doubles and limits them
	family, e := sys.FamilyOf(l.engine.kernel, fd)
	if e != 0 {
		return was, e
	}
	get := func(o sys.Option) int {
		v, errno := o.Get(l.engine.kernel, fd)
		if errno != 0 {
			e = errno
		}
		return v
	}
	if l.addr.Network == TCP || l.addr.Network == UDP {
		if family == sys.IPv6 {
			was.DSCP = uint8(get(sys.TrafficClass) >> 2)
			was.Transparent = get(sys.Transparent6) != 0
		} else {
			was.DSCP = uint8(get(sys.TypeOfService) >> 2)
			was.Transparent = get(sys.Transparent) != 0
		}
		was.Mark = uint32(get(sys.Mark))
		var errno sys.Errno
		if was.Interface, errno = l.engine.kernel.Interface(fd); errno != 0 {
			e = errno
		}
	}
	if l.addr.Network == TCP {
		l.optionsOfTCP(fd, want, &was, get)
	}
	if e != 0 {
		return was, fmt.Errorf("read an option: %w", e)
	}
	return was, nil
}

func (l *Listener) optionsOfTCP(fd int, want, was *SocketOptions, get func(sys.Option) int) {
	const seconds, millis = time.Second, time.Millisecond
	was.Nagle = get(sys.NoDelay) == 0
	was.KeepAlive = 0
	if get(sys.KeepAlive) != 0 {
		was.KeepAlive = time.Duration(get(sys.KeepAliveIdle)) * seconds
	}
	if want.KeepAliveInterval > 0 {
		was.KeepAliveInterval = time.Duration(get(sys.KeepAliveInterval)) * seconds
	}
	if want.KeepAliveCount > 0 {
		was.KeepAliveCount = get(sys.KeepAliveCount)
	}
	if _, e := sys.UserTimeout.Get(l.engine.kernel, fd); e != sys.EOPNOTSUPP { // multipath TCP has none
		was.UserTimeout = time.Duration(get(sys.UserTimeout)) * millis
	}
	if want.Congestion != "" {
		was.Congestion, _ = sys.Congestion(fd)
	}
	was.FastOpen = get(sys.FastOpen)
	if was.MPTCP = sys.Multipath(fd); want.MPTCP && !was.MPTCP {
		was.MPTCP = !sys.HasMultipath() // a new socket would not have it either
	}
}
