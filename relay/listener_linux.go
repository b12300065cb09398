package relay

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/sys"
)

// Listener accepts clients for an engine. On TCP and UDP each loop has its own socket
// on the shared port (SO_REUSEPORT), and the kernel spreads clients over them. A Unix
// or an inherited listener is one socket. Of streams, the loop that has the fewest flows
// accepts the next client from it; datagrams are received by one loop. See
// [Listener.Degraded] for sockets of an earlier process.
type Listener struct {
	engine    *Engine
	addr      Addr
	cfg       atomic.Pointer[ListenConfig] // what flows that come now get
	ports     []port                       // those of one socket are neighbours
	degraded  error                        // see Degraded
	toMany    bool                         // bound to a broadcast or multicast address
	inherited bool                         // somebody else bound it, and may share it still
	multipath bool                         // clients may come by multipath TCP
	lingers   bool                         // inherited: clients of before have SO_LINGER from an engine with Keep
	path      string                       // to remove at the end
	label     string                       // under which earlier was held
	earlier   []*listenSocket              // of an earlier process, which the next one gets if this one does not come to Restore
	attached  bool                         // under Engine.mu: flows of an earlier process may use its ports, though it is paused
	paused    bool                         // under Engine.mu, until it is out of Engine.listeners
}

// port is a loop's view of a listener.
type port interface {
	// start makes the loop take clients.
	start()
	// stop takes the port back from the loop, and calls wg.Done when the loop takes no more clients.
	stop(why stopCause, wg *sync.WaitGroup)
	// loop returns the index of the port's loop.
	loop() int
	socket() *listenSocket
	// setUp sets on a socket of an earlier process, which has the options was, what a new one gets.
	setUp(cfg *ListenConfig, was *SocketOptions) error
	// change sets on the socket what differs between two configurations, socket
	// options apart.
	change(next, old *ListenConfig) error
}

// stopCause is why a listener stops.
type stopCause uint8

const (
	stopClosed  stopCause = iota // it is closed, and flows go on that can
	stopDrain                    // the engine drains, and flows go on
	stopEndsAll                  // the engine is closed, and flows end
)

// Addr returns the address that the listener is bound to.
func (l *Listener) Addr() Addr { return l.addr }

// Degraded returns what the listener lacks because this process cannot have it, such as a
// socket for each loop on a port that only a privileged process may bind, or an option of
// its sockets; nil means that it lacks nothing. It occurs only with sockets of an earlier
// process (see [Keep]), with which the listener works nevertheless: if loops have no
// socket of their own, the loop that has the fewest flows accepts the next client, as
// for a Unix listener. Datagrams are received by as many loops as the earlier process had.
func (l *Listener) Degraded() error { return l.degraded }

// Value returns the ListenConfig.Value of Listen or of the last Update.
func (l *Listener) Value() any {
	if cfg := l.cfg.Load(); cfg != nil {
		return cfg.Value
	}
	return nil
}

// Close stops listening. Clients that wait in the accept queue are accepted first, for
// at most five seconds. Flows go on, those of UDP as [DatagramConfig] says; those that
// need the listener's socket, of Unix datagrams or an inherited socket, end with
// [CauseClosed]. Close returns when no loop accepts from the listener any more; in a hook
// it returns at once. A second call returns [net.ErrClosed].
func (l *Listener) Close() error {
	e := l.engine
	if e == nil { // the zero Listener
		return net.ErrClosed
	}
	var wg sync.WaitGroup
	e.mu.Lock()
	_, open := e.listeners[l]
	if open {
		delete(e.listeners, l)
		l.stop(stopClosed, &wg)
	}
	e.mu.Unlock()
	if !open {
		return net.ErrClosed
	}
	if !loop.InHook() {
		wg.Wait()
	}
	return nil
}

// complete checks cfg and fills in what follows from the rest.
func complete(cfg ListenConfig) (*ListenConfig, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Dial == nil {
		d := &DialConfig{Socket: cfg.Socket}
		d.Socket.FastOpen, d.Socket.Interface, d.Socket.Transparent = 0, "", false
		cfg.Dial = d
	}
	return &cfg, nil
}

// begin hands the ports to their loops, unless it is paused.
func (l *Listener) begin() error {
	e := l.engine
	e.mu.Lock()
	if e.state != running {
		e.mu.Unlock()
		l.closeSockets()
		return net.ErrClosed
	}
	// The requests are posted under the lock, so that each loop reads this one
	// before the one by which Close takes the port back.
	defer e.mu.Unlock()
	for _, p := range l.ports {
		l.multipath = l.multipath || sys.Multipath(p.socket().fd)
	}
	e.listeners[l] = struct{}{}
	e.descriptors.listen(l.addr.Network.Datagrams(), 1)
	if l.paused = l.cfg.Load().Paused || e.awaitsRestore; !l.paused {
		l.start()
	}
	return nil
}

// start makes the loops take clients. Engine.mu is held.
func (l *Listener) start() {
	for _, p := range l.ports {
		p.start()
	}
}

// stop takes the ports back from the loops, and tells wg when they take no clients any more.
// Engine.mu is held.
func (l *Listener) stop(why stopCause, wg *sync.WaitGroup) {
	l.engine.descriptors.listen(l.addr.Network.Datagrams(), -1)
	if l.paused && !l.attached {
		if l.engine.awaitsRestore {
			l.giveBack(l.earlier)
		}
		l.closeSockets()
		return
	}
	if l.path != "" {
		sys.Unlink(l.path)
	}
	for _, p := range l.ports {
		p.stop(why, wg)
	}
}

// closeSockets undoes a listener that never began.
func (l *Listener) closeSockets() {
	for _, p := range l.sockets() {
		l.closeSocket(p.socket())
	}
	if l.path != "" {
		sys.Unlink(l.path)
	}
}

// sockets returns a port for each socket of the listener.
func (l *Listener) sockets() []port {
	return slices.CompactFunc(slices.Clone(l.ports), func(a, b port) bool { return a.socket() == b.socket() })
}

// bindPath binds a socket to the listener's Unix path, which is removed at the
// end. One that nobody has any more is taken over; socket makes one to ask with.
func (l *Listener) bindPath(socket func(sys.Family) (int, sys.Errno), bind func(*sys.Sockaddr) (int, error)) (int, error) {
	var sa sys.Sockaddr
	if err := sa.SetUnix(l.addr.Path); err != nil {
		return -1, err
	}
	fd, err := bind(&sa)
	abstract := l.addr.Path[0] == '@'
	if errors.Is(err, sys.EADDRINUSE) && !abstract && l.stale(&sa, socket) {
		if err := sys.Unlink(l.addr.Path); err != nil {
			return -1, fmt.Errorf("the path of a socket that nobody has any more: %w", err)
		}
		fd, err = bind(&sa)
	}
	if err != nil || abstract {
		return fd, err
	}
	l.path = l.addr.Path
	if mode := l.cfg.Load().Mode; mode != 0 {
		if err := sys.Chmod(l.path, mode); err != nil {
			l.engine.kernel.Close(fd)
			return -1, err
		}
	}
	return fd, nil
}

// stale reports whether the listener's path is a socket that nobody has any more.
func (l *Listener) stale(sa *sys.Sockaddr, socket func(sys.Family) (int, sys.Errno)) bool {
	if !sys.IsSocket(l.addr.Path) {
		return false
	}
	fd, e := socket(sys.Unix)
	if e != 0 {
		return false
	}
	kernel := l.engine.kernel
	defer kernel.Close(fd)
	return kernel.Connect(fd, sa) == sys.ECONNREFUSED
}

// bind makes a listening socket with the options that its clients inherit.
func (l *Listener) bind(sa *sys.Sockaddr, reusePort bool) (int, error) {
	cfg := l.cfg.Load()
	return sys.Listen(l.engine.kernel, sa, reusePort, cfg.Socket.MPTCP, cfg.Backlog, func(fd int) error {
		l.setOwner(fd)
		return l.setOptions(fd, &cfg.Socket, &fresh)
	})
}

// setOwner gives a socket to the user that the process will have, so that it shares its port with others of that user.
func (l *Listener) setOwner(fd int) {
	if l.addr.Network == TCP || l.addr.Network == UDP {
		sys.SetOwner(fd, l.engine.cfg.User)
	}
}

// setOptions sets what differs from what a socket of the listener had.
func (l *Listener) setOptions(fd int, o, was *SocketOptions) error {
	family, e := sys.FamilyOf(l.engine.kernel, fd)
	if e != 0 {
		return e
	}
	if l.engine.holding != nil && lingerUnsettled && l.addr.Network == TCP {
		l.engine.kernel.CloseResets(fd, true) // of accepted sockets, until their flows end well
	} else if l.inherited && l.addr.Network == TCP && sys.LingerResets(fd) {
		l.engine.kernel.CloseResets(fd, false)
		l.lingers = true
	}
	return setOptions(l.engine.kernel, fd, socketKind{network: l.addr.Network, family: family}, o, was)
}
