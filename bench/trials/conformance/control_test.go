//go:build linux

package conformance

import (
	"encoding/hex"
	"fmt"
	"net"
	"testing"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/penstock/penstock/dgram"
	"github.com/penstock/penstock/internal/testnet"
)

// oobReader receives datagrams with their control messages, one by one.
type oobReader interface {
	ReadMsgUDP(b, oob []byte) (n, oobn, flags int, addr *net.UDPAddr, err error)
}

// wantControl asks for control messages as a DNS server does: for both families on a dual-stack
// socket, so that each IPv4 datagram comes with two.
func wantControl(c *net.UDPConn) error {
	err4 := ipv4.NewPacketConn(c).SetControlMessage(ipv4.FlagDst|ipv4.FlagInterface, true)
	err6 := ipv6.NewPacketConn(c).SetControlMessage(ipv6.FlagDst|ipv6.FlagInterface, true)
	if err4 != nil && err6 != nil {
		return err4
	}
	return nil
}

// TestControlRoom: whatever the size of the buffer for control messages, it receives what the
// kernel would have written there, and MSG_CTRUNC is set as the kernel sets it.
func TestControlRoom(t *testing.T) {
	testnet.CheckLeaks(t)
	rooms := []int{0, 1, 15, 16, 17, 20, 27, 28, 29, 31, 32, 33, 36, 39, 40, 41, 55, 56, 64, 68, 71, 72, 73, 96, 128, 256, 1024}
	for _, ours := range []batchSide{ourBatch("best", dgram.Config{}), ourBatch("plain", dgram.Config{NoGSO: true, NoGRO: true})} {
		for _, row := range []struct{ network, to string }{{"udp4", "127.0.0.1"}, {"udp", "127.0.0.1"}, {"udp6", "::1"}, {"udp", "::1"}} {
			for _, options := range []string{"", "dst", "more"} {
				for _, method := range []string{"batch", "two buffers", "msg"} {
					t.Run(fmt.Sprintf("%s/%s to %s/%s/%s", ours.name, row.network, row.to, options, method), func(t *testing.T) {
						play := func(side batchSide) (said []string) {
							s := &stage{T: t, side: side}
							s.udp, s.batch = s.open(net.ListenUDP(row.network, nil))
							send, err := net.Dial("udp", net.JoinHostPort(row.to, fmt.Sprint(s.self().(*net.UDPAddr).Port)))
							if err != nil {
								t.Fatal(err)
							}
							defer send.Close()
							if options != "" {
								if err := wantControl(s.udp); err != nil {
									t.Fatal(err)
								}
							}
							if options == "more" {
								ipv4.NewPacketConn(s.udp).SetControlMessage(ipv4.FlagTTL, true)
								ipv6.NewPacketConn(s.udp).SetControlMessage(ipv6.FlagHopLimit|ipv6.FlagTrafficClass, true)
							}
							for _, room := range rooms {
								if _, err := send.Write([]byte("question")); err != nil {
									t.Fatal(err)
								}
								oob := make([]byte, room)
								if room == 0 {
									oob = nil
								}
								var n, flags int
								if method == "msg" {
									r, ok := s.batch.(oobReader)
									if !ok {
										r = s.udp
									}
									_, n, flags, _, err = r.ReadMsgUDP(make([]byte, 64), oob)
									flags &^= 0x40000000 // MSG_CMSG_CLOEXEC, which package net sets
								} else {
									ms := []ipv4.Message{{Buffers: [][]byte{make([]byte, 64)}, OOB: oob}}
									if method == "two buffers" {
										ms[0].Buffers = [][]byte{make([]byte, 3), make([]byte, 61)}
									}
									_, err = s.ReadBatch(ms, 0)
									n, flags = ms[0].NN, ms[0].Flags
								}
								if err != nil {
									t.Fatal(err)
								}
								said = append(said, fmt.Sprintf("room %d: %d bytes %s flags %#x", room, n, hex.EncodeToString(oob[:n]), flags))
							}
							return said
						}
						theirs, ourSaid := play(theirBatch), play(ours)
						for i := range theirs {
							if theirs[i] != ourSaid[i] {
								t.Errorf("ours\n%s\ntheirs\n%s", ourSaid[i], theirs[i])
							}
						}
					})
				}
			}
		}
	}
}
