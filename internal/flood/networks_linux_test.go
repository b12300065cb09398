package flood

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// placeOf returns the place of a client with an IP address.
func placeOf(t *networks, address string) Place {
	family := sys.IPv4
	a := netip.MustParseAddr(address)
	if a.Is6() {
		family = sys.IPv6
	}
	return placeOfAddr(t, family, a)
}

func placeOfAddr(t *networks, family sys.Family, a netip.Addr) Place {
	var name [28]byte
	n := sys.PutAddrPort(name[:], family, netip.AddrPortFrom(a, 1234), 0)
	return t.of(family, name[:n])
}

// Clients of one /24, /64 or /48 share what the network has begun, and those of others do not.
func TestNetworksOfClients(t *testing.T) {
	for _, c := range []struct {
		a, b         string
		narrow, wide bool
	}{
		{"192.0.2.1", "192.0.2.1", true, true},
		{"192.0.2.1", "192.0.2.200", false, true},
		{"192.0.2.1", "192.0.3.1", false, false},
		{"::ffff:192.0.2.1", "192.0.2.1", true, true},
		{"2001:db8:1:2::1", "2001:db8:1:2:ffff::9", true, true},
		{"2001:db8:1:2::1", "2001:db8:1:3::1", false, true},
		{"2001:db8:1:2::1", "2001:db8:2:2::1", false, false},
		{"::c000:201", "192.0.2.1", false, false},
	} {
		var n networks
		a, b := placeOf(&n, c.a), placeOf(&n, c.b)
		if a.hash[0] == b.hash[0] != c.narrow || a.hash[1] == b.hash[1] != c.wide || a.hash[0] == a.hash[1] {
			t.Errorf("%s and %s: %x, %x", c.a, c.b, a.hash, b.hash)
		}
		n.count(a, 0)
		use, _ := n.look(b, 0)
		want := float32(0)
		switch {
		case c.narrow:
			want = 1
		case c.wide:
			want = 0.25
		}
		if use != want {
			t.Errorf("after a flow of %s, %s counts %v, want %v", c.a, c.b, use, want)
		}
	}
	var n networks
	one, other := n.of(sys.Unix, []byte("\x01\x00/one")), n.of(sys.Unix, []byte("\x01\x00/other"))
	n.count(one, 0)
	if use, known := n.look(one, 0); use != 1 || !known {
		t.Errorf("a Unix client counts %v; known: %v", use, known)
	}
	if use, known := n.look(other, 0); use != 0 || !known {
		t.Errorf("another Unix client counts %v; known: %v", use, known)
	}
}

// What a network has begun counts less and less, and it is known for a time.
func TestNetworksForget(t *testing.T) {
	var n networks
	c := placeOf(&n, "192.0.2.1")
	for range 100 {
		n.count(c, time.Hour)
	}
	before, _ := n.look(c, time.Hour)
	later, known := n.look(c, time.Hour+9*useTime)
	if before != 100 || later < 9.9 || later > 10.1 || known {
		t.Errorf("%v, and %v later; known: %v", before, later, known)
	}
	n.know(c, time.Hour)
	if use, known := n.look(c, time.Hour); use != before || !known {
		t.Errorf("once it is known: %v, %v", use, known)
	}
	neighbour := placeOf(&n, "192.0.2.2")
	if use, known := n.look(neighbour, time.Hour); use != before/4 || !known {
		t.Errorf("its neighbour: %v, %v", use, known)
	}
	if _, known := n.look(c, time.Hour+knownTime-time.Second); !known {
		t.Error("it is forgotten too early")
	}
	if _, known := n.look(c, time.Hour+knownTime+time.Second); known {
		t.Error("it is known for too long")
	}
	// A known address does not suffer from what others of its network begin.
	for i := range 200 {
		n.count(placeOf(&n, fmt.Sprintf("192.0.2.%d", i+10)), time.Hour)
	}
	if use, _ := n.look(c, time.Hour); use != before {
		t.Errorf("with busy neighbours: %v, was %v", use, before)
	}
	if use, _ := n.look(neighbour, time.Hour); use < before/2 {
		t.Errorf("a neighbour that is not known: %v", use)
	}
}

// A flood from all over the world displaces no network that is known, and however many are known, the
// busy ones among the others are told apart.
func TestNetworksAreBounded(t *testing.T) {
	var n networks
	address := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{byte(i >> 16), byte(i >> 8), byte(i), 1}) }
	at := func(i int) Place { return placeOfAddr(&n, sys.IPv4, address(i)) }
	const some = 500
	for i := range some {
		n.know(at(i), 0)
	}
	for i := range 200_000 {
		n.count(at(some+i), 0)
	}
	forgotten := 0
	for i := range some {
		if _, known := n.look(at(i), 0); !known {
			forgotten++
		}
	}
	if forgotten > 10 { // those whose sets all of them share
		t.Errorf("%d of %d known networks are forgotten", forgotten, some)
	}
	for i := range 200_000 {
		n.know(at(some+i), 0)
	}
	busy := at(1 << 20)
	for range 10 {
		n.count(busy, 0)
	}
	if use, _ := n.look(busy, 0); use != 10 {
		t.Errorf("among known networks only, a busy one counts %v", use)
	}
}

func TestNetworksDoNotAllocate(t *testing.T) {
	var n networks
	var name [28]byte
	size := sys.PutAddrPort(name[:], sys.IPv4, netip.MustParseAddrPort("192.0.2.1:1"), 0)
	n.of(sys.IPv4, name[:size])
	var now time.Duration
	if allocs := testing.AllocsPerRun(1000, func() {
		now += time.Millisecond
		name[4]++
		name[6] += 3
		c := n.of(sys.IPv4, name[:size])
		n.look(c, now)
		n.count(c, now)
		n.know(c, now)
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func BenchmarkNetworksLook(b *testing.B) {
	var n networks
	var name [28]byte
	size := sys.PutAddrPort(name[:], sys.IPv4, netip.MustParseAddrPort("192.0.2.1:1"), 0)
	for b.Loop() {
		name[4]++
		name[6] += 3
		n.look(n.of(sys.IPv4, name[:size]), time.Hour)
	}
}
