package relay

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
)

// The kernel delivers what is sent to a broadcast or multicast address to each socket of the port, and
// so to each loop. A client yet has one flow, and each datagram is relayed once.
func TestOneFlowForDatagramsToMany(t *testing.T) {
	if !testnet.Netns(t, "link set lo multicast on", "route add 224.0.0.0/4 dev lo src 127.0.0.1") {
		return
	}
	group, err := net.ListenMulticastUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(224, 0, 0, 99)}) // only members of a group receive
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	for _, row := range []struct {
		bound, to string
		sockets   int
	}{
		{"0.0.0.0", "127.255.255.255", 4},
		{"::", "127.255.255.255", 4},
		{"0.0.0.0", "224.0.0.99", 4},
		{"127.255.255.255", "127.255.255.255", 1},
		{"224.0.0.99", "224.0.0.99", 1},
		{"127.0.0.1", "127.0.0.1", 4},
		{"0.0.0.0", "127.0.0.1", 4},
	} {
		t.Run(fmt.Sprintf("bound=%s/to=%s", row.bound, row.to), func(t *testing.T) {
			r := newDatagramRig(t, Config{Loops: 4})
			at := Addr{Network: UDP, AddrPort: netip.AddrPortFrom(netip.MustParseAddr(row.bound), 0)}
			l := r.listenAt(at, ListenConfig{}, &Addr{Network: Echo})
			if n := len(l.ports); n != row.sockets {
				t.Errorf("%d sockets, want %d", n, row.sockets)
			}
			to := Addr{Network: UDP, AddrPort: netip.AddrPortFrom(netip.MustParseAddr(row.to), l.Addr().AddrPort.Port())}
			const clients, each = 16, 5
			for range clients {
				c := packetSocketAt(t, "127.0.0.1:0")
				for i := range each {
					askGram(t, c, to, fmt.Sprint(i))
				}
			}
			// What was sent is in the queues of all sockets, which the loops look at before they answer.
			if s := r.dgramStats(); s.Begun != clients || s.Received != 2*clients*each {
				t.Errorf("%d flows and %d datagrams; want %d, %d", s.Begun, s.Received, clients, 2*clients*each)
			}
		})
	}
}

// So it is with IPv6, whose groups need another device than loopback, and the flow outlives its process.
func TestOneFlowForDatagramsToMany6(t *testing.T) {
	if !testnet.Netns(t) {
		return
	}
	if out, err := exec.Command("ip", "link", "add", "one", "type", "veth", "peer", "name", "two").CombinedOutput(); err != nil {
		t.Skipf("no pair of devices here: %v: %s", err, out)
	}
	testnet.Sysctl(t, "net.ipv6.conf.two.disable_ipv6", "1")
	testnet.IP(t, "link set two up", "link set one up", "addr add fe80::1/64 dev one nodad")
	k := newKeptTable(t)
	o := keptOrder{Loops: 4, Listen: []string{"udp://[::]:" + testnet.Port(t)}, Upstream: gramEcho(t, "udp6").String()}
	p := k.start(o)
	o.Listen = p.urls()
	c := packetSocketAt(t, "[fe80::1%one]:0")
	to := netip.AddrPortFrom(netip.MustParseAddr("ff02::1%one"), p.addrs[0].AddrPort.Port())
	ask := func(text string) {
		t.Helper()
		b := make([]byte, 100)
		for deadline := time.Now().Add(patience); ; { // a device that has just come up may lose a datagram
			if _, err := c.WriteTo([]byte(text), net.UDPAddrFromAddrPort(to)); err != nil {
				t.Fatal(err)
			}
			c.SetReadDeadline(time.Now().Add(patience / 20))
			n, _, err := c.ReadFrom(b)
			if err == nil && string(b[:n]) == text {
				return
			}
			if err != nil && time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	}
	for i := range 5 {
		ask(fmt.Sprint(i))
	}
	if n := begun(p); n != 1 {
		t.Errorf("%d flows, want 1", n)
	}
	k.settled(1)
	p.kill()
	p = k.start(o)
	if r := p.Restored; r.Flows != 1 || r.TotalLost() != 0 {
		t.Errorf("%+v, want one flow", r)
	}
	ask("on it goes")
	if n := begun(p); n != 1 {
		t.Errorf("%d flows, want 1", n)
	}
}

func TestIsBroadcast(t *testing.T) {
	if !testnet.Netns(t, "addr add 10.91.1.2/24 brd + dev lo", "route add prohibit 10.92.0.0/16") {
		return
	}
	for ip, want := range map[string]bool{
		"10.91.1.255": true, "255.255.255.255": true, "127.255.255.255": true,
		"10.91.1.2": false, "127.0.0.1": false, "0.0.0.0": false, "10.92.0.1": false, "10.93.0.1": false, "::1": false,
	} {
		if got := sys.IsBroadcast(sys.Linux{}, netip.MustParseAddr(ip)); got != want {
			t.Errorf("%s: %v", ip, got)
		}
	}
}

// begun is how many datagram flows have begun in a child and those before it.
func begun(p *keptProcess) int64 {
	s := p.ask("stats").Stats
	total := s.Total()
	return total.Datagrams.Begun
}
