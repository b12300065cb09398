package main

import (
	encoding "encoding/binary"
	"net"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// datagramCosts is costs with an upstream, and a flow that is there already.
type datagramCosts struct {
	*costs
	upstream *net.UDPConn
	client   *net.UDPConn
	from     net.Addr // the flow's address towards the upstream
}

func newDatagramCosts(t *testing.T, flags ...string) *datagramCosts {
	t.Helper()
	upstream, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { upstream.Close() })
	k := &datagramCosts{costs: traceRelay(t, "udp", upstream.LocalAddr(), flags...), upstream: upstream}
	k.client = k.dial()
	k.pass(k.client, upstream, true, 1, 1)
	return k
}

func (k *datagramCosts) dial() *net.UDPConn {
	k.t.Helper()
	c, err := net.Dial("udp4", "127.0.0.1:"+k.port)
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { c.Close() })
	return c.(*net.UDPConn)
}

// send sends n datagrams of a size; to is nil if the socket is connected.
func (k *datagramCosts) send(c *net.UDPConn, to net.Addr, size, n int) {
	k.t.Helper()
	for range n {
		k.sendMsg(c, to, make([]byte, size), nil)
	}
}

// sendRun sends n datagrams of a size as one GSO message.
func (k *datagramCosts) sendRun(c *net.UDPConn, to net.Addr, size, n int) {
	k.t.Helper()
	const solUDP, segment = 17, 103 // SOL_UDP, UDP_SEGMENT: udp(7)
	oob := make([]byte, 24)         // a cmsghdr of 64 bits, cmsg(3)
	encoding.NativeEndian.PutUint64(oob, 16+2)
	encoding.NativeEndian.PutUint32(oob[8:], solUDP)
	encoding.NativeEndian.PutUint32(oob[12:], segment)
	encoding.NativeEndian.PutUint16(oob[16:], uint16(size))
	k.sendMsg(c, to, make([]byte, n*size), oob)
}

func (k *datagramCosts) sendMsg(c *net.UDPConn, to net.Addr, b, oob []byte) {
	k.t.Helper()
	at, _ := to.(*net.UDPAddr)
	if _, _, err := inTime(c).WriteMsgUDP(b, oob, at); err != nil {
		k.t.Fatal(err)
	}
}

// receive receives n datagrams of a size.
func (k *datagramCosts) receive(c *net.UDPConn, size, n int) {
	k.t.Helper()
	b := make([]byte, 1<<16)
	for i := range n {
		got, from, err := inTime(c).ReadFrom(b)
		if err != nil || got != size {
			k.t.Fatalf("datagram %d of %d has %d bytes, want %d: %v", i+1, n, got, size, err)
		}
		if c == k.upstream {
			k.from = from
		}
	}
}

// memory is what waits in a socket of the relay: the memory of it, as long as it is less than want.
func (k *datagramCosts) memory(local, remote string, want int) (got int) {
	k.t.Helper()
	testwait.Until(k.t, "datagrams have arrived", func() bool {
		s, _ := k.socket("udp", local, remote)
		got = s.queued
		return got >= want
	})
	return got
}

// pass sends datagrams through the relay, and receives them. With oneByOne they arrive there one by one, and otherwise as one.
func (k *datagramCosts) pass(from, to *net.UDPConn, oneByOne bool, size, n int) {
	k.t.Helper()
	local, remote, at := k.port, "0", net.Addr(nil)
	if from == k.upstream {
		local, remote, at = portOf(k.from), portOf(k.upstream.LocalAddr()), k.from
	}
	if oneByOne {
		k.send(from, at, size, 1)
		each := k.memory(local, remote, 1)
		k.send(from, at, size, n-1)
		k.memory(local, remote, n*each)
	} else {
		k.sendRun(from, at, size, n)
		k.memory(local, remote, 1)
	}
	k.turn()
	k.receive(to, size, n)
}

func TestCostsOfDatagrams(t *testing.T) {
	testnet.OneGoroutine(t)
	for _, c := range []struct {
		name     string
		oneByOne bool
		size, n  int
	}{
		{"UDP round trip, 200 B", true, 200, 1},
		{"UDP round trip, 32 x 1200 B", true, 1200, 32},
		{"UDP round trip, GSO 32 x 1200 B", false, 1200, 32},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newDatagramCosts(t)
			calls := k.count(4, func() {
				k.pass(k.upstream, k.client, c.oneByOne, c.size, c.n)
				k.pass(k.client, k.upstream, c.oneByOne, c.size, c.n)
			})
			checkCosts(t, c.name, &calls)
		})
	}
	const oneReply = "UDP flow of one reply, 200 B"
	t.Run(oneReply, func(t *testing.T) {
		k := newDatagramCosts(t, "--replies=1")
		k.pass(k.upstream, k.client, true, 200, 1) // the end of the first one
		calls := k.count(4, func() {
			c := k.dial()
			k.pass(c, k.upstream, true, 200, 1)
			k.pass(k.upstream, c, true, 200, 1)
			c.Close()
		})
		checkCosts(t, oneReply, &calls)
	})
}
