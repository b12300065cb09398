package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// What an engine that drains leaves to the next process: whoever is new is served by one of the two, or is told at once that
// nobody is there. UDP is in datagram_close_linux_test.go.

// TCP clients that come while a listener closes and another process has the port: the kernel moves those whose handshakes
// are not over, or who come too late, to the other one.
func TestDrainLeavesTCPToNextProcess(t *testing.T) {
	if !testnet.Netns(t) {
		return
	}
	if _, err := os.Stat("/proc/sys/net/ipv4/tcp_migrate_req"); err != nil {
		t.Skip("net.ipv4.tcp_migrate_req is of Linux 5.14:", err)
	}
	testnet.Sysctl(t, "net.ipv4.tcp_migrate_req", "1")
	r, s := newRig(t, Config{Loops: 4}), newRig(t, Config{Loops: 4})
	t.Cleanup(func() { r.e.Close() })
	l := r.listen("tcp4", ListenConfig{}, &Addr{Network: Echo})
	old := dial(t, l)
	say(t, old, old, "hello")
	if _, err := s.e.Listen(l.Addr(), ListenConfig{Hooks: Hooks{Done: s.done, Upstream: func(*Flow, int) *Addr { return &Addr{Network: Echo} }}}); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var served atomic.Int64
	for range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				c, err := net.Dial("tcp4", l.Addr().AddrPort.String())
				if err == nil {
					err = said(c, c, fmt.Sprint(i))
					c.Close()
					served.Add(1)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	testwait.Until(t, "clients are served", func() bool { return served.Load() >= 20 })
	drained := make(chan error, 1)
	go func() { drained <- r.e.Drain(context.Background()) }()
	testwait.Until(t, "the listeners have closed", func() bool { return len(r.listening()) == 0 })
	close(stop)
	wg.Wait()
	say(t, old, old, "it goes on")
	old.Close()
	if err := <-drained; err != nil {
		t.Error(err)
	}
}

// listening returns the ports of streams that accept clients or close.
func (r *rig) listening() (ports []*streamPort) {
	var mu sync.Mutex
	r.e.each(func(s *streams) {
		mu.Lock()
		defer mu.Unlock()
		ports = append(append(ports, s.ports...), s.closingPorts...)
	})
	return ports
}

// The path of a Unix socket is another process's as soon as an engine drains.
func TestDrainLeavesPathToNextProcess(t *testing.T) {
	t.Run("unix", func(t *testing.T) {
		r, s := newRig(t, Config{}), newRig(t, Config{})
		t.Cleanup(func() { r.e.Close() })
		l := r.listen("unix", ListenConfig{}, &Addr{Network: Echo})
		old := dial(t, l)
		say(t, old, old, "hello")
		drained := make(chan error, 1)
		go func() { drained <- r.e.Drain(context.Background()) }()
		testwait.Until(t, "new clients are told that nobody is there", func() bool {
			c, err := net.Dial("unix", l.Addr().Path)
			if err == nil {
				c.Close()
			}
			return errors.Is(err, syscall.ENOENT)
		})
		if _, err := s.e.Listen(l.Addr(), ListenConfig{Hooks: Hooks{Done: s.done, Upstream: func(*Flow, int) *Addr { return &Addr{Network: Discard} }}}); err != nil {
			t.Fatal(err)
		}
		c := dial(t, l)
		io.WriteString(c, "to the next")
		testwait.Until(t, "it is served", func() bool { s := s.e.Stats(); return s.Total().BytesRead == 11 })
		c.Close()
		say(t, old, old, "it goes on")
		old.Close()
		if err := <-drained; err != nil {
			t.Error(err)
		}
		if !sys.IsSocket(l.Addr().Path) {
			t.Error("the path is gone")
		}
	})
	t.Run("unixgram", func(t *testing.T) {
		r, s := twoRigs(t, 2)
		l := r.listenAt(gramPlace(t, "unixgram"), ListenConfig{}, gramNamed(t, "one "))
		old, err := net.DialUnix("unixgram", &net.UnixAddr{Net: "unixgram", Name: unixPlace(t)}, gramNet(l.Addr()).(*net.UnixAddr))
		if err != nil {
			t.Fatal(err)
		}
		defer old.Close()
		ask := func(text string) {
			t.Helper()
			if _, err := old.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
			hearGram(t, old, "one "+text)
		}
		ask("hello")
		go r.e.Drain(t.Context())
		c := packetSocket(t, "unixgram")
		testwait.Until(t, "new clients are told that nobody is there", func() bool {
			_, err := c.WriteTo([]byte("hello"), gramNet(l.Addr()))
			return errors.Is(err, syscall.ENOENT)
		})
		s.listenAt(l.Addr(), ListenConfig{}, gramNamed(t, "two "))
		c = packetSocket(t, "unixgram")
		tellGram(t, c, l.Addr(), "hello")
		hearGram(t, c, "two hello")
		ask("it goes on") // a client that is connected has the socket, and not its path
	})
}

// Nobody else can have the abstract name of a socket while it is there, and the next process is started with an inherited
// one when this one has ended. So both go on to serve who is new.
func TestDrainServesWhereNobodyElseCan(t *testing.T) {
	for _, what := range []string{"abstract", "udp4", "unixgram"} {
		t.Run(what, func(t *testing.T) {
			r, s := twoRigs(t, 2)
			one, two := gramNamed(t, "one "), gramNamed(t, "two ")
			network := what
			var at Addr
			var next func() error
			if what == "abstract" {
				network, at = "unixgram", Addr{Network: Unixgram, Path: "@" + unixPlace(t)}
				r.listenAt(at, ListenConfig{}, one)
				next = func() error {
					_, err := s.e.Listen(at, ListenConfig{Hooks: Hooks{Done: s.done, Upstream: func(*Flow, int) *Addr { return two }}})
					return err
				}
				if err := next(); !errors.Is(err, syscall.EADDRINUSE) {
					t.Fatalf("the next process: %v", err)
				}
			} else {
				manager := packetSocket(t, network)
				at = gramAddr(manager.LocalAddr())
				inherit := func(r *rig, to *Addr) error {
					f, err := manager.(interface{ File() (*os.File, error) }).File()
					if err != nil {
						return err
					}
					defer f.Close()
					c, err := net.FilePacketConn(f)
					if err == nil {
						_, err = r.e.ListenOnPacket(c, ListenConfig{Hooks: Hooks{Done: r.done, Upstream: func(*Flow, int) *Addr { return to }}})
					}
					return err
				}
				if err := inherit(r, one); err != nil {
					t.Fatal(err)
				}
				next = func() error { return inherit(s, two) }
			}
			ask := func(c net.PacketConn, from, text string) {
				t.Helper()
				tellGram(t, c, at, text)
				hearGram(t, c, from+text)
			}
			old := packetSocket(t, network)
			ask(old, "one ", "hello")
			ctx, cancel := context.WithCancel(t.Context())
			drained := make(chan error, 1)
			go func() { drained <- r.e.Drain(ctx) }()
			testwait.Until(t, "the engine drains", func() bool { return r.e.stopping.Load() })
			for range 40 {
				ask(packetSocket(t, network), "one ", "hello")
			}
			ask(old, "one ", "it goes on")
			cancel()
			<-drained
			r.e.Close()
			if err := next(); err != nil {
				t.Fatal(err)
			}
			ask(packetSocket(t, network), "two ", "hello")
		})
	}
}

// Clients of an inherited listener wait in its queue for the next process.
func TestDrainLeavesQueueToNextProcess(t *testing.T) {
	for _, network := range []string{"tcp4", "unix"} {
		t.Run(network, func(t *testing.T) {
			r, s := newRig(t, Config{}), newRig(t, Config{})
			t.Cleanup(func() { r.e.Close() })
			manager := testnet.Unwrap(testnet.Listen(t, network))
			inherit := func(r *rig) {
				t.Helper()
				f, err := manager.(interface{ File() (*os.File, error) }).File()
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				l, err := net.FileListener(f)
				if err != nil {
					t.Fatal(err)
				}
				if _, err = r.e.ListenOn(l, ListenConfig{Hooks: Hooks{Done: r.done, Upstream: func(*Flow, int) *Addr { return &Addr{Network: Echo} }}}); err != nil {
					t.Fatal(err)
				}
			}
			inherit(r)
			old := testnet.Dial(t, manager.Addr())
			say(t, old, old, "hello")
			drained := make(chan error, 1)
			go func() { drained <- r.e.Drain(context.Background()) }()
			testwait.Until(t, "the listeners have closed", func() bool { return len(r.listening()) == 0 })
			var queue []net.Conn
			for range 20 {
				c := testnet.Dial(t, manager.Addr())
				io.WriteString(c, "first")
				queue = append(queue, c)
			}
			inherit(s)
			for _, c := range queue {
				hear(t, c, "first")
			}
			say(t, old, old, "it goes on")
			old.Close()
			if err := <-drained; err != nil {
				t.Error(err)
			}
		})
	}
}
