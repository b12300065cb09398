//go:build linux

package conformance

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/dgram"
	"github.com/penstock/penstock/internal/testnet"
)

// datagrams is a socket of dgram, or of package net behind the same calls.
type datagrams interface {
	write(text string, to netip.AddrPort, path string) error
	read(room int) (text string, from netip.AddrPort, path string, cut bool, err error)
}

type ourDatagrams struct{ *dgram.Conn }

func (c ourDatagrams) write(text string, to netip.AddrPort, path string) error {
	n, err := c.WriteBatch([]dgram.Message{{Buf: []byte(text), Addr: to, Path: path}})
	if (n == 1) != (err == nil) {
		return fmt.Errorf("%d of one message and %v", n, err)
	}
	return err
}

func (c ourDatagrams) read(room int) (string, netip.AddrPort, string, bool, error) {
	ms := []dgram.Message{{Buf: make([]byte, room)}}
	if c.Mode().GRO {
		ms = dgram.MakeMessages(1)
	}
	if _, err := c.ReadBatch(ms); err != nil {
		return "", netip.AddrPort{}, "", false, err
	}
	m := &ms[0]
	cut := m.Flags&dgram.Truncated != 0
	if m.N > room {
		m.N, cut = room, true
	}
	return string(m.Buf[:m.N]), m.Addr, m.Path, cut, nil
}

type netUDP struct{ *net.UDPConn }

func (c netUDP) write(text string, to netip.AddrPort, _ string) error {
	_, _, err := c.WriteMsgUDPAddrPort([]byte(text), nil, to)
	return err
}

func (c netUDP) read(room int) (string, netip.AddrPort, string, bool, error) {
	b := make([]byte, room)
	n, _, flags, from, err := c.ReadMsgUDPAddrPort(b, nil)
	if err != nil {
		return "", netip.AddrPort{}, "", false, err
	}
	return string(b[:n]), netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), "", flags&0x20 != 0, nil // MSG_TRUNC
}

type netUnix struct{ *net.UnixConn }

func (c netUnix) write(text string, _ netip.AddrPort, path string) error {
	if path == "" {
		_, err := c.Write([]byte(text))
		return err
	}
	_, _, err := c.WriteMsgUnix([]byte(text), nil, &net.UnixAddr{Net: "unixgram", Name: path})
	return err
}

func (c netUnix) read(room int) (string, netip.AddrPort, string, bool, error) {
	b := make([]byte, room)
	n, _, flags, from, err := c.ReadMsgUnix(b, nil)
	if err != nil {
		return "", netip.AddrPort{}, "", false, err
	}
	path := ""
	if from != nil {
		path = from.Name
	}
	return string(b[:n]), netip.AddrPort{}, path, flags&0x20 != 0, nil
}

// TestDatagrams makes the same calls on sockets of package net and of dgram.
func TestDatagrams(t *testing.T) {
	testnet.CheckLeaks(t)
	for name, cfg := range map[string]dgram.Config{"best": {}, "plain": {NoGSO: true, NoGRO: true}} {
		for _, network := range []string{"udp4", "udp6", "udp", "connected udp4", "connected udp6", "unixgram", "connected unixgram"} {
			t.Run(name+"/"+network, func(t *testing.T) {
				play := func(ours bool) (said []string) {
					c, closer, peer, peerPath := datagramSockets(t, network, ours, cfg)
					defer closer.Close()
					say := func(what string, err error) { said = append(said, what+": "+class(err)) }
					read := func(room int) {
						text, from, path, cut, err := c.read(room)
						if len(text) > 20 {
							text = fmt.Sprint(len(text), " bytes")
						}
						said = append(said, fmt.Sprintf("%q from the peer %t %t, cut %t: %s", text, from == peer, path == peerPath, cut, class(err)))
					}
					connected := strings.HasPrefix(network, "connected")
					to, toPath := peer, peerPath
					if connected { // dgram also accepts the peer's address there, which net refuses
						to, toPath = netip.AddrPort{}, ""
					}
					// The peer sends back what it gets.
					exchange := func(what, text string, to netip.AddrPort, path string, room int) {
						err := c.write(text, to, path)
						if err != nil && strings.HasPrefix(what, "an error: ") { // dgram returns the system call's error, net one of its own
							said = append(said, what)
							return
						}
						say(what, err)
						if err == nil {
							read(room)
						}
					}
					for i, text := range []string{"hello", "", strings.Repeat("x", 9000), "long", "hello"} {
						exchange(fmt.Sprint("write ", len(text)), text, to, toPath, []int{9, 9, 9000, 2, 9}[i])
					}
					if !connected && peer.IsValid() {
						exchange("to the peer as 4-in-6", "x", netip.AddrPortFrom(netip.AddrFrom16(peer.Addr().As16()), peer.Port()), "", 9)
					}
					exchange("too long", strings.Repeat("x", 1<<20), to, toPath, 9)
					exchange("an error: to nobody", "x", netip.AddrPort{}, "", 9)
					if peer.IsValid() {
						exchange("elsewhere on a connected socket, to port 0 on another", "x", netip.AddrPortFrom(peer.Addr(), 0), "", 9)
					} else {
						exchange("to a path that is not there", "x", peer, peerPath+"-not-there", 9)
						exchange("an error: to a path that is too long", "x", peer, peerPath+strings.Repeat("x", 200), 9)
					}
					exchange("write after that", "x", to, toPath, 9)
					closer.SetDeadline(time.Unix(1, 0))
					say("write too late", c.write("x", to, toPath))
					read(9)
					closer.SetDeadline(time.Now().Add(patience))
					exchange("write again", "x", to, toPath, 9)
					closer.Close()
					say("write closed", c.write("x", to, toPath))
					read(9)
					return said
				}
				wantSame(t, play(true), play(false))
			})
		}
	}
}

// datagramSockets returns a socket of a network, and a peer that sends back what it gets.
func datagramSockets(t *testing.T, network string, ours bool, cfg dgram.Config) (c datagrams, closer net.Conn, peer netip.AddrPort, peerPath string) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	connected := strings.HasPrefix(network, "connected ")
	kind := strings.TrimPrefix(network, "connected ")
	echo := func(p net.PacketConn) {
		done := make(chan struct{})
		t.Cleanup(func() { p.Close(); <-done })
		go func() {
			defer close(done)
			b := make([]byte, 1<<16)
			for {
				n, from, err := p.ReadFrom(b)
				if err != nil {
					return
				}
				p.WriteTo(b[:n], from)
			}
		}()
	}
	if kind == "unixgram" {
		dir := t.TempDir()
		peerPath = filepath.Join(dir, "p")
		p, err := net.ListenUnixgram(kind, &net.UnixAddr{Net: kind, Name: peerPath})
		check(err)
		echo(p)
		own := &net.UnixAddr{Net: kind, Name: filepath.Join(dir, "c")}
		var u *net.UnixConn
		if connected {
			u, err = net.DialUnix(kind, own, p.LocalAddr().(*net.UnixAddr))
		} else {
			u, err = net.ListenUnixgram(kind, own)
		}
		check(err)
		u.SetDeadline(time.Now().Add(patience))
		if !ours {
			return netUnix{u}, u, peer, peerPath
		}
		d, err := dgram.NewUnix(u, cfg)
		check(err)
		return ourDatagrams{d}, u, peer, peerPath
	}
	host := net.IPv4(127, 0, 0, 1)
	if kind == "udp6" {
		host = net.IPv6loopback
	}
	p, err := net.ListenUDP("udp", &net.UDPAddr{IP: host})
	check(err)
	echo(p)
	to := p.LocalAddr().(*net.UDPAddr)
	peer = netip.AddrPortFrom(to.AddrPort().Addr().Unmap(), to.AddrPort().Port())
	var u *net.UDPConn
	if connected {
		u, err = net.DialUDP(kind, nil, to)
	} else {
		u, err = net.ListenUDP(kind, nil)
	}
	check(err)
	u.SetDeadline(time.Now().Add(patience))
	if !ours {
		return netUDP{u}, u, peer, peerPath
	}
	d, err := dgram.New(u, cfg)
	check(err)
	return ourDatagrams{d}, u, peer, peerPath
}
