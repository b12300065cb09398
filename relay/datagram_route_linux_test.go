package relay

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/stats"
)

// awayRig relays to the first of some upstreams, and then to what next returns.
func awayRig(t *testing.T, cfg ListenConfig, first *Addr, next ...*Addr) (r *rig, l *Listener, failed *[]string) {
	failed = new([]string)
	r = newDatagramRig(t, Config{Loops: 1})
	r.k.StopClock()
	asked := 0
	cfg.Hooks = Hooks{
		Upstream: func(f *Flow, n int) *Addr {
			f.Preface([]byte("from "))
			if n == 0 {
				return first
			}
			if asked++; asked > len(next) {
				return nil
			}
			return next[asked-1]
		},
		Connected: func(_ *Flow, to *Addr, _ time.Duration, err error) {
			if err != nil {
				*failed = append(*failed, fmt.Sprint(*to == *first, err))
			}
		},
	}
	return r, r.listenAt(gramPlace(t, "udp4"), cfg), failed
}

// A flow whose route is gone, and for which there is nothing else, has the same socket when the route is back; and asks for another upstream
// once in a while, however much its client sends.
func TestRouteGoneAndBack(t *testing.T) {
	if !testnet.Netns(t, "rule add pref 9 table local", "rule del pref 0", "-6 rule add pref 9 table local", "-6 rule del pref 0") {
		return
	}
	for _, c := range []struct {
		network, kind, err string
		policy             UnreachableAction
	}{
		{"udp4", "unreachable", "network is unreachable", UnreachableNext},
		{"udp4", "unreachable", "network is unreachable", UnreachableIgnore},
		{"udp6", "unreachable", "network is unreachable", UnreachableNext},
		{"udp4", "prohibit", "permission denied", UnreachableNext},
		{"udp6", "prohibit", "permission denied", UnreachableIgnore},
		{"udp4", "blackhole", "invalid argument", UnreachableIgnore},
		{"udp6", "blackhole", "invalid argument", UnreachableNext},
	} {
		s := packetSocket(t, c.network)
		first := gramAddr(s.LocalAddr())
		r, l, failed := awayRig(t, ListenConfig{Datagram: DatagramConfig{OnUnreachable: c.policy}}, &first, &first, &first)
		client := packetSocket(t, "udp4")
		tellGram(t, client, l.Addr(), "before")
		from := hearGram(t, s, "from before").(*net.UDPAddr)
		rule := fmt.Sprintf("pref 1 ipproto udp dport %d %s", first.AddrPort.Port(), c.kind)
		if c.network == "udp6" {
			testnet.IP(t, "-6 rule add "+rule)
		} else {
			testnet.IP(t, "rule add "+rule)
		}
		lost := int64(0)
		for range 2 {
			tellGram(t, client, l.Addr(), "lost")
			sendRun(t, client, l.Addr().AddrPort, numbered(20)...)
			tellGram(t, client, l.Addr(), "lost")
			lost += 22
			testwait.Until(t, "all are dropped", func() bool { return r.dgramStats().Dropped.Get(stats.DropUnreachable) == lost })
			r.pass(askAgain)
		}
		if c.network == "udp6" {
			testnet.IP(t, "-6 rule del "+rule)
		} else {
			testnet.IP(t, "rule del "+rule)
		}
		tellGram(t, client, l.Addr(), "after")
		if again := hearGram(t, s, "after").(*net.UDPAddr); again.Port != from.Port {
			t.Errorf("%v: it comes from port %d, and came from %d", c, again.Port, from.Port)
		}
		st := r.dgramStats()
		if st.ICMPErrors != 0 || st.Dropped.Total() != lost || st.Resting != 0 || st.Fallbacks != 0 {
			t.Errorf("%v: %+v", c, st)
		}
		r.e.Close()
		if rec := r.expect(CauseClosed); rec.Attempts != 1 || rec.Up.Datagrams != 2 || rec.Up.DatagramsDropped != lost {
			t.Errorf("%v: %+v", c, rec)
		}
		if want := []string{"true send: " + c.err, "true send: " + c.err}; !slices.Equal(*failed, want) {
			t.Errorf("%v: the hook learnt %q, want %q", c, *failed, want)
		}
	}
}

// A route that comes back between a send that has failed and the kernel's answer that there is one is no ICMP message. What the upstream's
// host says then is one.
func TestRouteBackAtThisMoment(t *testing.T) {
	s, other := packetSocket(t, "udp4"), packetSocket(t, "udp4")
	first, second := gramAddr(s.LocalAddr()), gramAddr(other.LocalAddr())
	r, l, failed := awayRig(t, ListenConfig{}, &first, &first, &second)
	c := packetSocket(t, "udp4")
	tellGram(t, c, l.Addr(), "before")
	from := hearGram(t, s, "from before").(*net.UDPAddr)
	r.k.Fail(testkernel.Send, sys.ENETUNREACH, 1)
	r.k.Fail(testkernel.Connect, sys.ENETUNREACH, 2)
	tellGram(t, c, l.Addr(), "lost")
	testwait.Until(t, "it is dropped", func() bool { return r.dgramStats().Dropped.Get(stats.DropUnreachable) == 1 })
	r.k.Fail(testkernel.Send, sys.ENETUNREACH, 1)
	tellGram(t, c, l.Addr(), "after")
	if again := hearGram(t, s, "after").(*net.UDPAddr); again.Port != from.Port {
		t.Errorf("it comes from port %d, and came from %d", again.Port, from.Port)
	}
	r.k.Fail(testkernel.Send, sys.ECONNREFUSED, 1)
	tellGram(t, c, l.Addr(), "elsewhere")
	hearGram(t, other, "from elsewhere")
	r.e.Close()
	if rec := r.expect(CauseClosed); rec.Up.DatagramsDropped != 1 {
		t.Errorf("%+v", rec)
	}
	if st := r.dgramStats(); st.ICMPErrors != 1 {
		t.Errorf("%+v", st)
	}
	if want := []string{"true send: " + sys.ENETUNREACH.Error(), "true " + sys.ECONNREFUSED.Error()}; !slices.Equal(*failed, want) {
		t.Errorf("the hook learnt %q, want %q", *failed, want)
	}
}

// A flow that asks for another upstream for days is not taken for one that has had none.
func TestAttemptsAreBounded(t *testing.T) {
	f := datagramFlow{Flow: Flow{attempts: math.MaxUint16 - 1}}
	for range 3 {
		f.countAttempt()
	}
	if f.attempts != math.MaxUint16 {
		t.Errorf("%d attempts", f.attempts)
	}
}

// A flow whose own address is gone has another socket, if there is a route from another address.
func TestOwnAddressGone(t *testing.T) {
	const upstream = "route replace local 10.9.0.2 dev lo table local src "
	if !testnet.Netns(t, "addr add 10.9.0.1/32 dev lo", "addr add 10.9.0.2/32 dev lo", upstream+"10.9.0.1") {
		return
	}
	s := packetSocketAt(t, "10.9.0.2:0")
	first := gramAddr(s.LocalAddr())
	r, l, _ := awayRig(t, ListenConfig{}, &first, &first, &first)
	c := packetSocket(t, "udp4")
	tellGram(t, c, l.Addr(), "before")
	from := []string{hearGram(t, s, "from before").(*net.UDPAddr).IP.String()}
	testnet.IP(t, "addr del 10.9.0.1/32 dev lo", upstream+"10.9.0.2")
	tellGram(t, c, l.Addr(), "after")
	from = append(from, hearGram(t, s, "from after").(*net.UDPAddr).IP.String())
	if want := []string{"10.9.0.1", "10.9.0.2"}; !slices.Equal(from, want) {
		t.Errorf("it came from %v, want %v", from, want)
	}
	if st := r.dgramStats(); st.Dropped.Total() != 0 {
		t.Errorf("%+v", st)
	}
}

// A flow whose socket is bound to a device that is gone, and there again with another index, has another socket.
func TestDeviceGone(t *testing.T) {
	veth := []string{"link add v0 type veth peer name v1", "link set v0 up", "link set v1 up",
		"addr add 10.9.0.1/24 dev v0", "addr add 10.9.0.2/24 dev v1", "addr add fe80::1/64 dev v0 nodad", "addr add fe80::2/64 dev v1 nodad"}
	if !testnet.Netns(t) {
		return
	}
	for _, of := range []string{"all", "default"} {
		testnet.Sysctl(t, "net.ipv4.conf."+of+".accept_local", "1") // both ends are here
		testnet.Sysctl(t, "net.ipv4.conf."+of+".rp_filter", "0")
	}
	up := func() {
		testnet.IP(t, veth...)
		testwait.Until(t, "both ends are up", func() bool {
			out, err := exec.Command("ip", "-o", "link", "show", "type", "veth").Output()
			return err == nil && strings.Count(string(out), " state UP ") == 2
		})
	}
	up()
	s4, s6 := packetSocketAt(t, "10.9.0.2:0"), packetSocketAt(t, "[::]:0")
	for _, c := range []struct {
		s    net.PacketConn
		to   string
		dial DialConfig
	}{
		{s4, "10.9.0.2", DialConfig{Socket: SocketOptions{Interface: "v0"}}},
		{s6, "fe80::2%v0", DialConfig{}},
	} {
		first := Addr{Network: UDP, AddrPort: netip.AddrPortFrom(netip.MustParseAddr(c.to), gramAddr(c.s.LocalAddr()).AddrPort.Port())}
		r, l, failed := awayRig(t, ListenConfig{Dial: &c.dial}, &first, &first, &first)
		client := packetSocket(t, "udp4")
		tellGram(t, client, l.Addr(), "before")
		hearGram(t, c.s, "from before")
		testnet.IP(t, "link del v0")
		tellGram(t, client, l.Addr(), "lost")
		testwait.Until(t, "it is dropped", func() bool { return r.dgramStats().Dropped.Get(stats.DropUnreachable) == 1 })
		up()
		r.pass(askAgain)
		tellGram(t, client, l.Addr(), "after")
		hearGram(t, c.s, "from after")
		if st := r.dgramStats(); st.ICMPErrors != 0 || st.Dropped.Total() != 1 {
			t.Errorf("%s: %+v", c.to, st)
		}
		r.e.Close()
		if rec := r.expect(CauseClosed); rec.Attempts != 2 || rec.Up.Datagrams != 2 || len(*failed) != 2 {
			t.Errorf("%s: %+v, and the hook learnt %q", c.to, rec, *failed)
		}
	}
}

// A flow goes on to an upstream to which there is a route, and keeps the socket that it has until then.
func TestRouteToAnother(t *testing.T) {
	s, other := packetSocket(t, "udp4"), packetSocket(t, "udp4")
	first, second := gramAddr(s.LocalAddr()), gramAddr(other.LocalAddr())
	r, l, failed := awayRig(t, ListenConfig{}, &first, &second, &first, &second)
	c := packetSocket(t, "udp4")
	tellGram(t, c, l.Addr(), "before")
	from := hearGram(t, s, "from before").(*net.UDPAddr)
	r.k.Fail(testkernel.Send, sys.ENETUNREACH, 1)
	r.k.Fail(testkernel.Connect, sys.ENETUNREACH, 2) // nor is there one to the other
	tellGram(t, c, l.Addr(), "lost")
	testwait.Until(t, "it is dropped", func() bool { return r.dgramStats().Dropped.Get(stats.DropUnreachable) == 1 })
	tellGram(t, c, l.Addr(), "again")
	if again := hearGram(t, s, "again").(*net.UDPAddr); again.Port != from.Port {
		t.Errorf("it comes from port %d, and came from %d", again.Port, from.Port)
	}
	r.pass(askAgain)
	r.k.Fail(testkernel.Send, sys.ENETUNREACH, 1)
	r.k.Fail(testkernel.Connect, sys.ENETUNREACH, 1)
	tellGram(t, c, l.Addr(), "elsewhere")
	hearGram(t, other, "from elsewhere")
	if st := r.dgramStats(); st.Dropped.Total() != 1 || st.Resting != 1 {
		t.Errorf("%+v", st)
	}
	r.e.Close()
	if rec := r.expect(CauseClosed); rec.Upstream != second {
		t.Errorf("%+v", rec)
	}
	none := sys.ENETUNREACH.Error()
	if want := []string{"true send: " + none, "false " + none, "true send: " + none}; !slices.Equal(*failed, want) {
		t.Errorf("the hook learnt %q, want %q", *failed, want)
	}
}

// A flow ends if its route is gone and the hook wants it nowhere, or its policy is to end.
func TestRouteToNobody(t *testing.T) {
	for _, cfg := range []DatagramConfig{{}, {OnUnreachable: UnreachableEnd}} {
		s := packetSocket(t, "udp4")
		first := gramAddr(s.LocalAddr())
		r, l, _ := awayRig(t, ListenConfig{Datagram: cfg}, &first)
		c := packetSocket(t, "udp4")
		tellGram(t, c, l.Addr(), "before")
		hearGram(t, s, "from before")
		r.k.Fail(testkernel.Send, sys.ENETUNREACH, 1)
		r.k.Fail(testkernel.Connect, sys.ENETUNREACH, 1)
		tellGram(t, c, l.Addr(), "lost")
		if rec := r.expect(CauseUpstreamRefused); rec.Err != sys.ENETUNREACH || rec.Up.DatagramsDropped != 1 {
			t.Errorf("%+v", rec)
		}
	}
}

// A firewall's ICMP message has the error of a missing route, and is none: the flow goes on to the next upstream, whether a receive or a send
// meets it.
func TestFilteredIsNoMissingRoute(t *testing.T) {
	if !testnet.Netns(t) {
		return
	}
	raw, err := net.ListenPacket("ip4:icmp", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	const filtered = 13
	for _, met := range []string{"by a receive", "by a send"} {
		s, other := packetSocket(t, "udp4"), packetSocket(t, "udp4")
		first, second := gramAddr(s.LocalAddr()), gramAddr(other.LocalAddr())
		sources := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")} // another socket would have another one
		r, l, failed := awayRig(t, ListenConfig{Dial: &DialConfig{Source: sources}}, &first, &second)
		block := r.blockLoop()
		c := packetSocket(t, "udp4")
		tellGram(t, c, l.Addr(), "before")
		from := hearGram(t, s, "from before").(*net.UDPAddr)
		if met == "by a send" {
			release := block()
			icmpError(t, raw, filtered, from, s.LocalAddr().(*net.UDPAddr))
			tellGram(t, c, l.Addr(), "after")
			release()
		} else {
			icmpError(t, raw, filtered, from, s.LocalAddr().(*net.UDPAddr))
			testwait.Until(t, "the error is counted", func() bool { return r.dgramStats().ICMPErrors == 1 })
			tellGram(t, c, l.Addr(), "after")
		}
		hearGram(t, other, "from after")
		if st := r.dgramStats(); st.ICMPErrors != 1 || st.Dropped.Get(stats.DropUnreachable) != 0 {
			t.Errorf("%s: %+v", met, st)
		}
		r.e.Close()
		if want := []string{"true " + sys.EHOSTUNREACH.Error()}; !slices.Equal(*failed, want) {
			t.Errorf("%s: the hook learnt %q, want %q", met, *failed, want)
		}
	}
}
