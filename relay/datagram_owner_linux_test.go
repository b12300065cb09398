package relay

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// owned is a load of many clients whose every byte names its owner. All of a
// round is sent while the loop stands still, so that one turn meets it.
type owned struct {
	t        *testing.T
	r        *rig
	listen   string // the clients' network
	upstream string // the upstream's; "": echo, which is inside
	flows    int
	size     int
	clientIP string                   // "": where the network's clients usually are
	faults   func(*testkernel.Kernel) // of each round
}

// blockLoop makes a listener whose hook holds the rig's only loop: the function
// returned does, until what it returns is called.
func (r *rig) blockLoop() func() func() {
	entered, leave := make(chan bool), make(chan bool)
	l := r.listenAt(gramPlace(r.t, "udp4"), ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr {
		entered <- true
		<-leave
		return nil
	}}})
	return func() func() {
		tellGram(r.t, packetSocket(r.t, "udp4"), l.Addr(), "stand still")
		<-entered
		return func() { leave <- true }
	}
}

// tell sends a round of one owner's datagrams, as GSO runs where there are such.
func (o *owned) tell(c net.PacketConn, to Addr, owner byte, burst, run int) {
	texts := make([]string, burst)
	for i := range texts {
		texts[i] = string(bytes.Repeat([]byte{owner}, o.size))
	}
	if to.Network == UDP && burst > 1 {
		for some := range slices.Chunk(texts, run) {
			sendRun(o.t, c, to.AddrPort, some...)
		}
		return
	}
	for _, text := range texts {
		if _, err := c.WriteTo([]byte(text), gramNet(to)); err != nil {
			o.t.Error(err)
		}
	}
}

// hear reads what comes to one owner, until the socket is closed.
func (o *owned) hear(c net.PacketConn, owner byte, got, foreign *atomic.Int64) {
	b := make([]byte, 1<<16)
	for {
		n, _, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		if bytes.Count(b[:n], []byte{owner}) != n || n != o.size {
			foreign.Add(1)
		}
		got.Add(1)
	}
}

func (o *owned) run(rounds int) {
	t, r := o.t, o.r
	block := r.blockLoop()
	up := &Addr{Network: Echo}
	var s net.PacketConn
	if o.upstream != "" {
		s = packetSocket(t, o.upstream)
		at := gramAddr(s.LocalAddr())
		up = &at
	}
	l := r.listenAt(gramPlace(t, o.listen), ListenConfig{}, up)
	clients := make([]net.PacketConn, o.flows)
	ports := make(map[byte]Addr) // the upstream's view of each owner
	var got, foreign atomic.Int64
	for i := range clients {
		if o.clientIP == "" {
			clients[i] = packetSocket(t, o.listen)
		} else {
			clients[i] = packetSocketAt(t, o.clientIP)
		}
		owner := byte(1 + i)
		o.tell(clients[i], l.Addr(), owner, 1, 1)
		if s != nil {
			b := make([]byte, 1<<16)
			s.SetReadDeadline(time.Now().Add(patience))
			n, from, err := s.ReadFrom(b)
			if err != nil || n != o.size || b[0] != owner {
				t.Fatalf("the first datagram of %d: %v, %v", owner, b[:min(n, 10)], err)
			}
			ports[owner] = gramAddr(from)
		}
		go o.hear(clients[i], owner, &got, &foreign)
	}
	var atUpstream, astray atomic.Int64
	if s != nil {
		s.SetReadDeadline(time.Time{})
		go o.serve(s, ports, &atUpstream, &astray)
	}
	asked, answered := 20, 40
	if o.upstream == "unixgram" { // net.unix.max_dgram_qlen is 10
		asked, answered = min(asked, 8), min(answered, 8)
	}
	for range rounds {
		o.round(block(), o.listen, func(tell *sync.WaitGroup) {
			for i, c := range clients {
				tell.Go(func() { o.tell(c, l.Addr(), byte(1+i), asked, 4) })
			}
		})
		if s == nil {
			continue
		}
		o.round(block(), o.upstream, func(tell *sync.WaitGroup) {
			tell.Go(func() {
				for owner, to := range ports {
					o.tell(s, to, owner, answered, answered)
				}
			})
		})
	}
	testwait.Until(t, "every datagram that was sent has come", func() bool {
		up, down := int64(0), int64(0)
		r.e.Flows(func(fs []FlowInfo) bool {
			for i := range fs {
				up += fs[i].Up.Datagrams
				down += fs[i].Down.Datagrams
			}
			return true
		})
		return got.Load() == down && (s == nil || atUpstream.Load()+int64(o.flows) == up)
	})
	if n := foreign.Load(); n != 0 || got.Load() == 0 {
		t.Errorf("%d of %d datagrams came to another client, or damaged", n, got.Load())
	}
	if n := astray.Load(); n != 0 {
		t.Errorf("%d of %d datagrams came to the upstream by another client's socket, or damaged", n, atUpstream.Load())
	}
}

// round sends while the loop stands still, and lets it go, with the faults of
// the test, until it is quiet again. A Unix socket blocks who sends more than it holds.
func (o *owned) round(release func(), network string, send func(tell *sync.WaitGroup)) {
	o.t.Helper()
	var tell sync.WaitGroup
	send(&tell)
	if network != "unixgram" {
		tell.Wait()
	}
	if o.faults != nil {
		o.faults(o.r.k)
	}
	release()
	tell.Wait()
	last := int64(-1)
	testwait.Until(o.t, "the round is over", func() bool {
		s := o.r.dgramStats()
		quiet := s.Received == last && s.BytesHeld == 0
		last = s.Received
		return quiet
	})
	o.r.k.Heal()
}

// serve reads what comes to the upstream, each owner's by its own socket.
func (o *owned) serve(s net.PacketConn, ports map[byte]Addr, got, astray *atomic.Int64) {
	b := make([]byte, 1<<16)
	for {
		n, from, err := s.ReadFrom(b)
		if err != nil {
			return
		}
		if n != o.size || bytes.Count(b[:n], b[:1]) != n || ports[b[0]] != gramAddr(from) {
			astray.Add(1)
		}
		got.Add(1)
	}
}

func packetSocketAt(t *testing.T, ip string) net.PacketConn {
	c, err := net.ListenPacket("udp", ip)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.(*net.UDPConn).SetReadBuffer(4 << 20)
	return c
}

var ownerFaults = map[string]func(*testkernel.Kernel){
	"none": nil,
	// The route refuses runs: its MTU is below their datagrams, for example.
	"refused": func(k *testkernel.Kernel) { k.Fail(testkernel.SendRun, sys.EMSGSIZE, -1) },
	// A socket is full in the middle of a round, several times.
	"full": func(k *testkernel.Kernel) {
		for i := range 5 {
			k.FailAfter(3+5*i, testkernel.SendBatch, sys.EAGAIN, 1)
			k.FailAfter(1+3*i, testkernel.SendRun, sys.EAGAIN, 1)
			k.FailAfter(1+3*i, testkernel.Send, sys.EAGAIN, 1)
		}
	},
}

// A reply reaches the client that asked, and a request leaves by its own
// client's socket, whatever overflows meanwhile.
func TestEveryByteToItsOwner(t *testing.T) {
	testnet.AlsoWithoutRace(t)
	for level, cfg := range levels {
		for _, listen := range []string{"udp4", "unixgram"} {
			for _, upstream := range []string{"udp4", "unixgram", ""} {
				for fault, arm := range ownerFaults {
					t.Run(fmt.Sprintf("level=%s/client=%s/upstream=%s/fault=%s", level, listen, upstream, fault), func(t *testing.T) {
						cfg.Loops = 1
						o := owned{t: t, r: newDatagramRig(t, cfg), listen: listen, upstream: upstream, flows: 16, size: 200, faults: arm}
						o.run(2)
					})
				}
			}
		}
	}
}

// The same where the way to the clients has a smaller MTU than the upstream's datagrams.
func TestEveryByteToItsOwnerBeyondMTU(t *testing.T) {
	if !testnet.Netns(t, "route add local 10.1.0.1/32 dev lo mtu 1280") {
		return
	}
	o := owned{t: t, r: newDatagramRig(t, Config{Loops: 1}), listen: "udp4", upstream: "udp4", flows: 12, size: 1400, clientIP: "10.1.0.1:0"}
	o.run(3)
	if s := o.r.dgramStats(); s.Fallbacks == 0 {
		t.Errorf("no run was refused: %+v", s)
	}
}
