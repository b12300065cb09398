//go:build linux

package conformance

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/penstock/penstock/dgram"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/xnet"
)

// udpConn is the interface that a *net.UDPConn and an xnet.Conn share.
type udpConn interface {
	net.PacketConn
	net.Conn
	File() (*os.File, error)
	ReadFromUDP(b []byte) (int, *net.UDPAddr, error)
	ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error)
	ReadMsgUDP(b, oob []byte) (n, oobn, flags int, addr *net.UDPAddr, err error)
	ReadMsgUDPAddrPort(b, oob []byte) (n, oobn, flags int, addr netip.AddrPort, err error)
	WriteToUDP(b []byte, addr *net.UDPAddr) (int, error)
	WriteToUDPAddrPort(b []byte, addr netip.AddrPort) (int, error)
	WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error)
	WriteMsgUDPAddrPort(b, oob []byte, addr netip.AddrPort) (n, oobn int, err error)
}

var (
	_ udpConn   = (*net.UDPConn)(nil)
	_ udpConn   = (*xnet.Conn)(nil)
	_ io.Reader = (*xnet.Conn)(nil)
)

// reads are the methods that read one datagram, each with a description of what was read.
var reads = []struct {
	name string
	read func(c udpConn, b []byte) (int, string, error)
}{
	{"Read", func(c udpConn, b []byte) (int, string, error) { n, err := c.Read(b); return n, "", err }},
	{"ReadFrom", func(c udpConn, b []byte) (int, string, error) {
		n, a, err := c.ReadFrom(b)
		return n, addrShape(a), err
	}},
	{"ReadFromUDP", func(c udpConn, b []byte) (int, string, error) {
		n, a, err := c.ReadFromUDP(b)
		return n, addrShape(a), err
	}},
	{"ReadFromUDPAddrPort", func(c udpConn, b []byte) (int, string, error) {
		n, a, err := c.ReadFromUDPAddrPort(b)
		return n, a.Addr().String(), err
	}},
	{"ReadMsgUDP", func(c udpConn, b []byte) (int, string, error) {
		n, nn, flags, a, err := c.ReadMsgUDP(b, nil)
		return n, fmt.Sprint(nn, flags&^0x40000000, addrShape(a)), err // only package net sets MSG_CMSG_CLOEXEC
	}},
	{"ReadMsgUDPAddrPort", func(c udpConn, b []byte) (int, string, error) {
		n, nn, flags, a, err := c.ReadMsgUDPAddrPort(b, make([]byte, 64))
		return n, fmt.Sprint(nn, flags&^0x40000000, a.Addr()), err
	}},
}

// addrShape describes an address without its port.
func addrShape(a net.Addr) string {
	u, ok := a.(*net.UDPAddr)
	if !ok || u == nil {
		return fmt.Sprintf("%T", a)
	}
	return fmt.Sprintf("%v in %d bytes zone %q", u.IP, len(u.IP), u.Zone)
}

// TestUDPConn makes the same calls on a *net.UDPConn and on an xnet.Conn.
func TestUDPConn(t *testing.T) {
	testnet.CheckLeaks(t)
	for name, cfg := range map[string]dgram.Config{"best": {}, "plain": {NoGSO: true, NoGRO: true}} {
		for _, row := range []struct{ network, to string }{{"udp4", "127.0.0.1"}, {"udp", "127.0.0.1"}, {"udp", "::1"}, {"udp6", "::1"}, {"connected", "127.0.0.1"}} {
			for _, method := range reads {
				t.Run(fmt.Sprintf("%s/%s to %s/%s", name, row.network, row.to, method.name), func(t *testing.T) {
					play := func(ours bool) (said []string) {
						udp, peer := udpPair(t, row.network, row.to)
						defer udp.Close()
						defer peer.Close()
						var c udpConn = udp
						if ours {
							x, err := xnet.New(udp, cfg)
							if err != nil {
								t.Fatal(err)
							}
							c = x
						}
						say := func(what string, b []byte) {
							n, more, err := method.read(c, b)
							if err != nil {
								more = "" // the address that package net then returns means nothing
							}
							said = append(said, fmt.Sprintf("%s: %q %s %s", what, b[:n], more, class(err)))
						}
						send := func(texts ...string) {
							for _, text := range texts {
								if _, err := peer.Write([]byte(text)); err != nil {
									t.Fatal(err)
								}
							}
						}
						send("one", "two", "three", "", "five")
						say("room", make([]byte, 9))
						say("too little room", make([]byte, 2))
						say("room again", make([]byte, 9))
						say("an empty datagram", make([]byte, 9))
						say("no room", nil)
						send("six", "six", "six", "six")
						say("next", make([]byte, 9))
						say("next", make([]byte, 9))
						c.SetReadDeadline(time.Unix(1, 0))
						say("too late", make([]byte, 9))
						say("too late, no room", nil)
						c.SetReadDeadline(time.Now().Add(patience))
						say("next", make([]byte, 9))
						c.Close()
						say("closed", make([]byte, 9))
						say("closed, no room", nil)
						return said
					}
					wantSame(t, play(true), play(false))
				})
			}
		}
	}
}

// udpPair returns a socket of a network, and one that is connected to it.
func udpPair(t *testing.T, network, to string) (udp, peer *net.UDPConn) {
	t.Helper()
	var err error
	if network == "connected" {
		if peer, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(to)}); err != nil {
			t.Fatal(err)
		}
		if udp, err = net.DialUDP("udp", nil, peer.LocalAddr().(*net.UDPAddr)); err != nil {
			t.Fatal(err)
		}
		self := udp.LocalAddr().(*net.UDPAddr)
		back := peer.LocalAddr().(*net.UDPAddr)
		peer.Close()
		if peer, err = net.DialUDP("udp", back, self); err != nil {
			t.Fatal(err)
		}
	} else {
		if udp, err = net.ListenUDP(network, nil); err != nil {
			t.Fatal(err)
		}
		if peer, err = net.DialUDP("udp", nil, &net.UDPAddr{IP: net.ParseIP(to), Port: udp.LocalAddr().(*net.UDPAddr).Port}); err != nil {
			t.Fatal(err)
		}
	}
	udp.SetDeadline(time.Now().Add(patience))
	return udp, peer
}
