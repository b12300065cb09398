package relay

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/stats"
)

// A flow that goes on to its next upstream waits for the answers to what it has
// sent there, neither to fewer datagrams nor to more.
func TestRepliesOfTheNextUpstream(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	first, second := packetSocket(t, "udp4"), packetSocket(t, "udp4")
	ups := []Addr{gramAddr(first.LocalAddr()), gramAddr(second.LocalAddr())}
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Datagram: DatagramConfig{Replies: 1}}, &ups[0], &ups[1])
	c := packetSocket(t, "udp4")
	tellGram(t, c, l.Addr(), "never answered")
	hearGram(t, first, "never answered")
	r.k.Fail(testkernel.SendRun, sys.ECONNREFUSED, 1) // what the first one met
	texts := numbered(3)
	sendRun(t, c, l.Addr().AddrPort, texts...)
	var back net.Addr
	for _, text := range texts {
		back = hearGram(t, second, text)
	}
	for i, text := range texts {
		if n := r.dgramStats().Flows; n != 1 {
			t.Fatalf("%d flows after %d answers to 3 datagrams", n, i)
		}
		tellGram(t, second, gramAddr(back), text)
		hearGram(t, c, text)
	}
	if rec := r.expect(CauseAnswered); rec.Attempts != 2 || rec.Down.Datagrams != 3 {
		t.Errorf("%+v", rec)
	}
	// The slot's next flow counts anew.
	c2 := packetSocket(t, "udp4")
	tellGram(t, c2, l.Addr(), "one more")
	back = hearGram(t, first, "one more")
	tellGram(t, first, gramAddr(back), "one more")
	hearGram(t, c2, "one more")
	r.expect(CauseAnswered)
}

// The datagrams of a run that was refused leave from the address that the
// client wrote to, as the run would have.
func TestRefusedRunKeepsItsSource(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	s := packetSocket(t, "udp4")
	up := gramAddr(s.LocalAddr())
	l := r.listenAt(Addr{Network: UDP, AddrPort: netip.MustParseAddrPort("0.0.0.0:0")}, ListenConfig{}, &up)
	c := packetSocket(t, "udp4")
	to := Addr{Network: UDP, AddrPort: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), l.Addr().AddrPort.Port())}
	tellGram(t, c, to, "hello")
	back := gramAddr(hearGram(t, s, "hello")).AddrPort
	r.k.Fail(testkernel.SendRun, sys.EIO, 1)
	texts := numbered(5)
	sendRun(t, s, back, texts...)
	for _, text := range texts {
		if from := gramAddr(hearGram(t, c, text)); from != to {
			t.Errorf("%s comes from %v, want %v", text, from, to)
		}
	}
	if n := r.dgramStats().Fallbacks; n != 1 {
		t.Errorf("%d fallbacks", n)
	}
}

// Replies from a link-local address name its interface: the kernel does not
// choose one for a client whose own address does not either (ipv6(7)).
func TestLinkLocalListener(t *testing.T) {
	if !testnet.Netns(t, "addr add fe80::1234/64 dev lo nodad", "addr add fd00::1/64 dev lo nodad") {
		return
	}
	r := newDatagramRig(t, Config{Loops: 1})
	l := r.listenAt(Addr{Network: UDP, AddrPort: netip.MustParseAddrPort("[::]:0")}, ListenConfig{}, gramEcho(t, "udp6"))
	c := packetSocketAt(t, "[fd00::1]:0")
	to := netip.AddrPortFrom(netip.MustParseAddr("fe80::1234%lo"), l.Addr().AddrPort.Port())
	if _, err := c.WriteTo([]byte("hello"), net.UDPAddrFromAddrPort(to)); err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(patience / 4))
	b := make([]byte, 100)
	n, from, err := c.ReadFrom(b)
	if err != nil || string(b[:n]) != "hello" || from.(*net.UDPAddr).AddrPort() != to {
		t.Errorf("%q from %v, %v; want it from %v; %+v", b[:n], from, err, to, r.dgramStats())
	}
}

// holdLoop has the rig's only loop, which has a flow, stand still until what it returns is called.
func (r *rig) holdLoop() func() {
	entered, leave := make(chan bool), make(chan bool)
	var once sync.Once
	go r.e.onLoops(func(*Flow) {
		once.Do(func() {
			entered <- true
			<-leave
		})
	})
	<-entered
	return func() { leave <- true }
}

// A flow that has a datagram at hand, or a reply that waits, is not evicted for
// another client of the same turn: both would be lost.
func TestEvictionSparesWhatIsAtHand(t *testing.T) {
	t.Run("request", func(t *testing.T) {
		r := newDatagramRig(t, Config{Loops: 1, MaxDatagramFlows: 1})
		l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, gramEcho(t, "udp4"))
		old, young := packetSocket(t, "udp4"), packetSocket(t, "udp4")
		askGram(t, old, l.Addr(), "first")
		release := r.holdLoop()
		tellGram(t, old, l.Addr(), "second")
		tellGram(t, young, l.Addr(), "no room")
		release()
		hearGram(t, old, "second")
		testwait.Until(t, "the other is dropped", func() bool { return r.dgramStats().Dropped.Get(stats.DropNoRoom) == 1 })
		if n := r.dgramStats().Begun; n != 1 {
			t.Errorf("%d flows began", n)
		}
	})
	t.Run("reply", func(t *testing.T) {
		r := newDatagramRig(t, Config{Loops: 1, MaxDatagramFlows: 1})
		s := packetSocket(t, "udp4")
		up := gramAddr(s.LocalAddr())
		l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, &up)
		old, young := packetSocket(t, "udp4"), packetSocket(t, "udp4")
		tellGram(t, old, l.Addr(), "first")
		back := gramAddr(hearGram(t, s, "first"))
		release := r.holdLoop()
		r.k.Fail(testkernel.SendBatch, sys.EAGAIN, 1)
		tellGram(t, s, back, "waits")
		tellGram(t, young, l.Addr(), "no room, or a flow of its own")
		release()
		hearGram(t, old, "waits")
	})
}

// A flow whose answer came while the process stood still has not waited in vain.
func TestEvictionAfterAGap(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1, MaxDatagramFlows: 2})
	s := packetSocket(t, "udp4")
	up := gramAddr(s.LocalAddr())
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, &up)
	quick, slow := packetSocket(t, "udp4"), packetSocket(t, "udp4")
	tellGram(t, quick, l.Addr(), "quick")
	tellGram(t, s, gramAddr(hearGram(t, s, "quick")), "answer")
	hearGram(t, quick, "answer")
	tellGram(t, slow, l.Addr(), "slow")
	back := gramAddr(hearGram(t, s, "slow"))
	release := r.holdLoop()
	tellGram(t, packetSocket(t, "udp4"), l.Addr(), "another client") // whose event comes first
	tellGram(t, s, back, "answer")
	r.k.Pass(2 * leastPatience)
	release()
	hearGram(t, slow, "answer")
}

// A plan has no more pieces of memory than a call may have.
func TestManyPieces(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	s := packetSocket(t, "udp4")
	up := gramAddr(s.LocalAddr())
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, &up)
	c := packetSocket(t, "udp4")
	tellGram(t, c, l.Addr(), "first")
	hearGram(t, s, "first")
	const n = outboxPieces + 100
	for _, c := range []testkernel.Call{testkernel.Send, testkernel.SendBatch, testkernel.SendRun} {
		r.k.Fail(c, sys.EAGAIN, -1) // so that all are held, and leave together
	}
	text := func(i int) string {
		if i < 10 { // so that the last run is cut short by the bound, and not by its own
			return fmt.Sprintf("%05d", i)
		}
		return fmt.Sprintf("%04d", i)
	}
	for i := range n {
		tellGram(t, c, l.Addr(), text(i))
	}
	testwait.Until(t, "all are read", func() bool { return r.dgramStats().Received == n+1 })
	r.k.Heal()
	for i := range n {
		hearGram(t, s, text(i))
	}
}

// A flow that needs a descriptor for its next upstream does not evict itself.
func TestNoDescriptorForTheNextUpstream(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	echo := gramEcho(t, "udp4")
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, echo, echo)
	c := packetSocket(t, "udp4")
	askGram(t, c, l.Addr(), "first")
	r.k.Fail(testkernel.Datagram, sys.EMFILE, 2) // its own old socket gives way to the first
	r.k.Fail(testkernel.Send, sys.ECONNREFUSED, 1)
	tellGram(t, c, l.Addr(), "second")
	r.expect(CauseUpstreamRefused)
	askGram(t, c, l.Addr(), "third")
}

// A flow that has had all its replies goes on if its client asks again before the turn
// ends.
func TestAskedAgainInTheSameTurn(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	s, c := packetSocket(t, "udp4"), packetSocket(t, "udp4")
	up := gramAddr(s.LocalAddr())
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Datagram: DatagramConfig{Replies: 1}}, &up)
	tellGram(t, c, l.Addr(), "one")
	from := gramAddr(hearGram(t, s, "one"))
	release := holdLoop(r)
	tellGram(t, s, from, "first answer") // whose event comes first
	tellGram(t, c, l.Addr(), "two")
	release()
	hearGram(t, c, "first answer")
	if again := gramAddr(hearGram(t, s, "two")); again != from {
		t.Fatalf("another flow asks: %v, then %v", from, again)
	}
	tellGram(t, s, from, "second answer")
	hearGram(t, c, "second answer")
	if rec := r.expect(CauseAnswered); rec.Up.Datagrams != 2 || rec.Down.Datagrams != 2 {
		t.Errorf("%+v", rec)
	}
}

// A flow that ends while its port's socket is full drops the replies that wait there:
// they are in its record, and nobody else's.
func TestEndWhilePortIsFull(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	s, c := packetSocket(t, "udp4"), packetSocket(t, "udp4")
	up := gramAddr(s.LocalAddr())
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, &up)
	tellGram(t, c, l.Addr(), "one")
	from := gramAddr(hearGram(t, s, "one"))
	r.k.Fail(testkernel.SendBatch, sys.EAGAIN, -1)
	tellGram(t, s, from, "answer")
	testwait.Until(t, "the answer waits", func() (waits bool) {
		r.e.onLoops(func(f *Flow) { waits = f.owner.(*datagrams).of(f).pending == 1 })
		return waits
	})
	killOne(t, r, CauseKilled)
	if rec := r.expect(CauseKilled); rec.Down.Read != 6 || rec.Down.DatagramsDropped != 1 || rec.Down.Datagrams != 0 {
		t.Errorf("%+v", rec)
	}
	r.k.Heal()
	tellGram(t, c, l.Addr(), "two")
	from = gramAddr(hearGram(t, s, "two"))
	tellGram(t, s, from, "second answer")
	hearGram(t, c, "second answer")
}

// A reply to a Unix client that has ended is unreachable, whether or not its path is still there.
func TestUnixClientGone(t *testing.T) {
	for _, unlinked := range []bool{false, true} {
		t.Run(fmt.Sprintf("unlinked=%v", unlinked), func(t *testing.T) {
			r := newDatagramRig(t, Config{})
			up := packetSocket(t, "udp4")
			to := gramAddr(up.LocalAddr())
			l := r.listenAt(gramPlace(t, "unixgram"), ListenConfig{}, &to)
			c := packetSocket(t, "unixgram")
			tellGram(t, c, l.Addr(), "question")
			port := hearGram(t, up, "question")
			path := c.LocalAddr().String()
			c.Close()
			if _, err := os.Stat(path); err != nil {
				t.Fatal(err)
			}
			if unlinked {
				os.Remove(path)
			}
			if _, err := up.WriteTo([]byte("answer"), port); err != nil {
				t.Fatal(err)
			}
			testwait.Until(t, "the answer is dropped", func() bool { return r.dgramStats().Dropped.Total() != 0 })
			if n := r.dgramStats().Dropped; n.Get(stats.DropUnreachable) != 1 {
				t.Errorf("dropped %v", n)
			}
		})
	}
}
