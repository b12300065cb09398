package relay

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/stats"
)

// A flow without a route, and whose other upstream cannot be reached or asked about, has the same socket when the route is back: there is no
// descriptor to ask with, or there is one.
func TestRouteGoneWithoutDescriptors(t *testing.T) {
	if !testnet.Netns(t, "rule add pref 9 table local", "rule del pref 0", "-6 rule add pref 9 table local", "-6 rule del pref 0",
		"link add v0 type veth peer name v1", "link set v0 up", "link set v1 up", "addr add fe80::1/64 dev v0 nodad") {
		return
	}
	for _, c := range []struct{ first, second string }{
		{"udp4", "127.0.0.2"},
		{"udp4", "192.0.2.1"},
		{"udp4", "::1"},
		{"udp4", "unixgram"},
		{"udp6", "127.0.0.2"},
		{"udp6", "2001:db8::1"},
		{"udp6", "fe80::2%v0"},
		{"udp6", "unixgram"},
	} {
		for _, scarce := range []bool{true, false} {
			s := packetSocket(t, c.first)
			first := gramAddr(s.LocalAddr())
			second := Addr{Network: Unixgram, Path: unixPlace(t)}
			if ip, err := netip.ParseAddr(c.second); err == nil {
				second = Addr{Network: UDP, AddrPort: netip.AddrPortFrom(ip, first.AddrPort.Port())}
			}
			r, l, failed := awayRig(t, ListenConfig{}, &first, &second, &first, &second, &first)
			client := packetSocket(t, "udp4")
			tellGram(t, client, l.Addr(), "before")
			from := hearGram(t, s, "from before").(*net.UDPAddr)
			rule := fmt.Sprintf("rule add pref 1 ipproto udp dport %d unreachable", first.AddrPort.Port())
			testnet.IP(t, rule, "-6 "+rule)
			if scarce {
				r.k.Fail(testkernel.Datagram, sys.EMFILE, -1)
			}
			for i := range 2 {
				tellGram(t, client, l.Addr(), "lost")
				testwait.Until(t, "it is dropped", func() bool { return r.dgramStats().Dropped.Total() == int64(i+1) })
				r.pass(askAgain)
			}
			rule = fmt.Sprintf("rule del pref 1 ipproto udp dport %d unreachable", first.AddrPort.Port())
			testnet.IP(t, rule, "-6 "+rule)
			if st := r.dgramStats(); st.Flows != 1 {
				t.Errorf("%v, scarce %v: the flow has ended: %q", c, scarce, *failed)
				continue
			}
			tellGram(t, client, l.Addr(), "after")
			if again := hearGram(t, s, "after").(*net.UDPAddr); again.Port != from.Port {
				t.Errorf("%v, scarce %v: it comes from port %d, and came from %d; %q", c, scarce, again.Port, from.Port, *failed)
			}
			r.k.Heal()
			if st := r.dgramStats(); st.ICMPErrors != 0 || st.Dropped.Get(stats.DropUnreachable) != 2 || st.Resting != 0 {
				t.Errorf("%v, scarce %v: %+v", c, scarce, st)
			}
		}
	}
}

// A flow asks the hook for eight upstreams at once, and goes on where it was if it was returned neither its own nor nil.
func TestRouteGoneAskedInVain(t *testing.T) {
	s := packetSocket(t, "udp4")
	first := gramAddr(s.LocalAddr())
	var others []*Addr
	for i := range 20 {
		others = append(others, &Addr{Network: UDP, AddrPort: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), uint16(1000+i))})
	}
	r, l, failed := awayRig(t, ListenConfig{}, &first, others...)
	c := packetSocket(t, "udp4")
	tellGram(t, c, l.Addr(), "before")
	from := hearGram(t, s, "from before").(*net.UDPAddr)
	r.k.Fail(testkernel.Send, sys.ENETUNREACH, 1)
	r.k.Fail(testkernel.Connect, sys.ENETUNREACH, 1+8)
	tellGram(t, c, l.Addr(), "lost")
	testwait.Until(t, "it is dropped", func() bool { return r.dgramStats().Dropped.Get(stats.DropUnreachable) == 1 })
	tellGram(t, c, l.Addr(), "after")
	if again := hearGram(t, s, "after").(*net.UDPAddr); again.Port != from.Port {
		t.Errorf("it comes from port %d, and came from %d", again.Port, from.Port)
	}
	if len(*failed) != 9 {
		t.Errorf("the hook learnt %q", *failed)
	}
}

// Replies that this host has no route for are dropped as such, whatever the kernel calls it, and cost one system call for each run.
func TestRouteToClientGone(t *testing.T) {
	if !testnet.Netns(t, "rule add pref 9 table local", "rule del pref 0", "-6 rule add pref 9 table local", "-6 rule del pref 0",
		"addr add 10.9.0.1/32 dev lo", "addr add fd00:9::1/128 dev lo nodad") {
		return
	}
	for _, network := range []string{"udp4", "udp6"} {
		for _, kind := range []string{"unreachable", "prohibit", "blackhole", "address"} {
			r := newDatagramRig(t, Config{Loops: 1})
			s := packetSocket(t, "udp4")
			up := gramAddr(s.LocalAddr())
			at, address, nodad, v := "[::]:0", "fd00:9::1/128", " nodad", "-6 "
			if network == "udp4" {
				at, address, nodad, v = "0.0.0.0:0", "10.9.0.1/32", "", ""
			}
			l := r.listenAt(Addr{Network: UDP, AddrPort: netip.MustParseAddrPort(at)}, ListenConfig{}, &up)
			to := Addr{Network: UDP, AddrPort: netip.AddrPortFrom(netip.MustParsePrefix(address).Addr(), l.Addr().AddrPort.Port())}
			c := packetSocket(t, network)
			tellGram(t, c, to, "before")
			back := gramAddr(hearGram(t, s, "before"))
			rule := fmt.Sprintf("pref 1 ipproto udp dport %d %s", gramAddr(c.LocalAddr()).AddrPort.Port(), kind)
			gone, comes := v+"rule add "+rule, v+"rule del "+rule
			if kind == "address" { // that the client has written to
				gone, comes = v+"addr del "+address+" dev lo", v+"addr add "+address+" dev lo"+nodad
			}
			testnet.IP(t, gone)
			tellGram(t, s, back, "lost")
			testwait.Until(t, "it is dropped", func() bool { return r.dgramStats().Dropped.Total() == 1 })
			calls := r.dgramStats().WriteCalls
			sendRun(t, s, back.AddrPort, numbered(20)...)
			testwait.Until(t, "all are dropped", func() bool { return r.dgramStats().Dropped.Total() == 21 })
			testnet.IP(t, comes)
			st := r.dgramStats()
			if st.Dropped.Get(stats.DropUnreachable) != 21 || st.WriteCalls-calls > 3 || st.Fallbacks != 0 {
				t.Errorf("%s, %s: %+v", network, kind, st)
			}
			sendRun(t, s, back.AddrPort, numbered(20)...)
			for _, text := range numbered(20) {
				if from := gramAddr(hearGram(t, c, text)); from != to {
					t.Errorf("it comes from %v", from)
				}
			}
			if st := r.dgramStats(); st.Dropped.Total() != 21 {
				t.Errorf("%+v", st)
			}
		}
	}
}

// icmp6Error tells the sender of a datagram over IPv6 that it did not arrive: "destination unreachable" with a code. RFC 4443; the kernel adds the
// checksum.
func icmp6Error(t *testing.T, raw net.PacketConn, code byte, from, to *net.UDPAddr) {
	t.Helper()
	b := make([]byte, 8+40+8)
	b[0], b[1] = 1, code
	ip := b[8:]
	ip[0], ip[5], ip[6], ip[7] = 0x60, 8, 17, 64
	copy(ip[8:], from.IP.To16())
	copy(ip[24:], to.IP.To16())
	binary.BigEndian.PutUint16(ip[40:], uint16(from.Port))
	binary.BigEndian.PutUint16(ip[42:], uint16(to.Port))
	if _, err := raw.WriteTo(b, &net.IPAddr{IP: from.IP}); err != nil {
		t.Fatal(err)
	}
}

// An ICMPv6 message from a firewall has the same error as a route of type prohibit. It is not taken for a missing route, whichever call is told of it.
func TestProhibitedIsNoMissingRoute(t *testing.T) {
	if !testnet.Netns(t) {
		return
	}
	raw, err := net.ListenPacket("ip6:ipv6-icmp", "::1")
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	const prohibited, policyFailed, noRoute = 1, 5, 6
	for _, code := range []byte{prohibited, policyFailed, noRoute} {
		for _, policy := range []UnreachableAction{UnreachableNext, UnreachableIgnore} {
			for _, met := range []string{"by a receive", "by a send", "by a run"} {
				s, other := packetSocket(t, "udp6"), packetSocket(t, "udp6")
				first, second := gramAddr(s.LocalAddr()), gramAddr(other.LocalAddr())
				r, l, failed := awayRig(t, ListenConfig{Datagram: DatagramConfig{OnUnreachable: policy}}, &first, &second)
				block := r.blockLoop()
				c := packetSocket(t, "udp4")
				tellGram(t, c, l.Addr(), "before")
				from := hearGram(t, s, "from before").(*net.UDPAddr)
				texts, release := []string{"after"}, func() {}
				if met == "by a run" {
					texts = numbered(10)
				}
				if met != "by a receive" {
					release = block()
				}
				icmp6Error(t, raw, code, from, s.LocalAddr().(*net.UDPAddr))
				if met == "by a receive" {
					testwait.Until(t, "the error is counted", func() bool { return r.dgramStats().ICMPErrors == 1 })
				}
				sendRun(t, c, l.Addr().AddrPort, texts...)
				release()
				at, front := other, "from "
				if policy == UnreachableIgnore {
					at, front = s, ""
				}
				for _, text := range texts {
					hearGram(t, at, front+text)
					front = ""
				}
				if st := r.dgramStats(); st.ICMPErrors != 1 || st.Dropped.Total() != st.Dropped.Get(stats.DropRefused) || st.Fallbacks != 0 {
					t.Errorf("code %d, policy %d, %s: %+v", code, policy, met, st)
				}
				r.e.Close()
				if want := []string{"true " + sys.EACCES.Error()}; !slices.Equal(*failed, want) {
					t.Errorf("code %d, policy %d, %s: the hook learnt %q, want %q", code, policy, met, *failed, want)
				}
			}
		}
	}
}
