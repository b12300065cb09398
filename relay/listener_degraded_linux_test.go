package relay

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/relay/hold"
)

// alone returns a TCP socket that shares its port with no other one, and what is held of it: it stands for one that only
// a privileged process may have others beside.
func alone(t *testing.T) (net.Listener, hold.Held) {
	t.Helper()
	var plain net.ListenConfig
	plain.SetMultipathTCP(false)
	l, err := plain.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, e := sys.Dup(int(f.Fd()))
	if e != 0 {
		t.Fatal(e)
	}
	sys.SetNonblock(fd)
	at := *fromNet(l.Addr())
	return l, hold.Held{Key: newHoldKey(holdListener, 0, 0, 1), Label: at.String(), FDs: []int{fd}}
}

// If a process may not bind what an earlier one has bound, its loops share the sockets that there are: each gets as many
// clients as the others, those too that wait when the listener is closed, and the port is free afterwards.
func TestListenerWithoutSocketPerLoop(t *testing.T) {
	t.Run("sockets=1", func(t *testing.T) {
		before, held := alone(t)
		shareSockets(t, *fromNet(before.Addr()), []hold.Held{held}, testnet.Dial(t, before.Addr()))
	})
	t.Run("sockets=2", func(t *testing.T) {
		at, held := socketsOf(t, 65534, 65534)
		bindAs(t, at, 65534) // nobody but this user can have a third one, and those that are held become this process's
		shareSockets(t, at, held, testnet.Dial(t, toNet(at)), testnet.Dial(t, toNet(at)))
	})
}

func shareSockets(t *testing.T, at Addr, held []hold.Held, queued ...net.Conn) {
	const loops, clients = 3, 42
	h := &flushedHolder{dropped: make(map[holdKey]bool)}
	r := newRig(t, Config{Loops: loops, Keep: &hold.Keep{Holder: h, Held: held}})
	l, err := r.e.Listen(at, ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return &Addr{Network: Echo} }, Done: r.done}})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Degraded(); !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), fmt.Sprintf("%d sockets for 3 loops", len(held))) {
		t.Errorf("it lacks: %v", err)
	}
	if n := len(l.sockets()); n != len(held) || l.Addr() != at {
		t.Errorf("%d sockets at %v", n, l.Addr())
	}
	if _, err := r.e.Restore(RestoreConfig{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range queued {
		say(t, c, c, "waited")
		c.Close()
		r.expect(CauseEnd)
	}
	var open []net.Conn
	for range clients {
		c := dial(t, l)
		say(t, c, c, "hello")
		open = append(open, c)
	}
	s := r.e.Stats()
	for i := range s.Loops {
		if n := s.Loops[i].Flows; n < clients/loops-2 || n > clients/loops+2 {
			t.Errorf("loop %d has %d of %d flows", i, n, clients)
		}
	}
	for _, c := range open {
		c.Close()
		r.expect(CauseEnd)
	}
	if err := l.Update(l.next()); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", at.AddrPort.String()); err == nil {
		c.Close()
		t.Error("somebody still listens")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, x := range held {
		if _, ok := h.dropped[x.Key]; !ok || len(h.dropped) != len(held) {
			t.Errorf("dropped: %v", h.dropped)
		}
	}
}

// Sockets of an earlier process that lack an option are better than none, if there can be no new ones.
func TestListenerWithoutOption(t *testing.T) {
	if !sys.HasMultipath() {
		t.Skip("no multipath TCP here")
	}
	before, held := alone(t)
	r := newRig(t, Config{Loops: 2, Keep: &hold.Keep{Holder: nobody{}, Held: []hold.Held{held}}})
	l, err := r.e.Listen(*fromNet(before.Addr()), ListenConfig{Socket: SocketOptions{MPTCP: true}, Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return &Addr{Network: Echo} }, Done: r.done}})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Degraded(); err == nil || !strings.Contains(err.Error(), "IPPROTO_MPTCP") {
		t.Errorf("it lacks: %v", err)
	}
	if _, err := r.e.Restore(RestoreConfig{}); err != nil {
		t.Fatal(err)
	}
	c := dial(t, l)
	say(t, c, c, "hello")
	c.Close()
	r.expect(CauseEnd)
}

// A privileged process has a socket for each loop beside that of one that was not: the kernel shares a port among
// sockets of one owner.
func TestSocketOfOtherOwner(t *testing.T) {
	at, held := socketsOf(t, 65534)
	r := newRig(t, Config{Loops: 3, Keep: &hold.Keep{Holder: nobody{}, Held: held}})
	l, err := r.e.Listen(at, toEcho)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(l.sockets()); n != 3 || l.Degraded() != nil {
		t.Errorf("%d sockets, %v", n, l.Degraded())
	}
}

// socketsOf returns what is held of sockets that share a port and belong to users.
func socketsOf(t *testing.T, users ...int) (at Addr, held []hold.Held) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a socket away")
	}
	at = Addr{Network: TCP, AddrPort: loopback}
	for i, user := range users {
		var sa sys.Sockaddr
		if err := sa.SetAddrPort(at.AddrPort); err != nil {
			t.Fatal(err)
		}
		fd, err := sys.Listen(sys.Linux{}, &sa, true, false, 10, func(fd int) error { return giveTo(fd, users[0]) })
		if err == nil {
			err = giveTo(fd, user) // too late for the first one, by which the kernel knows the port
		}
		if err != nil {
			t.Fatal(err)
		}
		at = boundAddr(sys.Linux{}, fd)
		held = append(held, hold.Held{Key: newHoldKey(holdListener, i, uint64(i), 1), FDs: []int{fd}})
	}
	for i := range held {
		held[i].Label = at.String()
	}
	return at, held
}

// bindAs binds one more socket of a user to an address of sockets of that user. It does not listen, so that no client gets to it.
func bindAs(t *testing.T, at Addr, user int) {
	t.Helper()
	var sa sys.Sockaddr
	if err := sa.SetAddrPort(at.AddrPort); err != nil {
		t.Fatal(err)
	}
	fd, e := sys.Linux{}.Socket(sa.Family(), false)
	if e != 0 {
		t.Fatal(e)
	}
	t.Cleanup(func() { sys.Linux{}.Close(fd) })
	if err := giveTo(fd, user); err != nil {
		t.Fatal(err)
	}
	if e := sys.SetReusePort(sys.Linux{}, fd); e != 0 {
		t.Fatal(e)
	}
	if e := sys.Bind(fd, &sa); e != 0 {
		t.Fatal(e)
	}
}

// giveTo makes a socket another user's.
func giveTo(fd, user int) error {
	own, e := sys.Dup(fd)
	if e != 0 {
		return e
	}
	f := os.NewFile(uintptr(own), "socket")
	defer f.Close()
	return f.Chown(user, -1)
}
