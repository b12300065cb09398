package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
)

// control makes a socket option call on a descriptor that the net package has
// not bound or connected yet.
func control(set func(fd int) sys.Errno) func(string, string, syscall.RawConn) error {
	return func(_, _ string, rc syscall.RawConn) error {
		var e sys.Errno
		if err := rc.Control(func(fd uintptr) { e = set(int(fd)) }); err != nil {
			return err
		}
		if e != 0 {
			return e
		}
		return nil
	}
}

// asked gives what f says of a connection's descriptor.
func asked[T any](t *testing.T, c any, f func(fd int) T) (v T) {
	t.Helper()
	rc, err := c.(syscall.Conn).SyscallConn()
	if err == nil {
		err = rc.Control(func(fd uintptr) { v = f(int(fd)) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func get(o sys.Option) func(fd int) int {
	return func(fd int) int {
		v, e := o.Get(sys.Linux{}, fd)
		if e != 0 {
			return -1
		}
		return v
	}
}

// seen collects what the hook Connected sees of a flow's sockets.
func seen[T any](look func(f *Flow) T) (hook func(*Flow, *Addr, time.Duration, error), got func() T) {
	var mu sync.Mutex
	var v T
	hook = func(f *Flow, _ *Addr, _ time.Duration, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			v = look(f)
		}
	}
	got = func() T {
		mu.Lock()
		defer mu.Unlock()
		return v
	}
	return hook, got
}

func congestions(f *Flow) (names [2]string) {
	for side := range names {
		names[side], _ = sys.Congestion(int(streamOf(f).fd[side]))
	}
	return names
}

func TestCongestion(t *testing.T) {
	if !testnet.Netns(t) { // where any control may be had, not only allowed ones
		return
	}
	list, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	if err != nil {
		t.Fatal(err)
	}
	other := ""
	for _, name := range strings.Fields(string(list)) {
		if name != "reno" {
			other = name
		}
	}
	if other == "" {
		t.Skip("this kernel has no congestion control but reno")
	}
	r := newRig(t, Config{})
	hook, got := seen(congestions)
	up := echoServer(t, "tcp4")
	for _, c := range [][2]string{{"reno", "reno"}, {"reno", other}, {other, "reno"}} {
		l := r.listen("tcp4", ListenConfig{
			Socket: SocketOptions{Congestion: c[0]}, Dial: &DialConfig{Socket: SocketOptions{Congestion: c[1]}},
			Hooks: Hooks{Connected: hook},
		}, up)
		a := dial(t, l)
		say(t, a, a, "hello")
		if g := got(); g != c {
			t.Errorf("the sides have %v, want %v", g, c)
		}
		a.Close()
		r.expect(CauseEnd)
	}
}

// An option that fails is an error that names it, at Listen or of the attempt.
func TestOptionErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		o    SocketOptions
		want error
	}{
		{"TCP_CONGESTION", SocketOptions{Congestion: "nonesuch"}, syscall.ENOENT},
		{"SO_BINDTODEVICE", SocketOptions{Interface: "nonesuch"}, syscall.ENODEV},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Config{})
			hooks := Hooks{Upstream: func(*Flow, int) *Addr { return nil }}
			_, err := r.e.Listen(r.place("tcp4"), ListenConfig{Socket: c.o, Hooks: hooks})
			wantOption(t, err, c.name, c.want)
			wantTurnedAway(t, r.listen("tcp4", ListenConfig{Dial: &DialConfig{Socket: c.o}}, echoServer(t, "tcp4")))
			wantOption(t, r.expect(CauseNoUpstream).Err, c.name, c.want)
		})
	}
	if err := (&optionError{&transparent, sys.EPERM}); !strings.Contains(err.Error(), "IP_TRANSPARENT") || !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
		t.Errorf("without the right: %v", err)
	}
	for _, o := range []SocketOptions{{DSCP: 64}, {FastOpen: -1}} {
		for _, cfg := range []ListenConfig{{Socket: o}, {Dial: &DialConfig{Socket: o}}} {
			cfg.Hooks.Upstream = func(*Flow, int) *Addr { return nil }
			if _, err := complete(cfg); err == nil {
				t.Errorf("%+v is taken", o)
			}
		}
	}
}

func wantOption(t *testing.T, err error, name string, want error) {
	t.Helper()
	if !errors.Is(err, want) || !strings.Contains(err.Error(), name) {
		t.Errorf("%v, want one of %s that is %v", err, name, want)
	}
}

// With a range of one port, a source has it for each upstream on TCP.
func TestSource(t *testing.T) {
	if !testnet.Netns(t) {
		return
	}
	r := newRig(t, Config{Loops: 1})
	servers := [3]*server{newServer(t, "tcp4"), newServer(t, "tcp4"), newServer(t, "tcp4")}
	testnet.Sysctl(t, "net.ipv4.ip_local_port_range", "40000 40000")
	d := &DialConfig{Source: []netip.Addr{netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("::1"), netip.MustParseAddr("127.0.0.3")}}
	cfg := ListenConfig{Dial: d}
	from := make(map[string]int)
	for _, s := range servers {
		l := r.listen("unix", cfg, s.addr)
		for range 2 {
			a := dial(t, l)
			b := s.accept(t)
			say(t, a, b, "hello")
			from[b.RemoteAddr().String()]++
		}
	}
	if len(from) != 2 || from["127.0.0.2:40000"] != 3 || from["127.0.0.3:40000"] != 3 {
		t.Errorf("upstreams saw %v", from)
	}
	// An address of the other family cannot be a source; neither can a client on a Unix socket.
	for _, d := range []*DialConfig{{Source: d.Source[1:2]}, {FromClient: true}} {
		a := dial(t, r.listen("unix", ListenConfig{Dial: d}, servers[0].addr))
		wantEnd(t, a)
		if rec := r.expect(CauseNoUpstream); rec.Err != errNoSource {
			t.Errorf("%v, want %v", rec.Err, errNoSource)
		}
	}
}

func TestDatagramSource(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	up := packetSocket(t, "udp4")
	to := gramAddr(up.LocalAddr())
	d := &DialConfig{Source: []netip.Addr{netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3")}}
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Hooks: Hooks{Upstream: func(f *Flow, _ int) *Addr {
		f.SetDial(d)
		return &to
	}}})
	from := make(map[string]int)
	for range 4 {
		a := packetSocket(t, "udp4")
		if _, err := a.WriteTo([]byte("hello"), gramNet(l.Addr())); err != nil {
			t.Fatal(err)
		}
		up.SetReadDeadline(time.Now().Add(patience))
		_, peer, err := up.ReadFrom(make([]byte, 16))
		if err != nil {
			t.Fatal(err)
		}
		from[peer.(*net.UDPAddr).IP.String()]++
	}
	if from["127.0.0.2"] != 2 || from["127.0.0.3"] != 2 {
		t.Errorf("the upstream saw %v", from)
	}
}

// Packets with the mark are prohibited, so an attempt fails by its mark.
func TestMark(t *testing.T) {
	if !testnet.Netns(t, "rule add pref 10 lookup local", "rule del pref 0", "rule add pref 5 fwmark 7 prohibit") {
		return
	}
	r := newRig(t, Config{})
	up := echoServer(t, "tcp4")
	l := r.listen("tcp4", ListenConfig{
		Socket: SocketOptions{Mark: 9},
		Hooks: Hooks{
			Upstream: func(f *Flow, attempt int) *Addr {
				if v, e := sys.Mark.Get(sys.Linux{}, int(streamOf(f).fd[sideClient])); v != 9 || e != 0 {
					t.Errorf("the client's mark is %d, %v", v, e)
				}
				f.SetDial([]*DialConfig{{Socket: SocketOptions{Mark: 7}}, {Socket: SocketOptions{Mark: 8}}}[attempt])
				return up
			},
			Connected: func(f *Flow, _ *Addr, _ time.Duration, err error) {
				if f.attempts == 1 && !errors.Is(err, sys.EACCES) || f.attempts == 2 && err != nil {
					t.Errorf("attempt %d: %v", f.attempts, err)
				}
			},
		},
	})
	a := dial(t, l)
	say(t, a, a, "hello")
	a.Close()
	if rec := r.expect(CauseEnd); rec.Attempts != 2 {
		t.Errorf("%d attempts", rec.Attempts)
	}
}

func TestInterface(t *testing.T) {
	if !testnet.Netns(t) {
		return
	}
	r := newRig(t, Config{})
	o := SocketOptions{Interface: "lo"}
	a := dial(t, r.listen("tcp4", ListenConfig{Socket: o, Dial: &DialConfig{Socket: o}}, echoServer(t, "tcp4")))
	say(t, a, a, "hello")
}

func TestDSCP(t *testing.T) {
	if !testnet.Netns(t) {
		return
	}
	const toClient, toUpstream = 46, 10
	cfg := ListenConfig{Socket: SocketOptions{DSCP: toClient}, Dial: &DialConfig{Socket: SocketOptions{DSCP: toUpstream}}}
	for network, option := range map[string]sys.Option{"tcp4": sys.TypeOfService, "tcp6": sys.TrafficClass} {
		t.Run(network, func(t *testing.T) {
			r := newRig(t, Config{})
			s := newServer(t, network)
			hook, accepted := seen(func(f *Flow) int { return get(option)(int(streamOf(f).fd[sideClient])) })
			cfg := cfg
			cfg.Hooks.Connected = hook
			a := dial(t, r.listen(network, cfg, s.addr))
			say(t, a, s.accept(t), "hello")
			if v := accepted(); v>>2 != toClient {
				t.Errorf("the accepted socket has %d", v>>2)
			}
			// An accepted socket takes over what it sees.
			testnet.Sysctl(t, "net.ipv4.tcp_reflect_tos", "1")
			defer testnet.Sysctl(t, "net.ipv4.tcp_reflect_tos", "0")
			a = dial(t, r.listen(network, cfg, s.addr))
			b := s.accept(t)
			say(t, a, b, "hello")
			if v := asked(t, b, get(option)); v>>2 != toUpstream {
				t.Errorf("the upstream saw %d", v>>2)
			}
		})
	}
	for _, network := range []string{"udp4", "udp6"} {
		t.Run(network, func(t *testing.T) {
			r := newDatagramRig(t, Config{})
			ends := [2]*net.UDPConn{packetSocket(t, network).(*net.UDPConn), packetSocket(t, network).(*net.UDPConn)}
			a, up := ends[0], ends[1]
			for _, c := range ends {
				if e := asked(t, c, func(fd int) sys.Errno {
					family, _ := sys.FamilyOf(sys.Linux{}, fd)
					return sys.SetRecvTOS(sys.Linux{}, fd, family, true)
				}); e != 0 {
					t.Fatal(e)
				}
			}
			to := gramAddr(up.LocalAddr())
			l := r.listenAt(gramPlace(t, network), cfg, &to)
			receive := func(c *net.UDPConn) (from netip.AddrPort, dscp uint8) {
				b, oob := make([]byte, 16), make([]byte, 256)
				c.SetReadDeadline(time.Now().Add(patience))
				_, n, _, from, err := c.ReadMsgUDPAddrPort(b, oob)
				if err != nil {
					t.Fatal(err)
				}
				return from, sys.ParseControl(oob[:n]).TOS >> 2
			}
			if _, err := a.WriteTo([]byte("hello"), gramNet(l.Addr())); err != nil {
				t.Fatal(err)
			}
			from, dscp := receive(up)
			if dscp != toUpstream {
				t.Errorf("the upstream saw %d", dscp)
			}
			if _, err := up.WriteToUDPAddrPort([]byte("hello"), from); err != nil {
				t.Fatal(err)
			}
			if _, dscp = receive(a); dscp != toClient {
				t.Errorf("the client saw %d", dscp)
			}
		})
	}
}

func TestMPTCP(t *testing.T) {
	fd, e := sys.Linux{}.Socket(sys.IPv4, true)
	if e != 0 {
		t.Fatal(e)
	}
	multipath := sys.Multipath(fd)
	sys.Linux{}.Close(fd)
	if !multipath {
		t.Skip("this kernel has no MPTCP, or net.mptcp.enabled is 0")
	}
	var plain net.ListenConfig
	plain.SetMultipathTCP(false)
	for name, listen := range map[string]*net.ListenConfig{"mptcp": {}, "tcp": &plain} {
		t.Run("upstream="+name, func(t *testing.T) {
			if name == "mptcp" {
				listen.SetMultipathTCP(true)
			}
			r := newRig(t, Config{})
			in, err := listen.Listen(t.Context(), "tcp4", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			s := &server{in, fromNet(in.Addr())}
			hook, ids := seen((*Flow).ID)
			o := SocketOptions{MPTCP: true, KeepAlive: time.Minute, UserTimeout: time.Minute, DSCP: 10}
			l := r.listen("tcp4", ListenConfig{Socket: o, Hooks: Hooks{Connected: hook}}, s.addr)
			var d net.Dialer
			d.SetMultipathTCP(true)
			a, err := d.Dial("tcp4", l.Addr().AddrPort.String())
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			b := s.accept(t)
			say(t, a, b, "hello")
			flow, ok := r.e.Flow(ids())
			if !ok || flow.ClientTCP == nil || flow.UpstreamTCP == nil || !flow.ClientTCP.MPTCP || flow.UpstreamTCP.MPTCP != (name == "mptcp") {
				t.Errorf("%v: client %+v, upstream %+v", ok, flow.ClientTCP, flow.UpstreamTCP)
			}
			const n = 32 << 20
			play(t, a, b, testnet.Script{Send: n, SendSeed: 1, Recv: n, RecvSeed: 2}, testnet.Script{Send: n, SendSeed: 2, Recv: n, RecvSeed: 1})
			rec := r.expect(CauseEnd)
			for _, tr := range []Transfer{rec.Up, rec.Down} {
				if tr.Spliced == 0 || tr.Path != datapath.Splice {
					t.Errorf("not spliced: %+v", tr)
				}
			}
		})
	}
}

// What a flow has moved says what its sockets have counted only where both are plain TCP: multipath TCP counts each subflow.
func TestMultipathIsNotStraight(t *testing.T) {
	if !sys.HasMultipath() {
		t.Skip("no multipath TCP here")
	}
	for name, c := range map[string]struct{ listen, dial, straight bool }{
		"neither": {straight: true}, "listener": {listen: true}, "dial": {dial: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{})
			straight := make(chan bool, 1)
			hook := func(f *Flow, _ *Addr, _ time.Duration, err error) { straight <- err == nil && f.straight }
			cfg := ListenConfig{Socket: SocketOptions{MPTCP: c.listen}, Dial: &DialConfig{Socket: SocketOptions{MPTCP: c.dial}}, Hooks: Hooks{Connected: hook}}
			r.flow("tcp4", "tcp4", cfg)
			if got := <-straight; got != c.straight {
				t.Errorf("straight: %v", got)
			}
		})
	}
}

func TestFastOpen(t *testing.T) {
	if !testnet.Netns(t) {
		return
	}
	testnet.Sysctl(t, "net.ipv4.tcp_fastopen", "3")
	r := newRig(t, Config{Loops: 1})
	listen := net.ListenConfig{Control: control(func(fd int) sys.Errno { return sys.SetFastOpen(fd, 16) })}
	listen.SetMultipathTCP(false)
	in, err := listen.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	s := &server{in, fromNet(in.Addr())}
	hook, id := seen((*Flow).ID)
	l := r.listen("tcp4", ListenConfig{
		Socket: SocketOptions{FastOpen: 16}, Dial: &DialConfig{Socket: SocketOptions{FastOpen: 1}},
		Hooks: Hooks{Connected: hook},
	}, s.addr)
	d := net.Dialer{Control: control(func(fd int) sys.Errno { return sys.SetFastOpenConnect(fd, true) })}
	d.SetMultipathTCP(false)
	// The first connection asks for a cookie, which is one for all ports of the
	// server's address, and later ones use it.
	for i := range 2 {
		a, err := d.DialContext(context.Background(), "tcp4", l.Addr().AddrPort.String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(a, "hello"); err != nil {
			t.Fatal(err)
		}
		b := s.accept(t)
		hear(t, b, "hello")
		say(t, b, a, "you too")
		flow, ok := r.e.Flow(id())
		var info sys.TCPInfo
		if e := asked(t, a, func(fd int) sys.Errno { return (sys.Linux{}).TCPInfo(fd, &info) }); e != 0 {
			t.Fatal(e)
		}
		if client := info.Options&sys.OptSynData != 0; !ok || client != (i == 1) || !flow.UpstreamTCP.FastOpen {
			t.Errorf("flow %d: %v; data with the SYN of the client %v, to the upstream %v", i, ok, client, flow.UpstreamTCP.FastOpen)
		}
		a.Close()
		b.Close()
		r.expect(CauseEnd)
	}
	// A client that says nothing: nothing opens the connection to the upstream.
	a := dial(t, l)
	closeWrite(t, a)
	if rec := r.record(); rec.Up.Read != 0 || rec.Cause == CauseConnectTimeout {
		t.Errorf("%+v", rec)
	}
}
