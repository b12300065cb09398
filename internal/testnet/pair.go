package testnet

import (
	"crypto/rand"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testwait"
)

// Networks are the kinds of stream socket that [Pair] and [Listen] make. The last one is a Unix
// socket in the abstract namespace, which only exists on Linux.
var Networks = []string{"tcp4", "tcp6", "unix", "abstract"}

// Listen returns a listener of one of [Networks] on a loopback address, which stays the test's own until it ends, as
// that of [Port] does, even if the listener is closed earlier. It is closed when the test ends. If the
// machine lacks the network (no ::1, no abstract names), the test is skipped.
func Listen(tb testing.TB, network string) net.Listener {
	tb.Helper()
	return listen(tb, network, func() string { return Port(tb) })
}

// anyPort is for listeners whose address nobody uses when they are closed.
func anyPort() string { return "0" }

func listen(tb testing.TB, network string, port func() string) net.Listener {
	tb.Helper()
	l, err := tryListen(network, port)
	if errors.Is(err, errNoNetwork) {
		tb.Skipf("%s: %v", network, err)
	}
	if err != nil {
		tb.Fatalf("testnet: listen on %s: %v", network, err)
	}
	tb.Cleanup(func() { l.Close() })
	return l
}

// Pair returns the two ends of one connection of one of [Networks]: a dialed, b was accepted. Both
// are closed when the test ends; they may be closed earlier.
func Pair(tb testing.TB, network string) (a, b net.Conn) {
	tb.Helper()
	l := listen(tb, network, anyPort)
	defer l.Close()
	a = Dial(tb, l.Addr())
	return a, accept(tb, l)
}

// Dial connects to addr. The connection is closed when the test ends.
func Dial(tb testing.TB, addr net.Addr) net.Conn {
	tb.Helper()
	c, err := net.DialTimeout(addr.Network(), addr.String(), Patience)
	if err != nil {
		tb.Fatalf("testnet: %v", err)
	}
	tb.Cleanup(func() { c.Close() })
	return c
}

// Patience bounds every wait of a test for something that is expected to happen, on however busy a machine.
const Patience = testwait.Patience

var errNoNetwork = errors.New("this machine does not have it")

func tryListen(network string, port func() string) (net.Listener, error) {
	p, err := newPlace(network, port)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen(p.network, p.addr)
	if err != nil {
		p.remove()
		return nil, err
	}
	return &placeListener{l, p}, nil
}

// place is the address of a listener: the arguments of net.Listen, and the directory that was made
// for it, if any.
type place struct{ network, addr, dir string }

func newPlace(network string, port func() string) (place, error) {
	switch network {
	case "tcp4":
		return place{"tcp4", "127.0.0.1:" + port(), ""}, nil
	case "tcp6":
		l, err := net.Listen("tcp6", "[::1]:0")
		if err != nil {
			return place{}, errors.Join(errNoNetwork, err)
		}
		l.Close()
		return place{"tcp6", "[::1]:" + port(), ""}, nil
	case "unix":
		// Not the test's own directory: sun_path has at most 108 bytes, and tests have long names.
		dir, err := os.MkdirTemp("", "ps")
		return place{"unix", filepath.Join(dir, "s"), dir}, err
	case "abstract":
		if runtime.GOOS != "linux" {
			return place{}, errNoNetwork
		}
		return place{"unix", "@penstock-" + strings.ToLower(rand.Text()), ""}, nil
	}
	return place{}, errors.New("unknown network " + network)
}

func (p place) remove() {
	if p.dir != "" {
		os.RemoveAll(p.dir)
	}
}

// placeListener removes its place when it is closed.
type placeListener struct {
	net.Listener
	place place
}

func (l *placeListener) Close() error {
	defer l.place.remove()
	return l.Listener.Close()
}

// Unwrap returns the *net.TCPListener or *net.UnixListener inside a listener of [Listen], for code
// that needs the descriptor.
func Unwrap(l net.Listener) net.Listener {
	if p, ok := l.(*placeListener); ok {
		return p.Listener
	}
	return l
}

func accept(tb testing.TB, l net.Listener) net.Conn {
	tb.Helper()
	if d, ok := Unwrap(l).(interface{ SetDeadline(time.Time) error }); ok {
		d.SetDeadline(time.Now().Add(Patience))
		defer d.SetDeadline(time.Time{})
	}
	c, err := l.Accept()
	if err != nil {
		tb.Fatalf("testnet: %v", err)
	}
	tb.Cleanup(func() { c.Close() })
	return c
}
