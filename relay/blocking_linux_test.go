package relay

import (
	"net"
	"os"
	"runtime"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

// sharer gives a second descriptor of what c has, as another process may have one. A file's
// Fd makes what it shares blocking.
func sharer(t *testing.T, c any) (setBlocking func()) {
	t.Helper()
	f, err := c.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return func() { f.Fd() }
}

// setBlocking makes c blocking.
func setBlocking(t *testing.T, c any) {
	t.Helper()
	sharer(t, c)()
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
			if err := r.e.Relay(innerA, innerB, PairConfig{Done: r.done}); err != nil {
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
			l, err := r.e.ListenOn(in, ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return &Addr{Network: Echo} }, Done: r.done}})
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
func TestListenOnPacketBlocking(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	in, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	setBlocking(t, in)
	l, err := r.e.ListenOnPacket(in, ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return &Addr{Network: Echo} }, Done: r.done}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(l.Addr().AddrPort))
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
