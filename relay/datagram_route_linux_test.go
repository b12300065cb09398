package relay

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/stats"
)

// awayRig relays to the first of some upstreams, and then to what next returns.
func awayRig(t *testing.T, cfg DatagramConfig, first *Addr, next ...*Addr) (r *rig, l *Listener, failed *[]string) {
	failed = new([]string)
	r = newDatagramRig(t, Config{Loops: 1})
	asked := 0
	l = r.listenAt(gramPlace(t, "udp4"), ListenConfig{
		Datagram: cfg,
		Hooks: Hooks{
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
		},
	})
	return r, l, failed
}

// A flow whose route is gone, and for which there is nothing else, has the same socket when the route is back.
func TestRouteGoneAndBack(t *testing.T) {
	if !testnet.Netns(t, "rule add pref 9 table local", "rule del pref 0") {
		return
	}
	for _, policy := range []UnreachableAction{UnreachableNext, UnreachableIgnore} {
		s := packetSocket(t, "udp4")
		first := gramAddr(s.LocalAddr())
		r, l, failed := awayRig(t, DatagramConfig{OnUnreachable: policy}, &first, &first, &first, &first)
		c := packetSocket(t, "udp4")
		tellGram(t, c, l.Addr(), "before")
		from := hearGram(t, s, "from before").(*net.UDPAddr)
		rule := fmt.Sprintf("pref 1 ipproto udp dport %d unreachable", first.AddrPort.Port())
		testnet.IP(t, "rule add "+rule)
		for i := range 3 {
			tellGram(t, c, l.Addr(), "lost")
			testwait.Until(t, "it is dropped", func() bool { return r.dgramStats().Dropped.Get(stats.DropUnreachable) == int64(i+1) })
		}
		testnet.IP(t, "rule del "+rule)
		tellGram(t, c, l.Addr(), "after")
		if again := hearGram(t, s, "after").(*net.UDPAddr); again.Port != from.Port {
			t.Errorf("policy %v: it comes from port %d, and came from %d", policy, again.Port, from.Port)
		}
		st := r.dgramStats()
		if st.ICMPErrors != 0 || st.Dropped.Total() != 3 || st.Resting != 0 {
			t.Errorf("policy %v: %+v", policy, st)
		}
		r.e.Close()
		if rec := r.expect(CauseClosed); rec.Attempts != 1 || rec.Up.Datagrams != 2 || rec.Up.DatagramsDropped != 3 {
			t.Errorf("policy %v: %+v", policy, rec)
		}
		if want := "true send: " + sys.ENETUNREACH.Error(); len(*failed) != 3 || (*failed)[0] != want {
			t.Errorf("policy %v: the hook learnt %q, want three times %s", policy, *failed, want)
		}
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
	r, l, _ := awayRig(t, DatagramConfig{}, &first, &first, &first)
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

// A flow goes on to an upstream to which there is a route, and keeps the socket that it has until then.
func TestRouteToAnother(t *testing.T) {
	s, other := packetSocket(t, "udp4"), packetSocket(t, "udp4")
	first, second := gramAddr(s.LocalAddr()), gramAddr(other.LocalAddr())
	r, l, failed := awayRig(t, DatagramConfig{}, &first, &second, &first, &second)
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
		r, l, _ := awayRig(t, cfg, &first)
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
		r, l, failed := awayRig(t, DatagramConfig{}, &first, &second)
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
