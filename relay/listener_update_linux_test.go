package relay

import (
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
)

// next is a listener's configuration, to be changed and given to Update.
func (l *Listener) next() ListenConfig { return *l.cfg.Load() }

// A flow keeps the hooks and timeouts that it began with; those after it have the new ones.
func TestUpdate(t *testing.T) {
	for _, network := range []string{"tcp4", "unix"} {
		t.Run(network, func(t *testing.T) {
			r := newRig(t, Config{})
			first, second := newServer(t, "tcp4"), newServer(t, "tcp4")
			l := r.listen(network, ListenConfig{Value: 1}, first.addr)
			a1 := dial(t, l)
			b1 := first.accept(t)
			say(t, a1, b1, "one")

			updated := make(chan Record, 1)
			cfg := l.next()
			cfg.Value = 2
			cfg.Hooks.Upstream = func(*Flow, int) *Addr { return second.addr }
			cfg.Hooks.Done = func(rec *Record) {
				r.done(rec)
				updated <- *rec
			}
			if err := l.Update(cfg); err != nil {
				t.Fatal(err)
			}
			if l.Value() != 2 {
				t.Errorf("value %v", l.Value())
			}
			a2 := dial(t, l)
			b2 := second.accept(t)
			say(t, a2, b2, "two")
			say(t, b1, a1, "still one")
			a1.Close()
			b1.Close()
			if rec := r.record(); rec.Upstream != *first.addr {
				t.Errorf("%+v", rec)
			}
			select {
			case rec := <-updated:
				t.Errorf("the old flow's record went to the new hook: %+v", rec)
			default:
			}
			a2.Close()
			b2.Close()
			r.record()
			if rec := <-updated; rec.Upstream != *second.addr {
				t.Errorf("%+v", rec)
			}
			l.Close()
			if err := l.Update(cfg); !errors.Is(err, net.ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
		})
	}
}

func TestUpdateDatagrams(t *testing.T) {
	for _, network := range grams {
		t.Run(network, func(t *testing.T) {
			r := newDatagramRig(t, Config{})
			up := packetSocket(t, network)
			to, echo := gramAddr(up.LocalAddr()), gramEcho(t, network)
			l := r.listenAt(gramPlace(t, network), ListenConfig{}, &to)
			old, young := packetSocket(t, network), packetSocket(t, network)
			exchange(t, old, gramNet(l.Addr()), up)
			cfg := l.next()
			cfg.Hooks.Upstream = func(*Flow, int) *Addr { return echo }
			cfg.Datagram.Replies = 1
			cfg.Socket.RecvBuffer = 100_000
			if network != "unixgram" {
				cfg.Socket.DSCP = 46
			}
			if err := l.Update(cfg); err != nil {
				t.Fatal(err)
			}
			exchange(t, old, gramNet(l.Addr()), up)
			if _, err := young.WriteTo([]byte("hello"), gramNet(l.Addr())); err != nil {
				t.Fatal(err)
			}
			young.SetReadDeadline(time.Now().Add(patience))
			if _, _, err := young.ReadFrom(make([]byte, 16)); err != nil {
				t.Fatal(err)
			}
			r.expect(CauseAnswered)
			for _, p := range l.sockets() {
				fd := p.socket().fd
				if v, _ := sys.ReceiveBuffer.Get(sys.Linux{}, fd); v != 200_000 {
					t.Errorf("receive buffer %d", v)
				}
				if v, _ := sys.TypeOfService.Get(sys.Linux{}, fd); network == "udp4" && v != 46<<2 {
					t.Errorf("type of service %d", v)
				}
			}
		})
	}
}

// What a socket that listens can change is changed; what it cannot is an error, and nothing is.
func TestUpdateSockets(t *testing.T) {
	r := newRig(t, Config{Loops: 2})
	l := r.listen("tcp4", ListenConfig{Socket: SocketOptions{KeepAlive: time.Minute}}, echoServer(t, "tcp4"))
	cfg := l.next()
	cfg.Backlog = 1
	cfg.Socket = SocketOptions{Nagle: true, UserTimeout: time.Second, DSCP: 46, FastOpen: 7, Congestion: "reno", RecvBuffer: 100_000}
	if err := l.Update(cfg); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		for _, p := range l.sockets() {
			fd := p.socket().fd
			for o, want := range map[sys.Option]int{sys.NoDelay: 0, sys.KeepAlive: 0, sys.UserTimeout: 1000, sys.TypeOfService: 46 << 2,
				sys.FastOpen: 7, sys.ReceiveBuffer: 200_000} {
				if v, e := o.Get(sys.Linux{}, fd); v != want || e != 0 {
					t.Errorf("option %v: %d, %v, want %d", o, v, e, want)
				}
			}
			if name, _ := sys.Congestion(fd); name != "reno" {
				t.Errorf("congestion control %s", name)
			}
			// tcp(7): of a listener tcpi_sacked is the backlog.
			var info sys.TCPInfo
			if e := (sys.Linux{}).TCPInfo(fd, &info); e != 0 || info.Sacked != 1 {
				t.Errorf("backlog %d, %v", info.Sacked, e)
			}
		}
	}
	check()
	for option, change := range map[string]func(*ListenConfig){
		"SO_RCVBUF":       func(c *ListenConfig) { c.Socket.RecvBuffer = 0 },
		"TCP_CONGESTION":  func(c *ListenConfig) { c.Socket.Congestion = "" },
		"IPPROTO_MPTCP":   func(c *ListenConfig) { c.Socket.MPTCP = true },
		"SO_BINDTODEVICE": func(c *ListenConfig) { c.Socket.Interface = "lo" },
		"IP_TRANSPARENT":  func(c *ListenConfig) { c.Socket.Transparent = true },
		"Upstream":        func(c *ListenConfig) { c.Hooks.Upstream = nil },
		"DSCP":            func(c *ListenConfig) { c.Socket.DSCP = 64 },
	} {
		next := l.next()
		next.Socket.Nagle = false
		change(&next)
		if err := l.Update(next); err == nil || !strings.Contains(err.Error(), option) {
			t.Errorf("%s: %v", option, err)
		}
		check()
	}
	// One that the kernel refuses, after others were set.
	next := l.next()
	next.Socket.Nagle, next.Socket.UserTimeout, next.Socket.Congestion = false, time.Minute, "nonesuch"
	wantOption(t, l.Update(next), "TCP_CONGESTION", syscall.ENOENT)
	check()
}

func TestUpdateMode(t *testing.T) {
	r := newRig(t, Config{})
	l := r.listen("unix", ListenConfig{Mode: 0o600}, &Addr{Network: Discard})
	cfg := l.next()
	cfg.Mode = 0o640
	if err := l.Update(cfg); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(l.Addr().Path); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
}

// Updates while clients come, and while the engine drains.
func TestUpdateUnderLoad(t *testing.T) {
	r := newRig(t, Config{})
	up := echoServer(t, "tcp4")
	l := r.listen("tcp4", ListenConfig{}, up)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Microsecond): // without rest it keeps the clients from a machine's only CPU
			}
			cfg := l.next()
			cfg.Value = i
			cfg.Socket.DSCP = uint8(i % 64)
			if err := l.Update(cfg); err != nil && !errors.Is(err, net.ErrClosed) {
				t.Error(err)
				return
			}
		}
	})
	for range 200 {
		a := dial(t, l)
		say(t, a, a, "hello")
		a.Close()
		r.expect(CauseEnd)
	}
	if err := r.e.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	close(stop)
	wg.Wait()
}

// A socket that somebody else has bound is served as one of the engine's own.
func TestListenOnPacket(t *testing.T) {
	for _, network := range grams {
		t.Run(network, func(t *testing.T) {
			r := newDatagramRig(t, Config{})
			up := packetSocket(t, network)
			to := gramAddr(up.LocalAddr())
			in := packetSocket(t, network)
			at := in.LocalAddr()
			l, err := r.e.ListenOnPacket(in, ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return &to }, Done: r.done}})
			if err != nil {
				t.Fatal(err)
			}
			if l.Addr() != gramAddr(at) {
				t.Errorf("address %v, want %v", l.Addr(), at)
			}
			if _, err := in.WriteTo(nil, at); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the caller's socket: %v", err)
			}
			exchange(t, packetSocket(t, network), at, up)
			if err := l.Update(l.next()); err != nil {
				t.Error(err)
			}
			l.Close()
			r.expect(CauseClosed)
			if network == "unixgram" {
				if _, err := os.Stat(at.String()); err != nil {
					t.Errorf("the path, which somebody else has made: %v", err)
				}
			}
		})
	}
}

// Bound to no address, the socket answers from the one that was asked.
func TestListenOnPacketWild(t *testing.T) {
	r := newDatagramRig(t, Config{})
	in, err := net.ListenPacket("udp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	up := packetSocket(t, "udp4")
	to := gramAddr(up.LocalAddr())
	l, err := r.e.ListenOnPacket(in, ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return &to }, Done: r.done}})
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, packetSocket(t, "udp4"), &net.UDPAddr{IP: net.IPv4(127, 0, 0, 9), Port: int(l.Addr().AddrPort.Port())}, up)
}

func TestListenOnPacketErrors(t *testing.T) {
	r := newDatagramRig(t, Config{})
	in := packetSocket(t, "udp4")
	cfg := ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return nil }}}
	if _, err := r.e.ListenOnPacket(in, ListenConfig{}); err == nil {
		t.Error("no hook is taken")
	}
	bad := cfg
	bad.Socket.Interface = "nonesuch"
	_, err := r.e.ListenOnPacket(in, bad)
	wantOption(t, err, "SO_BINDTODEVICE", syscall.ENODEV)
	if _, err := r.e.ListenOnPacket(notPacket{in}, cfg); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("no socket: %v", err)
	}
	stream, _ := testnet.Pair(t, "unix")
	if _, err := r.e.ListenOnPacket(stream.(*net.UnixConn), cfg); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a stream: %v", err)
	}
	r.e.Close()
	if _, err := r.e.ListenOnPacket(in, cfg); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed engine: %v", err)
	}
	if _, err := in.WriteTo([]byte("hello"), in.LocalAddr()); err != nil {
		t.Errorf("after an error the socket is the caller's: %v", err)
	}
}

// notPacket hides the descriptor.
type notPacket struct{ net.PacketConn }
