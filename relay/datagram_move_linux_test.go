package relay

import (
	"net"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// A flow that goes on to an upstream of another kind sends each datagram for
// itself: what was planned as a run for the first one is not a run for the second,
// and nothing that it held stays behind.
func TestMoveToAnotherKindOfUpstream(t *testing.T) {
	for _, second := range []string{"unixgram", "udp6", "echo"} {
		t.Run(second, func(t *testing.T) {
			r := newDatagramRig(t, Config{Loops: 1})
			a, c := packetSocket(t, "udp4"), packetSocket(t, "udp4")
			first := gramAddr(a.LocalAddr())
			next, b := nextUpstream(t, second, c)
			l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, &first, next)
			tellGram(t, c, l.Addr(), "first")
			hearGram(t, a, "first")
			r.k.Fail(testkernel.SendRun, sys.ECONNREFUSED, 1) // what the first one met
			texts := append(numbered(7), "last")
			sendRun(t, c, l.Addr().AddrPort, texts...)
			for _, text := range texts {
				hearGram(t, b, text)
			}
			if s := r.dgramStats(); s.Dropped.Total() != 0 {
				t.Errorf("dropped %v", s.Dropped)
			}
		})
	}
}

// nextUpstream is an upstream of a kind, and the socket that hears what is sent there.
func nextUpstream(t *testing.T, network string, client net.PacketConn) (*Addr, net.PacketConn) {
	if network == "echo" {
		return &Addr{Network: Echo}, client
	}
	s := packetSocket(t, network)
	at := gramAddr(s.LocalAddr())
	return &at, s
}

// What a flow held for a full upstream goes to the next one, in its order, when
// the first turns out to be gone.
func TestMoveWithDatagramsHeld(t *testing.T) {
	for _, second := range []string{"udp4", "unixgram", "echo"} {
		t.Run(second, func(t *testing.T) {
			if !testnet.Netns(t) {
				return
			}
			raw, err := net.ListenPacket("ip4:icmp", "127.0.0.1")
			if err != nil {
				t.Fatal(err)
			}
			defer raw.Close()
			r := newDatagramRig(t, Config{Loops: 1})
			a, c := packetSocket(t, "udp4"), packetSocket(t, "udp4")
			first := gramAddr(a.LocalAddr())
			next, b := nextUpstream(t, second, c)
			l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, &first, next)
			tellGram(t, c, l.Addr(), "first")
			from := hearGram(t, a, "first").(*net.UDPAddr)
			for _, call := range []testkernel.Call{testkernel.Send, testkernel.SendRun} {
				r.k.Fail(call, sys.EAGAIN, -1)
			}
			for _, text := range []string{"held one", "held two"} {
				tellGram(t, c, l.Addr(), text)
			}
			testwait.Until(t, "both are read", func() bool { return r.dgramStats().Received == 3 })
			const portUnreachable = 3
			icmpError(t, raw, portUnreachable, from, a.LocalAddr().(*net.UDPAddr))
			testwait.Until(t, "the error is noticed", func() bool { return r.dgramStats().ICMPErrors >= 1 })
			r.k.Heal()
			for _, text := range []string{"held one", "held two"} {
				hearGram(t, b, text)
			}
			tellGram(t, c, l.Addr(), "three")
			hearGram(t, b, "three")
			testwait.Until(t, "nothing is held", func() bool { return r.dgramStats().BytesHeld == 0 })
		})
	}
}

// What the kernel has dropped is counted for each socket of a flow.
func TestKernelDropsOfTheNextUpstream(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	c := packetSocket(t, "udp4")
	ups := []net.PacketConn{packetSocket(t, "udp4"), packetSocket(t, "udp4")}
	first, second := gramAddr(ups[0].LocalAddr()), gramAddr(ups[1].LocalAddr())
	small := &DialConfig{Socket: SocketOptions{RecvBuffer: 4096}}
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Dial: small}, &first, &second)
	sent := int64(0)
	for i, up := range ups {
		if i > 0 {
			r.k.Fail(testkernel.Send, sys.ECONNREFUSED, 1) // what the first one met
		}
		tellGram(t, c, l.Addr(), "question")
		back := gramAddr(hearGram(t, up, "question"))
		sent++
		release := r.holdLoop()
		for range 200 - 100*i {
			tellGram(t, up, back, "more than the socket holds")
			sent++
		}
		release()
		testwait.Until(t, "all are accounted for", func() bool {
			tellGram(t, up, back, "another, which tells of those before it")
			sent++
			s := r.dgramStats()
			return s.Received+s.Lost >= sent-5 // the last may be on their way
		})
	}
}
