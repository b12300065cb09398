package relay

import (
	"net"
	"runtime"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

// setBlocking does what os.File.Fd does to the connection that the file came from.
func setBlocking(t *testing.T, c any) {
	t.Helper()
	rc, err := c.(syscall.Conn).SyscallConn()
	if err == nil {
		err = rc.Control(func(fd uintptr) { syscall.SetNonblock(int(fd), false) })
	}
	if err != nil {
		t.Fatal(err)
	}
}

// sharer gives a second descriptor of what c has, as another process may have one.
func sharer(t *testing.T, c any) (setBlocking func()) {
	t.Helper()
	rc, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var fd int
	rc.Control(func(own uintptr) { fd, err = syscall.Dup(int(own)) })
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(fd)
	t.Cleanup(func() { syscall.Close(fd) })
	return func() { syscall.SetNonblock(fd, false) }
}

// A connection that somebody has made blocking does not stop its loop, whose
// other flows and whose process go on.
func TestAdoptBlocking(t *testing.T) {
	for _, p := range pairs {
		t.Run("a="+p[0]+"/b="+p[1], func(t *testing.T) {
			r := newRig(t, Config{Loops: 1})
			a, innerA := testnet.Pair(t, p[0])
			innerB, b := testnet.Pair(t, p[1])
			setBlocking(t, innerA)
			setBlocking(t, innerB)
			againA, againB := sharer(t, innerA), sharer(t, innerB)
			if err := r.e.Relay(innerA, innerB, Options{Done: r.done}); err != nil {
				t.Fatal(err)
			}
			say(t, a, b, "ping")
			say(t, b, a, "pong")
			r.e.Stats() // the loop still answers
			runtime.GC()
			// Small messages are copied, and MSG_DONTWAIT holds whatever others
			// do to the description later.
			againA()
			againB()
			say(t, a, b, "ping")
			say(t, b, a, "pong")
			r.e.Stats()
			runtime.GC()
		})
	}
}

// The same of listeners: they are made non-blocking when they are taken over,
// and again when another owner has undone that.
func TestServeBlocking(t *testing.T) {
	for _, network := range []string{"tcp4", "unix"} {
		t.Run("net="+network, func(t *testing.T) {
			r := newRig(t, Config{Loops: 1})
			in := testnet.Unwrap(testnet.Listen(t, network))
			setBlocking(t, in)
			again := sharer(t, in)
			l, err := r.e.Serve(in, ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return &Addr{Network: Echo} }, Done: r.done}})
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				c := dial(t, l)
				say(t, c, c, "hello")
				c.Close()
				r.expect(CauseEnd)
				r.e.Stats()
				runtime.GC()
				again()
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// And of datagram sockets.
func TestServePacketBlocking(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	in, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	setBlocking(t, in)
	l, err := r.e.ServePacket(in, ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return &Addr{Network: Echo} }, Done: r.done}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(l.Addr().IP))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 2 {
		say(t, c, c, "hello")
		r.e.Stats()
		runtime.GC()
	}
}
