package relay

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/overload"
	"github.com/penstock/penstock/relay/stats"
)

func TestDatagramIdle(t *testing.T) {
	const idle = 2 * time.Second
	r := newDatagramRig(t, Config{})
	r.k.StopClock()
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Timeouts: Timeouts{Idle: idle}}, gramEcho(t, "udp4"))
	c := packetSocket(t, "udp4")
	askGram(t, c, l.Addr(), "here")
	for range 3 { // for longer than the timeout in all
		r.pass(idle - 2*tick)
		askGram(t, c, l.Addr(), "still here")
	}
	r.pass(idle + 2*tick)
	if rec := r.expect(CauseIdle); rec.Up.Datagrams != 4 || rec.Connect == 0 {
		t.Errorf("%+v", rec)
	}
	askGram(t, c, l.Addr(), "again")
}

// A flow ends when each datagram has had its replies, also where several are on their way.
func TestReplies(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	s := packetSocket(t, "udp4")
	up := gramAddr(s.LocalAddr())
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Datagram: DatagramConfig{Replies: 2}}, &up)
	c := packetSocket(t, "udp4")
	tellGram(t, c, l.Addr(), "one")
	back := hearGram(t, s, "one")
	tellGram(t, c, l.Addr(), "two")
	hearGram(t, s, "two")
	for _, text := range []string{"a", "b", "c"} {
		tellGram(t, s, gramAddr(back), text)
		hearGram(t, c, text)
	}
	if n := r.dgramStats().Flows; n != 1 {
		t.Errorf("%d flows before the last reply", n)
	}
	tellGram(t, s, gramAddr(back), "d")
	hearGram(t, c, "d")
	if rec := r.expect(CauseAnswered); rec.Down.Datagrams != 4 {
		t.Errorf("%+v", rec)
	}
}

// At the bound the flow that is worth least gives way: first those that have
// waited in vain for an answer, then the one silent for longest.
func TestEviction(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1, MaxDatagramFlows: 3})
	mute := gramAddr(packetSocket(t, "udp4").LocalAddr())
	var up atomic.Pointer[Addr]
	up.Store(gramEcho(t, "udp4"))
	echo := up.Load()
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return up.Load() }}})
	var cs []net.PacketConn
	for range 4 {
		cs = append(cs, packetSocket(t, "udp4"))
	}
	start := time.Now()
	askGram(t, cs[0], l.Addr(), "0")
	askGram(t, cs[1], l.Addr(), "1")
	up.Store(&mute)
	tellGram(t, cs[2], l.Addr(), "2")
	testwait.Until(t, "three flows", func() bool { return r.dgramStats().Flows == 3 })
	up.Store(echo)
	r.pass(max(leastPatience, 2*time.Since(start)) + 2*tick)
	askGram(t, cs[3], l.Addr(), "3")
	if rec := r.expect(CauseEvicted); rec.Client.AddrPort != gramAddr(cs[2].LocalAddr()).AddrPort {
		t.Errorf("%v went first, and not the one without an answer", rec.Client)
	}
	askGram(t, cs[0], l.Addr(), "0 again")
	askGram(t, cs[2], l.Addr(), "2")
	if rec := r.expect(CauseEvicted); rec.Client.AddrPort != gramAddr(cs[1].LocalAddr()).AddrPort {
		t.Errorf("%v went second, want the one silent for longest, %v", rec.Client, cs[1].LocalAddr())
	}
}

// A full descriptor table costs a flow that is not in use, and not the new one.
func TestNoDescriptorForADatagram(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	r.e.datagrams.inUse = 0 // before the loop has a datagram port
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, gramEcho(t, "udp4"))
	a, b := packetSocket(t, "udp4"), packetSocket(t, "udp4")
	r.k.Fail(testkernel.Datagram, sys.EMFILE, 1)
	tellGram(t, a, l.Addr(), "nobody gives way")
	r.expect(CauseNoDescriptors)
	askGram(t, a, l.Addr(), "a")
	askGram(t, a, l.Addr(), "a goes on")
	r.k.Fail(testkernel.Datagram, sys.EMFILE, 1)
	askGram(t, b, l.Addr(), "b")
	r.expect(CauseEvicted)
}

// A flood from new addresses gets its share and no more, and what is there goes on.
func TestFloodOfNewFlows(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1, MaxNewDatagramFlows: 16})
	r.k.StopClock()
	r.pass(tick)
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, gramEcho(t, "udp4"))
	old := packetSocket(t, "udp4")
	askGram(t, old, l.Addr(), "first")
	for i := range 100 {
		tellGram(t, packetSocket(t, "udp4"), l.Addr(), "flood")
		if i%10 == 0 {
			askGram(t, old, l.Addr(), "old")
		}
	}
	askGram(t, old, l.Addr(), "last")
	if s := r.dgramStats(); s.Dropped.Get(stats.DropLimited) < 50 || s.Begun+s.Dropped.Get(stats.DropLimited) != 101 {
		t.Errorf("%+v", s)
	}
}

// An upstream that is gone ends the flow, moves it, or is ignored, by policy;
// one that is back is used again.
func TestUnreachable(t *testing.T) {
	for _, policy := range []UnreachableAction{UnreachableNext, UnreachableEnd, UnreachableIgnore} {
		t.Run(fmt.Sprint(policy), func(t *testing.T) {
			r := newDatagramRig(t, Config{Loops: 1})
			first := gramPlace(t, "udp4")
			second := gramEcho(t, "udp4")
			if policy == UnreachableEnd {
				second = nil
			}
			var failed []string
			l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{
				Datagram: DatagramConfig{OnUnreachable: policy},
				Hooks: Hooks{
					Upstream:  func(_ *Flow, n int) *Addr { return []*Addr{&first, second, nil}[min(n, 2)] },
					Connected: func(_ *Flow, to *Addr, _ time.Duration, err error) { failed = append(failed, fmt.Sprint(*to, err)) },
				},
			})
			c := packetSocket(t, "udp4")
			switch policy {
			case UnreachableNext:
				tellGram(t, c, l.Addr(), "lost")
				testwait.Until(t, "an ICMP error", func() bool { return r.dgramStats().ICMPErrors == 1 })
				askGram(t, c, l.Addr(), "by the second")
				r.e.Close()
				if rec := r.expect(CauseClosed); rec.Attempts != 2 || rec.Upstream != *second {
					t.Errorf("%+v", rec)
				}
			case UnreachableEnd:
				tellGram(t, c, l.Addr(), "lost")
				if rec := r.expect(CauseUpstreamRefused); rec.Err != sys.ECONNREFUSED {
					t.Errorf("%+v", rec)
				}
			case UnreachableIgnore:
				tellGram(t, c, l.Addr(), "lost")
				testwait.Until(t, "an ICMP error", func() bool { return r.dgramStats().ICMPErrors == 1 })
			}
			if policy == UnreachableNext {
				return
			}
			echoOn(t, packetSocketAt(t, first.AddrPort.String()))
			askGram(t, c, l.Addr(), "it is back")
			r.e.Close()
			r.expect(CauseClosed)
			if want := fmt.Sprint(first, sys.ECONNREFUSED); len(failed) == 0 || failed[0] != want {
				t.Errorf("the hook learnt %v, want %s", failed, want)
			}
		})
	}
}

// A listener that is closed and opened again goes on serving the same client: on UDP with the flow that it had.
func TestDatagramListenerRestarts(t *testing.T) {
	for _, network := range grams {
		t.Run(network, func(t *testing.T) {
			r := newDatagramRig(t, Config{})
			up := gramEcho(t, network)
			l := r.listenAt(gramPlace(t, network), ListenConfig{}, up)
			c := packetSocket(t, network)
			for range 3 {
				askGram(t, c, l.Addr(), "hello")
				at := l.Addr()
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				if network == "unixgram" {
					r.expect(CauseClosed)
				}
				l = r.listenAt(at, ListenConfig{}, up)
			}
			askGram(t, c, l.Addr(), "hello")
			if n := r.dgramStats().Begun; n != 1 && network != "unixgram" {
				t.Errorf("%d flows", n)
			}
		})
	}
}

// A draining engine waits for its flows and takes no new ones.
func TestDatagramDrain(t *testing.T) {
	r := newDatagramRig(t, Config{})
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Timeouts: Timeouts{Idle: time.Second}}, gramEcho(t, "udp4"))
	c := packetSocket(t, "udp4")
	askGram(t, c, l.Addr(), "before")
	drained := make(chan error, 1)
	go func() { drained <- r.e.Drain(context.Background()) }()
	r.portsAre(portClosed)
	wantNobody(t, "127.0.0.1:0", l.Addr())
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
	for _, rec := range r.all {
		if rec.Cause != CauseIdle {
			t.Errorf("%v", rec.Cause)
		}
	}
}

func TestDatagramDrainDeadline(t *testing.T) {
	r := newDatagramRig(t, Config{})
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, gramEcho(t, "udp4"))
	askGram(t, packetSocket(t, "udp4"), l.Addr(), "before")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := r.e.Drain(ctx); err != context.DeadlineExceeded {
		t.Errorf("%v", err)
	}
	r.expect(CauseDrained)
}

// When the flows of an upstream are killed, their clients' next datagrams go
// elsewhere.
func TestKillByUpstream(t *testing.T) {
	r := newDatagramRig(t, Config{})
	old, young := gramEcho(t, "udp4"), gramEcho(t, "udp4")
	now := make(chan *Addr, 1)
	now <- old
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr {
		a := <-now
		now <- a
		return a
	}}})
	c := packetSocket(t, "udp4")
	askGram(t, c, l.Addr(), "by the old")
	<-now
	now <- young
	killAll := func() {
		r.e.Flows(func(flows []FlowInfo) bool {
			for _, f := range flows {
				if f.Upstream == *old {
					r.e.Kill(f.ID, CauseRemoved)
				}
			}
			return true
		})
	}
	killAll()
	if rec := r.expect(CauseRemoved); rec.Upstream != *old {
		t.Errorf("%+v", rec)
	}
	askGram(t, c, l.Addr(), "by the young")
	killAll()
	if n := r.dgramStats().Flows; n != 1 {
		t.Errorf("%d flows, want the young one's", n)
	}
}

func TestDatagramHooks(t *testing.T) {
	r := newDatagramRig(t, Config{})
	up := gramEcho(t, "udp4")
	refuse := true
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Value: 7, Hooks: Hooks{
		Admit: func(f *Flow) Cause {
			f.SetValue(f.Client())
			if refuse = !refuse; !refuse {
				return CauseRefused
			}
			return CauseNone
		},
		Upstream: func(f *Flow, n int) *Addr {
			if f.Value() != f.Client() || f.Listener().Value() != 7 || f.ID() == 0 {
				return nil
			}
			return up
		},
	}})
	c := packetSocket(t, "udp4")
	tellGram(t, c, l.Addr(), "refused")
	if rec := r.expect(CauseRefused); rec.Client.AddrPort != gramAddr(c.LocalAddr()).AddrPort || rec.Value != rec.Client {
		t.Errorf("%+v", rec)
	}
	askGram(t, c, l.Addr(), "admitted")
	if s := r.dgramStats(); s.Dropped.Get(stats.DropRefused) != 1 {
		t.Errorf("%+v", s)
	}
}

// What has no upstream, or the wrong kind of one, ends with a record and a count.
func TestNoUpstreamForADatagram(t *testing.T) {
	r := newDatagramRig(t, Config{})
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, &Addr{Network: TCP, AddrPort: loopback})
	tellGram(t, packetSocket(t, "udp4"), l.Addr(), "x")
	if rec := r.expect(CauseNoUpstream); rec.Err != errNoDatagrams || rec.Attempts != 1 {
		t.Errorf("%+v", rec)
	}
}

// One upstream that takes nothing does not delay another flow. What the flow
// may hold arrives in order when there is room again; the rest is counted.
func TestFullUpstreamDelaysNobodyElse(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	s := packetSocket(t, "unixgram") // whose queue has net.unix.max_dgram_qlen places
	slow, quick := gramAddr(s.LocalAddr()), gramEcho(t, "udp4")
	a := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, &slow)
	b := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, quick)
	c, other := packetSocket(t, "udp4"), packetSocket(t, "udp4")
	texts := numbered(300)
	for i, text := range texts {
		tellGram(t, c, a.Addr(), text)
		if i%20 == 0 {
			askGram(t, other, b.Addr(), text)
		}
	}
	testwait.Until(t, "all is read", func() bool { return r.dgramStats().BytesHeld > 0 })
	for _, text := range texts {
		hearGram(t, s, text)
	}
	testwait.Until(t, "nothing is held", func() bool { return r.dgramStats().BytesHeld == 0 })
	if n := r.dgramStats().Dropped; n.Total() != 0 {
		t.Errorf("dropped %v", n)
	}
}

// Beyond what a flow may hold its datagrams are dropped and counted, and what
// it still holds when it ends as well.
func TestHoldIsBounded(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	s := packetSocket(t, "unixgram")
	up := gramAddr(s.LocalAddr())
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, &up)
	c := packetSocket(t, "udp4")
	big := make([]byte, 10_000)
	for range 50 {
		tellGram(t, c, l.Addr(), string(big))
	}
	testwait.Until(t, "the hold is full", func() bool { return r.dgramStats().Dropped.Get(stats.DropFull) > 0 && r.dgramStats().Received == 50 })
	if ab := list(r.e)[0].Up; ab.Held == 0 || ab.BytesDropped() != 10_000*r.dgramStats().Dropped.Get(stats.DropFull) {
		t.Errorf("%d bytes wait and %d are dropped: %+v", ab.Held, ab.BytesDropped(), r.dgramStats().Dropped)
	}
	r.e.Close()
	rec := r.expect(CauseClosed)
	st := r.dgramStats()
	if st.Dropped.Get(stats.DropEnded) == 0 || st.Dropped.Get(stats.DropEnded) > holdMost/10_000 || rec.Up.DatagramsDropped != st.Dropped.Get(stats.DropFull)+st.Dropped.Get(stats.DropEnded) {
		t.Errorf("%+v, %+v", st, rec)
	}
}

// While memory is short, a flow whose upstream's socket is full holds nothing.
func TestOverloadHoldsNoDatagrams(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	r.e.Overload().Set(overload.State{HoldLess: true})
	up := gramAddr(packetSocket(t, "unixgram").LocalAddr())
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, &up)
	c := packetSocket(t, "udp4")
	text := string(make([]byte, 10_000))
	for range 50 {
		tellGram(t, c, l.Addr(), text)
	}
	testwait.Until(t, "the rest is dropped", func() bool {
		d := r.dgramStats()
		return d.Dropped.Get(stats.DropFull) > 0 && d.Sent+d.Dropped.Get(stats.DropFull) == 50
	})
	if n := r.dgramStats().BytesHeld; n != 0 {
		t.Errorf("%d bytes are held", n)
	}
}

// A listener's socket that is full stops the reading of replies, and loses none.
func TestFullListener(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, gramEcho(t, "udp4"))
	c := packetSocket(t, "udp4")
	askGram(t, c, l.Addr(), "first")
	for range 20 {
		r.k.Fail(testkernel.SendBatch, sys.EAGAIN, 3)
		texts := numbered(10)
		for _, text := range texts {
			tellGram(t, c, l.Addr(), text)
		}
		for _, text := range texts {
			hearGram(t, c, text)
		}
	}
}

// Each error of a send has its own count, and costs that datagram only.
func TestSendErrors(t *testing.T) {
	for errno, why := range map[sys.Errno]stats.Drop{sys.EPERM: stats.DropFiltered, sys.ENOBUFS: stats.DropNoBuffers, sys.EMSGSIZE: stats.DropTooBig, sys.EHOSTUNREACH: stats.DropUnreachable,
		sys.EOPNOTSUPP: stats.DropUnreachable, sys.EADDRNOTAVAIL: stats.DropFailed} {
		t.Run(why.String()+errno.Error(), func(t *testing.T) {
			r := newDatagramRig(t, Config{Loops: 1})
			l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Datagram: DatagramConfig{OnUnreachable: UnreachableIgnore}}, gramEcho(t, "udp4"))
			c := packetSocket(t, "udp4")
			askGram(t, c, l.Addr(), "first")
			r.k.Fail(testkernel.SendBatch, errno, 1) // a reply
			tellGram(t, c, l.Addr(), "its reply is lost")
			testwait.Until(t, "it is counted", func() bool { return r.dgramStats().Dropped.Get(why) == 1 })
			askGram(t, c, l.Addr(), "between")
			if !slices.Contains([]stats.Drop{stats.DropUnreachable}, why) {
				times := 1
				if errno == sys.EMSGSIZE {
					times = 2 // the first may be an earlier datagram's
				}
				r.k.Fail(testkernel.Send, errno, times)
				tellGram(t, c, l.Addr(), "lost itself")
				testwait.Until(t, "it is counted", func() bool { return r.dgramStats().Dropped.Get(why) == 2 })
			}
			askGram(t, c, l.Addr(), "last")
		})
	}
}

// A Unix socket that this process may not send to is not taken for a packet filter.
func TestSendNotPermitted(t *testing.T) {
	for _, errno := range []sys.Errno{sys.EPERM, sys.EACCES} {
		t.Run(errno.Error(), func(t *testing.T) {
			r := newDatagramRig(t, Config{Loops: 1})
			l := r.listenAt(gramPlace(t, "unixgram"), ListenConfig{}, gramEcho(t, "unixgram"))
			c := packetSocket(t, "unixgram")
			askGram(t, c, l.Addr(), "first")
			r.k.Fail(testkernel.SendBatch, errno, 1) // a reply
			tellGram(t, c, l.Addr(), "its reply is lost")
			testwait.Until(t, "it is counted", func() bool { return r.dgramStats().Dropped.Get(stats.DropNotPermitted) == 1 })
			if errno == sys.EPERM { // a path's permissions are asked for when the upstream is connected
				r.k.Fail(testkernel.Send, errno, 1)
				tellGram(t, c, l.Addr(), "lost itself")
				testwait.Until(t, "it is counted", func() bool { return r.dgramStats().Dropped.Get(stats.DropNotPermitted) == 2 })
			}
			askGram(t, c, l.Addr(), "last")
		})
	}
}

// Replies that nobody can be sent are counted: an unnamed Unix client has no address.
func TestUnnamedClient(t *testing.T) {
	r := newDatagramRig(t, Config{})
	l := r.listenAt(gramPlace(t, "unixgram"), ListenConfig{}, gramEcho(t, "udp4"))
	c, err := net.Dial("unixgram", l.Addr().Path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Write([]byte("hello"))
	testwait.Until(t, "the reply is dropped", func() bool { return r.dgramStats().Dropped.Get(stats.DropNoReturn) == 1 })
}

// Kernel drops are in Stats: the loop stands still while more comes than the socket holds.
func TestKernelDrops(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	entered, leave := make(chan bool, 1), make(chan bool)
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Socket: SocketOptions{RecvBuffer: 4096}, Hooks: Hooks{Upstream: func(*Flow, int) *Addr {
		entered <- true
		<-leave
		return &Addr{Network: Echo}
	}}})
	c := packetSocket(t, "udp4")
	tellGram(t, c, l.Addr(), "first")
	<-entered
	const n = 100
	for range n {
		tellGram(t, c, l.Addr(), "more")
	}
	close(leave)
	testwait.Until(t, "all are accounted for", func() bool {
		s := r.dgramStats()
		return s.Lost > 0 && s.Received/2+s.Lost == n+1
	})
}

// Connect is the time until there is a socket towards the upstream, and FirstByte is
// how long the first answer took: not how long the client's port had been in use before it.
func TestDatagramTimes(t *testing.T) {
	const silence, wait = 3 * time.Second, time.Second
	r := newDatagramRig(t, Config{Loops: 1})
	r.k.StopClock()
	s := packetSocket(t, "udp4")
	up := gramAddr(s.LocalAddr())
	took := make(chan time.Duration, 1)
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Datagram: DatagramConfig{Replies: 2}, Hooks: Hooks{
		Connected: func(_ *Flow, _ *Addr, d time.Duration, _ error) { took <- d },
	}}, &up)
	c := packetSocket(t, "udp4")
	tellGram(t, c, l.Addr(), "unanswered")
	back := hearGram(t, s, "unanswered")
	r.pass(silence)
	tellGram(t, c, l.Addr(), "answered")
	hearGram(t, s, "answered")
	r.pass(wait)
	var detail FlowInfo
	r.e.Flows(func(flows []FlowInfo) bool {
		for _, f := range flows {
			detail, _ = r.e.Flow(f.ID)
		}
		return true
	})
	if detail.Connect <= 0 || detail.FirstByte != 0 {
		t.Errorf("before the answer: connect %v, first byte %v", detail.Connect, detail.FirstByte)
	}
	for range 4 {
		tellGram(t, s, gramAddr(back), "answer")
		hearGram(t, c, "answer")
	}
	rec := r.expect(CauseAnswered)
	if rec.Connect <= 0 || rec.Connect >= silence {
		t.Errorf("connect %v, and there was a socket before %v", rec.Connect, silence)
	}
	if rec.FirstByte < wait || rec.FirstByte > wait+tick || rec.FirstByte != <-took {
		t.Errorf("first byte %v, and the answer came after %v", rec.FirstByte, wait)
	}
}
