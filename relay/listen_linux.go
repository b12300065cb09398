package relay

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// Listener accepts clients for an engine. On TCP and UDP each loop has its own socket
// on the shared port (SO_REUSEPORT), and the kernel spreads clients over them. A Unix
// or an inherited listener is one socket. All loops accept streams from it, and a loop
// hands a client on to another one that has fewer flows; datagrams are received by one
// loop.
type Listener struct {
	engine    *Engine
	addr      Addr
	cfg       atomic.Pointer[ListenConfig] // what flows that come now get
	ports     []*port                      // one a loop
	dgrams    []*dgramPort                 // instead, one a loop; of a Unix socket only the first loop has one
	shared    int                          // the descriptor that the ports share; -1: each has its own
	open      atomic.Int32                 // ports that the loops have not let go of; the last one closes shared
	inherited bool                         // somebody else bound it, and may share it still
	path      string                       // to remove at the end
	paused    bool                         // under Engine.mu, until it is out of Engine.listeners
}

// port is a loop's view of a listener.
//
//	watched ─▶ closing ─▶ closed
//	 │  ▲
//	 ▼  │
//	resting
type port struct {
	listener *Listener
	fd       int
	index    int             // in loop.ports, while it is not closing
	until    time.Duration   // closing: when those who still wait are given up
	closed   *sync.WaitGroup // closing: told at its end; may be nil
}

// Listen listens on addr, which must not be a built-in upstream, and accepts clients
// from then on. If the port of a TCP or UDP address is 0, a free one is chosen; see
// [Listener.Addr]. If addr is the path of a Unix socket that nobody listens on any
// more, that socket is replaced.
func (e *Engine) Listen(addr Addr, cfg ListenConfig) (*Listener, error) {
	l, err := e.newListener(cfg)
	if err != nil {
		return nil, err
	}
	l.addr = addr
	switch addr.Network {
	case TCP:
		err = l.bindTCP()
	case Unix:
		err = l.bindUnix()
	case UDP:
		err = l.bindUDP()
	case Unixgram:
		err = l.bindUnixgram()
	default:
		err = errors.New("not an address to listen on")
	}
	if err != nil {
		l.closeSockets()
		return nil, fmt.Errorf("relay: listen on %s: %w", addr, err)
	}
	return l, l.begin()
}

// ListenOn accepts clients from a listener that is already bound, a *net.TCPListener or
// a *net.UnixListener. After ListenOn has returned nil the engine owns the listener and
// closes it. The socket is made non-blocking, for all processes that share it, and
// again before each accept.
func (e *Engine) ListenOn(inherited net.Listener, cfg ListenConfig) (*Listener, error) {
	l, err := e.newListener(cfg)
	if err != nil {
		return nil, err
	}
	fd, _, err := e.inherit(inherited, sys.SockStream)
	if err != nil {
		return nil, err
	}
	l.share(fd)
	l.inherited = true
	l.addr = localAddr(fd)
	if err := l.setOptions(fd, &l.cfg.Load().Socket, &fresh); err != nil {
		l.closeSockets()
		return nil, fmt.Errorf("relay: serve %s: %w", l.addr, err)
	}
	if err := l.begin(); err != nil {
		return nil, err
	}
	if u, ok := inherited.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	inherited.Close()
	return l, nil
}

// inherit gives a second descriptor of a bound socket of the given type; one of
// streams must listen.
func (e *core) inherit(c any, want int) (int, sys.Family, error) {
	no := func(err error) (int, sys.Family, error) { return -1, 0, fmt.Errorf("relay: serve a %T: %w", c, err) }
	in, ok := c.(syscall.Conn)
	if !ok {
		return no(errors.ErrUnsupported)
	}
	rc, err := in.SyscallConn()
	if err != nil {
		return no(err)
	}
	fd, err := e.dup(rc)
	if err != nil {
		return no(err)
	}
	family, typ, listening, errno := sys.SocketKind(fd)
	if errno != 0 || typ != want || listening != (want == sys.SockStream) {
		e.kernel.Close(fd)
		return no(errors.ErrUnsupported)
	}
	return fd, family, nil
}

func (e *Engine) newListener(cfg ListenConfig) (*Listener, error) {
	l := &Listener{engine: e, shared: -1}
	c, err := complete(cfg)
	if err != nil {
		return nil, err
	}
	l.cfg.Store(c)
	return l, nil
}

// Addr returns the address that the listener is bound to.
func (l *Listener) Addr() Addr { return l.addr }

// Value returns the ListenConfig.Value of Listen or of the last Update.
func (l *Listener) Value() any { return l.cfg.Load().Value }

// Close stops listening. Clients that wait in the accept queue are accepted first, for
// at most five seconds. Stream flows go on; datagram flows, which need the listener's
// socket, end with [CauseClosed]. Close returns when no loop accepts from the listener
// any more; in a hook it returns at once. A second call returns [net.ErrClosed].
func (l *Listener) Close() error {
	e := l.engine
	var wg sync.WaitGroup
	e.mu.Lock()
	_, open := e.listeners[l]
	if open {
		delete(e.listeners, l)
		l.stop(false, &wg)
	}
	e.mu.Unlock()
	if !open {
		return net.ErrClosed
	}
	if !inHook() {
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
	// The letters are posted under the lock, so that each loop reads this one
	// before the one by which Close takes the port back.
	defer e.mu.Unlock()
	e.listeners[l] = struct{}{}
	if l.paused = l.cfg.Load().Paused; !l.paused {
		l.start()
	}
	return nil
}

// start has the loops take clients. Engine.mu is held.
func (l *Listener) start() {
	l.open.Store(int32(len(l.ports)))
	for i, p := range l.ports {
		l.engine.loops[i].post(letter{kind: letterListen, port: p})
	}
	for i, p := range l.dgrams {
		l.engine.loops[i].post(letter{kind: letterDgramListen, dgram: p})
	}
}

// stop takes the ports back from the loops, and tells wg when they have let go.
// With drain, flows of datagrams keep their sockets until the loop ends.
// Engine.mu is held.
func (l *Listener) stop(drain bool, wg *sync.WaitGroup) {
	if l.paused {
		l.closeSockets()
		return
	}
	if l.path != "" {
		sys.Unlink(l.path)
	}
	post := func(i int, m letter) {
		m.wg = wg
		wg.Add(1)
		if !l.engine.loops[i].post(m) {
			wg.Done()
		}
	}
	for i, p := range l.ports {
		post(i, letter{kind: letterUnlisten, port: p})
	}
	kind := letterDgramUnlisten
	if drain {
		kind = letterDgramDrain
	}
	for i, p := range l.dgrams {
		post(i, letter{kind: kind, dgram: p})
	}
}

// closeListeners stops all listeners. Engine.mu is held.
func (e *core) closeListeners() {
	var wg sync.WaitGroup // nobody waits
	for l := range e.listeners {
		l.stop(e.state == draining, &wg)
	}
	e.listeners = nil
}

// closeSockets undoes a listener that never began.
func (l *Listener) closeSockets() {
	for _, p := range l.ports {
		if l.shared < 0 {
			l.engine.kernel.Close(p.fd)
		}
	}
	for _, p := range l.dgrams {
		l.engine.kernel.Close(p.fd)
	}
	if l.shared >= 0 {
		l.engine.kernel.Close(l.shared)
	}
	if l.path != "" {
		sys.Unlink(l.path)
	}
}

func (l *Listener) share(fd int) {
	l.shared = fd
	for range l.engine.loops {
		l.ports = append(l.ports, &port{listener: l, fd: fd})
	}
}

func (l *Listener) bindTCP() error {
	var sa sys.Sockaddr
	for range l.engine.loops {
		if err := sa.SetAddrPort(l.addr.AddrPort); err != nil {
			return err
		}
		fd, err := l.bind(&sa, true)
		if err != nil {
			return err
		}
		l.ports = append(l.ports, &port{listener: l, fd: fd})
		l.addr = localAddr(fd)
	}
	return nil
}

func (l *Listener) bindUnix() error {
	fd, err := l.bindPath(func(f sys.Family) (int, sys.Errno) { return sys.Linux{}.Socket(f, false) }, func(sa *sys.Sockaddr) (int, error) { return l.bind(sa, false) })
	if err != nil {
		return err
	}
	l.share(fd)
	return nil
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
	if errors.Is(err, sys.EADDRINUSE) && !abstract && stale(l.addr.Path, &sa, socket) {
		sys.Unlink(l.addr.Path)
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

// stale tells whether the path is a socket that nobody has any more.
func stale(path string, sa *sys.Sockaddr, socket func(sys.Family) (int, sys.Errno)) bool {
	if !sys.IsSocket(path) {
		return false
	}
	fd, e := socket(sys.Unix)
	if e != 0 {
		return false
	}
	defer sys.Linux{}.Close(fd)
	return sys.Linux{}.Connect(fd, sa) == sys.ECONNREFUSED
}

// bind makes a listening socket with the options that its clients inherit.
func (l *Listener) bind(sa *sys.Sockaddr, reusePort bool) (int, error) {
	cfg := l.cfg.Load()
	return sys.Listen(sa, reusePort, cfg.Socket.MPTCP, cfg.Backlog, func(fd int) error {
		return l.setOptions(fd, &cfg.Socket, &fresh)
	})
}

// setOptions sets what differs from what a socket of the listener had.
func (l *Listener) setOptions(fd int, o, was *SocketOptions) error {
	family, e := sys.SocketFamily(uintptr(fd))
	if e != 0 {
		return e
	}
	return setOptions(fd, socketKind{network: l.addr.Network, family: family}, o, was)
}
