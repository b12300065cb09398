package dgram

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
)

// TestAnswerOfMany: what was sent to many, by broadcast or to a group, is answered
// from the address of this machine that it came in by, never from theirs.
func TestAnswerOfMany(t *testing.T) {
	if !testnet.Netns(t, "link set lo multicast on", "route add 224.0.0.0/4 dev lo src 127.0.0.1") {
		return
	}
	answerMany(t, "udp4", "lo", "127.255.255.255", "127.0.0.1")
	answerMany(t, "udp", "lo", "127.255.255.255", "127.0.0.1")
	answerMany(t, "udp4", "lo", "224.0.0.99", "127.0.0.1")
}

// TestAnswerOfMany6 is the same for IPv6, whose groups need another device than
// loopback.
func TestAnswerOfMany6(t *testing.T) {
	if !testnet.Netns(t) {
		return
	}
	if out, err := exec.Command("ip", "link", "add", "one", "type", "veth", "peer", "name", "two").CombinedOutput(); err != nil {
		t.Skipf("no pair of devices here: %v: %s", err, out)
	}
	testnet.Sysctl(t, "net.ipv6.conf.two.disable_ipv6", "1")
	testnet.IP(t, "link set two up", "link set one up", "addr add fe80::1/64 dev one nodad")
	answerMany(t, "udp6", "one", "ff02::99", "fe80::1")
	answerMany(t, "udp", "one", "ff02::99", "fe80::1")
}

func answerMany(t *testing.T, network, device, many, one string) {
	dev, err := net.InterfaceByName(device)
	if err != nil {
		t.Fatal(err)
	}
	to, from := netip.MustParseAddr(many), netip.MustParseAddr(one)
	clientNet := "udp4"
	if to.Is6() {
		clientNet, to, from = "udp6", to.WithZone(device), from.WithZone(device)
	}
	if to.IsMulticast() { // only members of a group receive
		c, err := net.ListenMulticastUDP(clientNet, dev, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 0)))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	for _, l := range batchLevels {
		t.Run(fmt.Sprintf("%s-%s-%s", l.name, network, many), func(t *testing.T) {
			server, client := listen(t, network, ":0"), listen(t, clientNet, netip.AddrPortFrom(from, 0).String())
			s := l.with(func(c *Config) { c.Local = true }).conn(t, server)
			c := l.conn(t, client)
			want := netip.AddrPortFrom(from, local(server).Port())
			// A device that has just come up may lose a datagram: ask again.
			ms := MakeMessages(1)
			question := []Message{{Buf: []byte("anyone?"), Addr: netip.AddrPortFrom(to, local(server).Port())}}
			for deadline := time.Now().Add(patience); ; {
				mustWrite(t, c, question)
				server.SetReadDeadline(time.Now().Add(250 * time.Millisecond))
				_, err := s.ReadBatch(ms)
				if err == nil {
					m := ms[0]
					if m.Interface != dev.Index || to.Is4() && m.Local != from || to.Is6() && m.Local.IsValid() {
						t.Errorf("came to %v by interface %d, want %v by %d", m.Local, m.Interface, from, dev.Index)
					}
					m.Buf = m.Buf[:m.N]
					mustWrite(t, s, []Message{m})
					client.SetReadDeadline(time.Now().Add(250 * time.Millisecond))
					_, err = c.ReadBatch(ms)
				}
				if err == nil {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal(err)
				}
			}
			if got := ms[0].Addr; got != want {
				t.Errorf("answer from %s, want %s", got, want)
			}
		})
	}
}
