package relay

import (
	"encoding/binary"
	"fmt"
	"net"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/stats"
)

// icmpError tells the sender of a datagram that it did not arrive: "destination
// unreachable" with a code. RFC 792.
func icmpError(t *testing.T, raw net.PacketConn, code byte, from, to *net.UDPAddr) {
	t.Helper()
	b := make([]byte, 8+20+8)
	b[0], b[1] = 3, code
	binary.BigEndian.PutUint16(b[6:], 1000) // the next hop's MTU
	ip := b[8:]
	ip[0], ip[8], ip[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(ip[2:], 1400)
	copy(ip[12:], from.IP.To4())
	copy(ip[16:], to.IP.To4())
	binary.BigEndian.PutUint16(ip[20:], uint16(from.Port))
	binary.BigEndian.PutUint16(ip[22:], uint16(to.Port))
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(b[2:], ^uint16(sum>>16+sum))
	if _, err := raw.WriteTo(b, &net.IPAddr{IP: from.IP}); err != nil {
		t.Fatal(err)
	}
}

// Routers say every day that a datagram was too long, or that a host cannot be
// reached: a flow survives both, and what it sends next arrives.
func TestRoutineICMP(t *testing.T) {
	if !testnet.Netns(t) {
		return
	}
	raw, err := net.ListenPacket("ip4:icmp", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	const fragmentationNeeded, hostUnknown, hostIsolated, filtered = 4, 7, 8, 13
	r := newDatagramRig(t, Config{Loops: 1})
	block := r.blockLoop()
	s := packetSocket(t, "udp4")
	up := gramAddr(s.LocalAddr())
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Datagram: DatagramConfig{OnUnreachable: UnreachableIgnore}}, &up)
	c := packetSocket(t, "udp4")
	told := int64(0)
	for _, code := range []byte{fragmentationNeeded, hostUnknown, hostIsolated, filtered} {
		tellGram(t, c, l.Addr(), "before")
		from := hearGram(t, s, "before").(*net.UDPAddr)
		icmpError(t, raw, code, from, s.LocalAddr().(*net.UDPAddr))
		told++
		testwait.Until(t, fmt.Sprint("the error of code ", code, " is counted"), func() bool { return r.dgramStats().ICMPErrors == told })
		release := block() // so that the send meets the next one
		icmpError(t, raw, code, from, s.LocalAddr().(*net.UDPAddr))
		tellGram(t, c, l.Addr(), "after")
		release()
		told++
		if again := hearGram(t, s, "after"); again.String() != from.String() {
			t.Errorf("after code %d there is another flow", code)
		}
		testwait.Until(t, fmt.Sprint("the second error of code ", code, " is counted"), func() bool { return r.dgramStats().ICMPErrors == told })
	}
	r.e.Close()
	for {
		rec := r.record()
		if rec.Listener != l {
			continue
		}
		if rec.Cause != CauseClosed || rec.Up.DatagramsDropped != 0 || rec.Up.Datagrams != 8 {
			t.Errorf("%+v", rec)
		}
		return
	}
}

// An error that an earlier datagram left on the socket is nobody else's: the
// datagram or run that meets it is sent again, and its route not blamed.
func TestEarlierErrorIsNotThisDatagrams(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	s := packetSocket(t, "udp4")
	up := gramAddr(s.LocalAddr())
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, &up)
	c := packetSocket(t, "udp4")
	r.k.Fail(testkernel.Send, sys.EMSGSIZE, 1)
	tellGram(t, c, l.Addr(), "one")
	hearGram(t, s, "one")
	texts := numbered(20)
	for range 2 {
		r.k.Fail(testkernel.SendRun, sys.EMSGSIZE, 1)
		sendRun(t, c, l.Addr().AddrPort, texts...)
		for _, text := range texts {
			hearGram(t, s, text)
		}
	}
	if st := r.dgramStats(); st.Fallbacks != 0 || st.Runs != 2 || st.ICMPErrors != 3 || st.Dropped.Total() != 0 {
		t.Errorf("%+v", st)
	}
}

// A run whose datagrams fail one by one as well says nothing about runs.
func TestRunThatFailsAnywayBlamesNoRoute(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	s := packetSocket(t, "udp4")
	up := gramAddr(s.LocalAddr())
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, &up)
	c := packetSocket(t, "udp4")
	texts := numbered(20)
	r.k.Fail(testkernel.SendRun, sys.EINVAL, 2)
	r.k.Fail(testkernel.SendBatch, sys.EINVAL, 20)
	sendRun(t, c, l.Addr().AddrPort, texts...)
	testwait.Until(t, "all are dropped", func() bool { return r.dgramStats().Dropped.Get(stats.DropFailed) == 20 })
	r.k.Heal()
	sendRun(t, c, l.Addr().AddrPort, texts...)
	for _, text := range texts {
		hearGram(t, s, text)
	}
	if st := r.dgramStats(); st.Runs != 1 {
		t.Errorf("the next run was not tried: %+v", st)
	}
}

// An upstream that cannot be reached at all costs each datagram a few tries, and
// no more: the loop goes on, and so does the flow once it can be reached.
func TestUnreachableForLong(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	s, c := packetSocket(t, "udp4"), packetSocket(t, "udp4")
	up := gramAddr(s.LocalAddr())
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Datagram: DatagramConfig{OnUnreachable: UnreachableIgnore}}, &up)
	r.k.Fail(testkernel.Send, sys.EHOSTUNREACH, -1)
	tellGram(t, c, l.Addr(), "lost")
	testwait.Until(t, "it is dropped", func() bool { return r.dgramStats().Dropped.Get(stats.DropUnreachable) == 1 })
	r.k.Heal()
	tellGram(t, c, l.Addr(), "arrives")
	hearGram(t, s, "arrives")
}

// A datagram that meets the error of an earlier one takes the flow to the next
// upstream, and closes the socket of the one before. The same wait may have given
// an event of that socket: it is not handled as one of the next.
func TestEventOfTheUpstreamBefore(t *testing.T) {
	for _, network := range []string{"udp4", "udp6"} {
		t.Run(network, func(t *testing.T) {
			r := newDatagramRig(t, Config{Loops: 1})
			c := packetSocket(t, network)
			gone, echo := gramPlace(t, network), Addr{Network: Echo}
			l := r.listenAt(gramPlace(t, network), ListenConfig{Hooks: Hooks{Upstream: func(f *Flow, attempt int) *Addr {
				if attempt > 0 {
					return &echo
				}
				// It waits at the port when the first one's error comes.
				if _, err := c.WriteTo([]byte("two"), gramNet(f.Listener().Addr())); err != nil {
					t.Error(err)
				}
				return &gone
			}}})
			tellGram(t, c, l.Addr(), "one")
			hearGram(t, c, "two")
			askGram(t, c, l.Addr(), "three")
			r.e.Close()
			if rec := r.expect(CauseClosed); rec.Attempts != 2 || rec.Up.Datagrams != 3 || rec.Down.Datagrams != 2 {
				t.Errorf("%+v", rec)
			}
		})
	}
}

// A flow that ends when what it held is sent does not read the answer that came with
// the same event.
func TestHeldDatagramMeetsError(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	s, c := packetSocket(t, "udp4"), packetSocket(t, "udp4")
	up := gramAddr(s.LocalAddr())
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Datagram: DatagramConfig{OnUnreachable: UnreachableEnd}}, &up)
	tellGram(t, c, l.Addr(), "one")
	from := hearGram(t, s, "one")
	r.k.Fail(testkernel.Send, sys.EAGAIN, -1)
	tellGram(t, c, l.Addr(), "two")
	testwait.Until(t, "the second one is held", func() bool { return r.dgramStats().BytesHeld > 0 })
	release := holdLoop(r)
	r.k.Heal()
	r.k.Fail(testkernel.Send, sys.ECONNREFUSED, 1)
	if _, err := s.WriteTo([]byte("answer"), from); err != nil {
		t.Fatal(err)
	}
	release()
	if rec := r.expect(CauseUpstreamRefused); rec.Up.Datagrams != 1 || rec.Up.DatagramsDropped != 1 || rec.Down.Datagrams != 0 {
		t.Errorf("%+v", rec)
	}
}
