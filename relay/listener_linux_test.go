package relay

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

func TestListenErrors(t *testing.T) {
	r := newRig(t, Config{})
	up := func(*Flow, int) *Addr { return nil }
	taken := testnet.Listen(t, "tcp4")
	long := string(make([]byte, 200))
	for _, c := range []struct {
		addr Addr
		is   error
	}{
		{Addr{}, nil},
		{Addr{Network: Echo}, nil},
		{Addr{Network: TCP}, nil},
		{*fromNet(taken.Addr()), syscall.EADDRINUSE},
		{Addr{Network: TCP, AddrPort: netip.MustParseAddrPort("192.0.2.1:0")}, syscall.EADDRNOTAVAIL},
		{Addr{Network: Unix}, nil},
		{Addr{Network: Unix, Path: "@"}, nil},
		{Addr{Network: Unix, Path: "/" + long}, nil},
		{Addr{Network: Unix, Path: filepath.Join(t.TempDir(), "no", "folder")}, syscall.ENOENT},
	} {
		if _, err := r.e.Listen(c.addr, ListenConfig{Hooks: Hooks{Upstream: up}}); err == nil || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("listen on %v: %v, want %v", c.addr, err, c.is)
		}
	}
}

// A loop has its own socket on the port; all of them accept.
func TestReusePort(t *testing.T) {
	r := newRig(t, Config{Loops: 3})
	l := r.listen("tcp4", ListenConfig{}, echoServer(t, "unix"))
	for range 60 {
		c := dial(t, l)
		say(t, c, c, "hello")
		c.Close()
		r.expect(CauseEnd)
	}
	s := r.e.Stats()
	for i := range s.Loops {
		if s.Loops[i].Accepted == 0 {
			t.Errorf("loop %d accepted none of 60 clients", i)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := l.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a second Close: %v", err)
	}
	if c, err := net.Dial("tcp", l.Addr().AddrPort.String()); err == nil {
		c.Close()
		t.Error("somebody still listens")
	}
}

// The loops share the clients of a listener that is one socket.
func TestSharedListenersTakeTurns(t *testing.T) {
	for _, how := range []string{"unix", "serve unix", "serve tcp4"} {
		t.Run(how, func(t *testing.T) {
			const loops, clients = 3, 42
			r := newRig(t, Config{Loops: loops})
			var l *Listener
			hooks := Hooks{Upstream: func(*Flow, int) *Addr { return &Addr{Network: Echo} }, Done: r.done}
			if network, ok := strings.CutPrefix(how, "serve "); ok {
				var err error
				if l, err = r.e.ListenOn(testnet.Unwrap(testnet.Listen(t, network)), ListenConfig{Hooks: hooks}); err != nil {
					t.Fatal(err)
				}
			} else {
				l = r.listen(how, ListenConfig{Hooks: hooks})
			}
			var open []net.Conn
			for i := range clients {
				c := dial(t, l)
				say(t, c, c, fmt.Sprintf("client %d", i))
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
				if rec := r.expect(CauseEnd); how == "serve tcp4" && rec.Client != *fromNet(c.LocalAddr()) {
					t.Errorf("client %v, want %v", rec.Client, c.LocalAddr())
				}
			}
		})
	}
}

// A path that a dead process left behind is taken over; one that somebody
// listens on is not, and neither is a file that is not a socket.
func TestUnixPath(t *testing.T) {
	r := newRig(t, Config{})
	path := socketPath(t)
	t.Cleanup(func() { os.Remove(path) })
	old, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	cfg := ListenConfig{Mode: 0o600, Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return &Addr{Network: Echo} }, Done: r.done}}
	at := Addr{Network: Unix, Path: path}
	if _, err := r.e.Listen(at, cfg); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a path in use: %v", err)
	}
	old.SetUnlinkOnClose(false)
	old.Close()
	l, err := r.e.Listen(at, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st, err)
	}
	if _, err := r.e.Listen(at, cfg); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a path of our own in use: %v", err)
	}
	c := dial(t, l)
	say(t, c, c, "hello")
	l.Close()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the path is still there: %v", err)
	}
	say(t, c, c, "a flow outlives its listener")
	c.Close()
	if rec := r.expect(CauseEnd); rec.Client.Network != Unix || rec.Listener != l {
		t.Errorf("%+v", rec)
	}
	file := filepath.Join(t.TempDir(), "precious")
	os.WriteFile(file, []byte("precious"), 0o600)
	if _, err := r.e.Listen(Addr{Network: Unix, Path: file}, cfg); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a file: %v", err)
	}
	if text, _ := os.ReadFile(file); string(text) != "precious" {
		t.Error("a file was removed")
	}
}

func TestAbstract(t *testing.T) {
	r := newRig(t, Config{})
	up := echoServer(t, "abstract")
	l, err := r.e.Listen(Addr{Network: Unix, Path: fmt.Sprintf("@penstock-relay-%d", os.Getpid())}, ListenConfig{Hooks: Hooks{
		Upstream: func(_ *Flow, attempt int) *Addr { return up }, Done: r.done}})
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, l)
	say(t, c, c, "hello")
	if n := c.RemoteAddr().String(); n != l.Addr().Path {
		t.Errorf("connected to %q", n)
	}
	c.Close()
	if rec := r.expect(CauseEnd); rec.Upstream.Path != up.Path || rec.Upstream.String() != "unix:"+up.Path {
		t.Errorf("%+v", rec)
	}
}

// Listeners that somebody else has bound, as a supervisor hands them down.
func TestServe(t *testing.T) {
	for _, network := range []string{"tcp4", "unix", "abstract"} {
		t.Run("net="+network, func(t *testing.T) {
			r := newRig(t, Config{})
			in := testnet.Unwrap(testnet.Listen(t, network))
			early := testnet.Dial(t, in.Addr()) // waits in its queue already
			l, err := r.e.ListenOn(in, ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return &Addr{Network: Echo} }, Done: r.done}})
			if err != nil {
				t.Fatal(err)
			}
			if l.Addr() != *fromNet(in.Addr()) {
				t.Errorf("address %v, was %v", l.Addr(), in.Addr())
			}
			if _, err := in.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the listener is still its maker's: %v", err)
			}
			say(t, early, early, "early")
			late := dial(t, l)
			say(t, late, late, "late")
			early.Close()
			late.Close()
			r.expect(CauseEnd)
			r.expect(CauseEnd)
			l.Close()
			if c, err := net.Dial(in.Addr().Network(), in.Addr().String()); err == nil {
				c.Close()
				t.Error("somebody still listens")
			}
		})
	}
	t.Run("others", func(t *testing.T) {
		r := newRig(t, Config{})
		up := ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return nil }}}
		if _, err := r.e.ListenOn(noListener{}, up); !errors.Is(err, errors.ErrUnsupported) {
			t.Error(err)
		}
		p, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: socketPath(t)})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if _, err := r.e.ListenOn(p, up); !errors.Is(err, errors.ErrUnsupported) {
			t.Error(err)
		}
		p.SetDeadline(time.Now().Add(time.Millisecond))
		if _, err := p.Accept(); errors.Is(err, net.ErrClosed) {
			t.Error("what was refused was closed")
		}
	})
}

type noListener struct{ net.Listener }

// busyLoop makes a listener on an engine of one loop whose first client keeps
// the loop in a hook, so that those after it wait in the accept queue.
func busyLoop(r *rig, network string) (l *Listener, release func()) {
	hold, entered := make(chan bool), make(chan bool, 1)
	first := true
	l = r.listen(network, ListenConfig{Hooks: Hooks{
		Admit: func(*Flow) Cause {
			if first {
				first = false
				entered <- true
				<-hold
			}
			return CauseNone
		},
		Upstream: func(*Flow, int) *Addr { return &Addr{Network: Echo} },
	}})
	c := dial(r.t, l)
	<-entered
	closeWrite(r.t, c)
	return l, func() { close(hold) }
}

// Closing a listener, or draining, takes those who wait in the accept queue:
// for them the connection is made already.
func TestAcceptQueueIsTaken(t *testing.T) {
	for _, network := range []string{"tcp4", "unix"} {
		for _, how := range []string{"listener", "drain"} {
			t.Run("net="+network+"/by="+how, func(t *testing.T) {
				r := newRig(t, Config{Loops: 1})
				r.k.StopClock()
				l, release := busyLoop(r, network)
				const clientCount = 100 // more than one burst
				var clients []net.Conn
				for range clientCount {
					clients = append(clients, dial(t, l))
				}
				ended := make(chan error, 1)
				go func() {
					if how == "drain" {
						ended <- r.e.Drain(t.Context())
					} else {
						ended <- l.Close()
					}
				}()
				testwait.Until(t, "the loop is told", func() bool {
					r.e.mu.Lock()
					defer r.e.mu.Unlock()
					return len(r.e.listeners) == 0
				})
				release()
				for i, c := range clients {
					text := fmt.Sprintf("client %d", i)
					if _, err := io.WriteString(c, text); err != nil {
						t.Fatalf("client %d: %v", i, err)
					}
					hear(t, c, text)
					c.Close()
				}
				if err := <-ended; err != nil {
					t.Error(err)
				}
				for range clientCount + 1 {
					r.expect(CauseEnd)
				}
			})
		}
	}
}
