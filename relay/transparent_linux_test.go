package relay

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
)

// foreign routes all addresses to this namespace, without making them its own:
// only a transparent socket can have one.
var foreign = []string{
	"rule add iif lo lookup 100", "route add local 0.0.0.0/0 dev lo table 100",
	"-6 rule add iif lo lookup 100", "-6 route add local ::/0 dev lo table 100",
}

func TestTransparentUpstream(t *testing.T) {
	if !testnet.Netns(t, foreign...) {
		return
	}
	for _, c := range []struct{ client, server, gram string }{
		{"198.51.100.9", "127.0.0.1:0", "udp4"},
		{"2001:db8::9", "[::1]:0", "udp6"},
	} {
		client := netip.MustParseAddr(c.client)
		d := &DialConfig{FromClient: true}
		hooks := Hooks{Admit: func(f *Flow) Cause {
			peer := f.Peer()
			f.SetClient(Addr{Network: peer.Network, AddrPort: netip.AddrPortFrom(client, 1234)})
			if f.Client().AddrPort.Addr() != client || f.Peer() != peer {
				return CauseRefused
			}
			return CauseNone
		}}
		t.Run("stream/"+c.gram, func(t *testing.T) {
			r := newRig(t, Config{})
			in, err := new(net.ListenConfig).Listen(t.Context(), "tcp", c.server)
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			s := &server{in, fromNet(in.Addr())}
			a := dial(t, r.listen("tcp4", ListenConfig{Hooks: hooks, Dial: d}, s.addr))
			b := s.accept(t)
			say(t, a, b, "hello")
			say(t, b, a, "you too")
			if from := b.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap(); from != client {
				t.Errorf("the upstream sees %v", from)
			}
			a.Close()
			b.Close()
			rec := r.record()
			if rec.Client.AddrPort.Addr() != client || rec.Peer.AddrPort != a.LocalAddr().(*net.TCPAddr).AddrPort() {
				t.Errorf("recorded client %v, peer %v", rec.Client, rec.Peer)
			}
		})
		t.Run("datagram/"+c.gram, func(t *testing.T) {
			r := newDatagramRig(t, Config{})
			up := packetSocket(t, c.gram)
			to := gramAddr(up.LocalAddr())
			l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Hooks: hooks, Dial: d}, &to)
			a := packetSocket(t, "udp4")
			from := exchange(t, a, gramNet(l.Addr()), up)
			if got := from.(*net.UDPAddr).AddrPort().Addr().Unmap(); got != client {
				t.Errorf("the upstream sees %v", got)
			}
			r.e.Close()
			if rec := r.record(); rec.Client.AddrPort.Addr() != client || rec.Peer != gramAddr(a.LocalAddr()) {
				t.Errorf("recorded client %v, peer %v", rec.Client, rec.Peer)
			}
		})
	}
}

// exchange sends a datagram through the relay and an answer back, and tells whom
// the upstream saw.
func exchange(t *testing.T, a net.PacketConn, to net.Addr, up net.PacketConn) (from net.Addr) {
	t.Helper()
	b := make([]byte, 16)
	if _, err := a.WriteTo([]byte("hello"), to); err != nil {
		t.Fatal(err)
	}
	up.SetReadDeadline(time.Now().Add(patience))
	n, from, err := up.ReadFrom(b)
	if err == nil {
		_, err = up.WriteTo(b[:n], from)
	}
	if err != nil {
		t.Fatal(err)
	}
	a.SetReadDeadline(time.Now().Add(patience))
	n, back, err := a.ReadFrom(b)
	if err != nil || string(b[:n]) != "hello" {
		t.Fatalf("%q, %v", b[:n], err)
	}
	if back.String() != to.String() {
		t.Errorf("the answer came from %v, want %v", back, to)
	}
	return from
}

func TestTransparentListener(t *testing.T) {
	if !testnet.Netns(t, foreign...) {
		return
	}
	transparent := SocketOptions{Transparent: true}
	for _, at := range []string{"198.51.100.7:4001", "[2001:db8::7]:4001"} {
		place := netip.MustParseAddrPort(at)
		// Clients bind an address of their own. By default the route would give them the one that they write to.
		own, network := net.IPv4(127, 0, 0, 1), "udp4"
		if place.Addr().Is6() {
			own, network = net.IPv6loopback, "udp6"
		}
		t.Run("stream/"+at, func(t *testing.T) {
			r := newRig(t, Config{})
			hooks := Hooks{Upstream: func(*Flow, int) *Addr { return nil }}
			if _, err := r.e.Listen(Addr{Network: TCP, AddrPort: place}, ListenConfig{Hooks: hooks}); !errors.Is(err, sys.EADDRNOTAVAIL) {
				t.Errorf("without the option: %v", err)
			}
			hook, local := seen((*Flow).Local)
			r.listenAt(Addr{Network: TCP, AddrPort: place}, ListenConfig{Socket: transparent, Hooks: Hooks{Connected: hook}}, echoServer(t, "tcp4"))
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: own}, Timeout: patience}
			a, err := d.Dial("tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			say(t, a, a, "hello")
			if local().AddrPort != place {
				t.Errorf("local address %v", local())
			}
			a.Close()
			r.expect(CauseEnd)
		})
		// Bound to no address: the answer leaves from the one that was asked.
		for _, bind := range []netip.AddrPort{place, netip.AddrPortFrom(netip.IPv6Unspecified(), place.Port())} {
			t.Run("datagram/"+at+"/"+bind.String(), func(t *testing.T) {
				r := newDatagramRig(t, Config{})
				up := packetSocket(t, "udp4")
				to := gramAddr(up.LocalAddr())
				r.listenAt(Addr{Network: UDP, AddrPort: bind}, ListenConfig{Socket: transparent}, &to)
				a, err := net.ListenUDP(network, &net.UDPAddr{IP: own})
				if err != nil {
					t.Fatal(err)
				}
				defer a.Close()
				exchange(t, a, net.UDPAddrFromAddrPort(place), up)
			})
		}
	}
}
