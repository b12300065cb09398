package relay

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/relay/hold"
)

// Clients that wait in the queues of a process that was killed are served by the next one, however
// many loops it has, and so are those that come while there is none.
func TestQueuedClientsOutliveProcess(t *testing.T) {
	const clients = 100
	for _, network := range []string{"tcp4", "unix"} {
		for _, loops := range [][2]int{{2, 2}, {3, 1}, {1, 3}} {
			t.Run(fmt.Sprintf("%s/loops=%d,%d", network, loops[0], loops[1]), func(t *testing.T) {
				k := newKeptTable(t)
				upstream := echoServer(t, "tcp4")
				o := keptOrder{Loops: loops[0], Listen: []string{keptPlace(t, network)}, Upstream: upstream.String()}
				p := k.start(o)
				o.Listen = p.urls()
				// It is stopped, so that it cannot accept, and then killed.
				p.stop()
				var all []net.Conn
				for range clients {
					all = append(all, testnet.Dial(t, toNet(p.addrs[0])))
				}
				p.kill()
				for range clients {
					all = append(all, testnet.Dial(t, toNet(p.addrs[0])))
				}
				o.Loops = loops[1]
				next := k.start(o)
				if next.addrs[0] != p.addrs[0] {
					t.Errorf("it listens on %v, and did on %v", next.addrs[0], p.addrs[0])
				}
				all = append(all, testnet.Dial(t, toNet(next.addrs[0])))
				for i, c := range all {
					say(t, c, c, fmt.Sprintf("client %d", i))
					c.Close()
				}
				want := loops[0]
				if network == "unix" {
					want = 1
				}
				if network != "unix" && loops[1] > want {
					want = loops[1]
				}
				k.expect(holdListener, want)
			})
		}
	}
}

func keptPlace(t *testing.T, network string) string {
	switch network {
	case "tcp4":
		return "tcp://127.0.0.1:" + testnet.Port(t)
	case "udp4":
		return "udp://127.0.0.1:" + testnet.Port(t)
	case "unixgram":
		return "unixgram://" + unixPlace(t)
	}
	return "unix://" + socketPath(t)
}

// A listener that is closed is not held any more, and nobody can reach it; one that nobody asks for
// is closed by the next process.
func TestClosedListenerIsNotHeld(t *testing.T) {
	k := newKeptTable(t)
	o := keptOrder{Listen: []string{keptPlace(t, "tcp4"), keptPlace(t, "unix"), keptPlace(t, "udp4"), keptPlace(t, "unixgram")}, Upstream: "echo:"}
	p := k.start(o)
	o.Listen = p.urls()
	k.expect(holdListener, 2+1+2+1)
	p.kill()
	o.Listen = o.Listen[:1]
	p = k.start(o)
	k.expect(holdListener, 2)
	if labels := k.labels(holdListener); len(labels) != 1 || labels[0] != o.Listen[0] {
		t.Errorf("held: %v", labels)
	}
	p.ask("close")
	k.expect(holdListener, 0)
	if c, err := net.DialTimeout("tcp", toNet(p.addrs[0]).String(), patience); err == nil {
		c.Close()
		t.Error("somebody still listens")
	}
}

// A next process sets the options that differ, as Update does, and binds anew where that is not possible.
func TestOptionsOfHeldListener(t *testing.T) {
	k := newKeptTable(t)
	o := keptOrder{Loops: 1, Listen: []string{keptPlace(t, "tcp4"), keptPlace(t, "udp4")}, Upstream: "echo:"}
	o.Socket = SocketOptions{Nagle: true, KeepAlive: 30 * time.Second, DSCP: 10, UserTimeout: 7 * time.Second}
	p := k.start(o)
	o.Listen = p.urls()
	onLinux := &Engine{&core{shared: shared{kernel: sys.Linux{}}}}
	for _, next := range []SocketOptions{
		{KeepAlive: 40 * time.Second, KeepAliveInterval: 5 * time.Second, KeepAliveCount: 3, RecvBuffer: 100_000},
		{DSCP: 46},
		o.Socket,
	} {
		p.kill()
		o.Socket = next
		p = k.start(o)
		k.expect(holdListener, 2)
		for _, x := range k.heldOf(holdListener) {
			tcp := x.Label[:3] == "tcp"
			got, err := (&Listener{engine: onLinux, addr: p.addrs[0]}).optionsOf(x.FDs[0], &next)
			if !tcp {
				got, err = (&Listener{engine: onLinux, addr: p.addrs[1]}).optionsOf(x.FDs[0], &next)
			}
			got.RecvBuffer = next.RecvBuffer
			if err != nil || got != next {
				t.Errorf("%s has %+v, want %+v", x.Label, got, next)
			}
		}
	}
}

// A listener that is closed has its sockets dropped at once: until the holder closes them, the address is in use.
func TestClosedListenerIsDroppedAtOnce(t *testing.T) {
	for _, network := range []string{"tcp4", "udp4", "unix"} {
		t.Run(network, func(t *testing.T) {
			h := &flushedHolder{dropped: make(map[holdKey]bool)}
			r := newRig(t, Config{Loops: 2, Keep: &hold.Keep{Holder: h}})
			at, err := ParseAddr(keptPlace(t, network))
			if err != nil {
				t.Fatal(err)
			}
			l, err := r.e.Listen(at, ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return nil }}})
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			if len(h.dropped) == 0 {
				t.Error("no socket was dropped")
			}
			for key, flushed := range h.dropped {
				if !flushed {
					t.Errorf("Drop of %x was not followed by Flush", key)
				}
			}
		})
	}
}

// flushedHolder notes which sockets of listeners were dropped, and if that was flushed.
type flushedHolder struct {
	nobody
	mu      sync.Mutex
	dropped map[holdKey]bool
}

func (h *flushedHolder) Drop(key [2]uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if kindOf(key) == holdListener {
		h.dropped[key] = false
	}
}

func (h *flushedHolder) Flush() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key := range h.dropped {
		h.dropped[key] = true
	}
	return nil
}

// Of two sockets that were bound to a path, one that was being closed and the one after it, the next process
// takes that which clients reach.
func TestHeldListenersOfPath(t *testing.T) {
	for _, network := range []string{"unix", "unixgram"} {
		t.Run(network, func(t *testing.T) {
			k := newKeptTable(t)
			at := keptPlace(t, network)
			o := keptOrder{Loops: 2, Listen: []string{at}, Upstream: "echo:"}
			proc := k.start(o)
			path := proc.addrs[0].Path
			proc.kill()
			for n := range uint64(2) {
				os.Remove(path)
				key := newHoldKey(holdListener, 0, 100+n, 1)
				k.message(keptMessage('h', key, at), []int{boundTo(t, network, path)})
			}
			proc = k.start(o)
			if network == "unix" {
				c := testnet.Dial(t, toNet(proc.addrs[0]))
				say(t, c, c, "anybody")
			} else {
				askGram(t, packetSocket(t, network), proc.addrs[0], "anybody")
			}
			k.expect(holdListener, 1)
		})
	}
}

// boundTo returns a socket that was bound to a path.
func boundTo(t *testing.T, network, path string) int {
	t.Helper()
	var c io.Closer
	var err error
	if network == "unix" {
		c, err = net.ListenUnix(network, &net.UnixAddr{Net: network, Name: path})
	} else {
		c, err = net.ListenUnixgram(network, &net.UnixAddr{Net: network, Name: path})
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if l, ok := c.(*net.UnixListener); ok {
		l.SetUnlinkOnClose(false)
	}
	f, err := c.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, e := sys.Dup(int(f.Fd()))
	if e != 0 {
		t.Fatal(e)
	}
	sys.SetNonblock(fd)
	return fd
}

// A listener that is closed before Restore leaves the sockets of an earlier process as they were: to whoever listens there next, and to
// the next process, which may not be allowed to bind the address.
func TestClosedBeforeRestore(t *testing.T) {
	for _, network := range []string{"tcp4", "unix"} {
		t.Run(network, func(t *testing.T) {
			place := keptPlace(t, network)
			at, err := ParseAddr(place)
			if err != nil {
				t.Fatal(err)
			}
			var plain net.ListenConfig
			plain.SetMultipathTCP(false)
			before, err := plain.Listen(t.Context(), network, toNet(at).String())
			if err != nil {
				t.Fatal(err)
			}
			defer before.Close()
			f, err := before.(interface{ File() (*os.File, error) }).File()
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			fd, e := sys.Dup(int(f.Fd()))
			if e != 0 {
				t.Fatal(e)
			}
			h := &flushedHolder{dropped: make(map[holdKey]bool)}
			r := newRig(t, Config{Loops: 1, Keep: &hold.Keep{Holder: h, Held: []hold.Held{{Key: newHoldKey(holdListener, 0, 0, 1), Label: at.String(), FDs: []int{fd}}}}})
			cfg := ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return nil }}}
			for range 2 {
				l, err := r.e.Listen(at, cfg)
				if err != nil {
					t.Fatal(err)
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
			h.mu.Lock()
			if len(h.dropped) > 0 {
				t.Errorf("%d sockets were dropped", len(h.dropped))
			}
			h.mu.Unlock()
			testnet.Dial(t, before.Addr()).Close() // the socket listens still
		})
	}
}

// The options of a listener of multipath TCP can be read, though it has not all of them: the next process takes it over.
func TestOptionsOfMultipath(t *testing.T) {
	if !sys.HasMultipath() {
		t.Skip("no multipath TCP here")
	}
	fd, e := sys.Linux{}.Socket(sys.IPv4, true)
	if e != 0 {
		t.Fatal(e)
	}
	defer sys.Linux{}.Close(fd)
	for _, want := range []SocketOptions{{MPTCP: true}, {MPTCP: true, UserTimeout: 5 * time.Second}} {
		l := &Listener{addr: Addr{Network: TCP}, engine: &Engine{core: &core{shared: shared{kernel: sys.Linux{}}}}}
		was, err := l.optionsOf(fd, &want)
		if err != nil || l.unchangeableOption(&want, &was) != nil || was.UserTimeout != want.UserTimeout {
			t.Errorf("%v, %+v", err, was)
		}
	}
}
