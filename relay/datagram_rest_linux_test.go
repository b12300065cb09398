package relay

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/stats"
)

// A second answer, which comes when the flow has ended, reaches nobody: with so
// few ports each would be the next flow's soon.
func TestLateReplyReachesNobody(t *testing.T) {
	for name, dial := range map[string]*DialConfig{"": nil, "source": {Source: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}} {
		t.Run("dial="+name, func(t *testing.T) { lateReplies(t, dial) })
	}
}

func lateReplies(t *testing.T, dial *DialConfig) {
	if !testnet.Netns(t) {
		return
	}
	testnet.Sysctl(t, "net.ipv4.ip_local_port_range", "40000 40007")
	r := newDatagramRig(t, Config{Loops: 1})
	r.k.StopClock()
	r.e.datagrams.restLeast = 0 // before the loop has a datagram port
	s := packetSocketAt(t, "127.0.0.1:30000")
	up := gramAddr(s.LocalAddr())
	l := r.listenAt(Addr{Network: UDP, AddrPort: netip.MustParseAddrPort("127.0.0.1:20000")}, ListenConfig{Dial: dial, Datagram: DatagramConfig{Replies: 1}}, &up)
	var last net.Addr
	for i := range 60 {
		text := fmt.Sprint("client ", i)
		c := packetSocketAt(t, fmt.Sprint("127.0.0.1:", 31000+i))
		tellGram(t, c, l.Addr(), text)
		from := hearGram(t, s, text)
		if last != nil {
			tellGram(t, s, gramAddr(last), fmt.Sprint("again for client ", i-1))
		}
		tellGram(t, s, gramAddr(from), text)
		hearGram(t, c, text)
		r.expect(CauseAnswered)
		c.Close()
		last = from
	}
	if s := r.dgramStats(); s.Resting == 0 || s.Resting > 8 || s.RestingClosedEarly == 0 {
		t.Errorf("%+v", s)
	}
}

// Without a port that has been silent for long enough, a new client is refused: the very next flow would get the port of
// one that may still be answered.
func TestNoPortIsBetterThanAnother(t *testing.T) {
	if !testnet.Netns(t) {
		return
	}
	const ports = 8
	testnet.Sysctl(t, "net.ipv4.ip_local_port_range", "40000 40007")
	for _, replies := range []int{0, 1} { // flows that wait for an answer, and sockets that rest
		t.Run(fmt.Sprint("replies=", replies), func(t *testing.T) {
			r := newDatagramRig(t, Config{Loops: 1})
			r.k.StopClock()
			r.e.datagrams.restLeast = time.Hour // before the loop has a datagram port
			s := packetSocketAt(t, "127.0.0.1:30000")
			up := gramAddr(s.LocalAddr())
			l := r.listenAt(Addr{Network: UDP, AddrPort: netip.MustParseAddrPort("127.0.0.1:20000")}, ListenConfig{Datagram: DatagramConfig{Replies: replies}}, &up)
			for i := range ports {
				c := packetSocketAt(t, fmt.Sprint("127.0.0.1:", 31000+i))
				tellGram(t, c, l.Addr(), "question")
				from := gramAddr(hearGram(t, s, "question"))
				if replies > 0 {
					tellGram(t, s, from, "answer")
					hearGram(t, c, "answer")
					r.expect(CauseAnswered)
				}
			}
			tellGram(t, packetSocketAt(t, "127.0.0.1:31100"), l.Addr(), "one more")
			if rec := r.expect(CauseNoPorts); !errors.Is(rec.Err, errNoPort) {
				t.Errorf("%v", rec.Err)
			}
			if s := r.dgramStats(); s.Dropped.Get(stats.DropNoRoom) != 1 || s.RestingClosedEarly != 0 || s.Resting != int64(replies*ports) {
				t.Errorf("%+v", s)
			}
		})
	}
}

// A socket rests only where a reply may still come that could reach another flow.
func TestWhatRests(t *testing.T) {
	for _, c := range []struct {
		name     string
		upstream string
		sends    bool          // something has left for the upstream
		silence  time.Duration // before the flow ends
		want     int64
	}{
		{"asked", "udp4", true, 0, 1},
		{"nothing sent", "udp4", false, 0, 0},
		{"long silent", "udp4", true, 300 * time.Millisecond, 0},
		{"unix", "unixgram", true, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newDatagramRig(t, Config{Loops: 1})
			r.k.StopClock()
			if c.silence > 0 {
				r.e.datagrams.restTime = c.silence / 2 // before the loop has a datagram port
			}
			s := packetSocket(t, c.upstream)
			up := gramAddr(s.LocalAddr())
			l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, &up)
			if !c.sends {
				r.k.Fail(testkernel.Send, sys.EPERM, 1)
			}
			tellGram(t, packetSocket(t, "udp4"), l.Addr(), "question")
			if c.sends {
				hearGram(t, s, "question")
			} else {
				testwait.Until(t, "it is dropped", func() bool { return r.dgramStats().Dropped.Get(stats.DropFiltered) == 1 })
			}
			r.pass(c.silence)
			killOne(t, r, CauseKilled)
			r.expect(CauseKilled)
			if n := r.dgramStats().Resting; n != c.want {
				t.Errorf("%d sockets rest, want %d", n, c.want)
			}
		})
	}
}

// A late reply to a resting socket wakes nobody.
func TestRestingSocketIsQuiet(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	s, c := packetSocket(t, "udp4"), packetSocket(t, "udp4")
	up := gramAddr(s.LocalAddr())
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Datagram: DatagramConfig{Replies: 1}}, &up)
	tellGram(t, c, l.Addr(), "question")
	back := gramAddr(hearGram(t, s, "question"))
	tellGram(t, s, back, "answer")
	hearGram(t, c, "answer")
	r.expect(CauseAnswered)
	tellGram(t, s, back, "late")
	quiet(t, r)
}

// A socket rests for its time, and then it is closed, with nothing else to wake the loop.
func TestRestEnds(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	r.e.datagrams.restTime = 300 * time.Millisecond // before the loop has a datagram port
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Datagram: DatagramConfig{Replies: 1}}, gramEcho(t, "udp4"))
	start := time.Now()
	closed := r.k.Count(testkernel.Close)
	askGram(t, packetSocket(t, "udp4"), l.Addr(), "x")
	r.expect(CauseAnswered)
	testwait.Until(t, "the socket is closed", func() bool { return r.k.Count(testkernel.Close) > closed })
	if took := time.Since(start); took < r.e.datagrams.restTime {
		t.Errorf("it rested for %v", took)
	}
	if s := r.dgramStats(); s.Resting != 0 || s.RestingClosedEarly != 0 {
		t.Errorf("%+v", s)
	}
}

// No more sockets rest than the bound allows, and one that gives way does so for a flow.
func TestRestingSocketsMakeRoom(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	r.k.StopClock()
	r.e.datagrams.maxResting, r.e.datagrams.restLeast = 3, 0 // before the loop has a datagram port
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Datagram: DatagramConfig{Replies: 1}}, gramEcho(t, "udp4"))
	for range 5 {
		askGram(t, packetSocket(t, "udp4"), l.Addr(), "x")
		r.expect(CauseAnswered)
	}
	if s := r.dgramStats(); s.Resting != 3 || s.RestingClosedEarly != 2 {
		t.Errorf("%+v", s)
	}
	r.e.loops[0].Ask(func() { // a late answer takes little memory
		if n, e := sys.ReceiveBuffer.Get(sys.Linux{}, r.e.datagrams.all[0].rests.first().fd); e != 0 || n > 4096 {
			t.Errorf("the receive buffer has %d bytes, %v", n, e)
		}
	})
	for _, errno := range []sys.Errno{sys.EMFILE, sys.EAGAIN} {
		r.k.Fail(testkernel.Datagram, errno, 1)
		askGram(t, packetSocket(t, "udp4"), l.Addr(), "x")
		r.expect(CauseAnswered)
	}
	if s := r.dgramStats(); s.Resting != 3 || s.RestingClosedEarly != 4 {
		t.Errorf("%+v", s)
	}
}

// A resting socket gives way to a client of streams too, and to its upstream.
func TestRestingSocketsMakeRoomForStreams(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	r.k.StopClock()
	asked := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Datagram: DatagramConfig{Replies: 1}}, gramEcho(t, "udp4"))
	streams := r.listenAt(Addr{Network: TCP, AddrPort: loopback}, ListenConfig{}, echoServer(t, "tcp4"))
	for _, call := range []testkernel.Call{testkernel.Accept, testkernel.Socket} {
		askGram(t, packetSocket(t, "udp4"), asked.Addr(), "x")
		r.expect(CauseAnswered)
		r.k.Fail(call, sys.EMFILE, 1)
		c, err := net.Dial("tcp", streams.Addr().AddrPort.String())
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(patience))
		b := make([]byte, 5)
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "hello" {
			t.Errorf("%v: heard %q, %v", call, b, err)
		}
		c.Close()
		r.expect(CauseEnd)
	}
	s := r.e.Stats()
	total := s.Total()
	if d := &total.Datagrams; d.Resting != 0 || d.RestingClosedEarly != 2 || total.AcceptPauses != 0 {
		t.Errorf("%+v", total)
	}
}

// Ports are not given in an order that others could guess.
func TestUpstreamPortsAreRandom(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	s := packetSocket(t, "udp4")
	up := gramAddr(s.LocalAddr())
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, &up)
	near, last := 0, 0
	for range 32 {
		tellGram(t, packetSocket(t, "udp4"), l.Addr(), "x")
		port := hearGram(t, s, "x").(*net.UDPAddr).Port
		if d := port - last; -64 < d && d < 64 {
			near++
		}
		last = port
	}
	if near > 4 {
		t.Errorf("%d of 32 ports are close to the one before", near)
	}
}

// At the bound a flow without an answer keeps its place for as long as answers
// take, so that the clients of a slow upstream have theirs, however many come
// meanwhile whose upstream is quick, or who are never answered.
func TestSlowUpstreamBesideAFlood(t *testing.T) {
	for _, c := range []struct {
		name  string
		flood func(t *testing.T) *Addr
	}{
		{"answered", func(t *testing.T) *Addr { return gramEcho(t, "udp4") }},
		{"silent", func(t *testing.T) *Addr { a := gramAddr(packetSocket(t, "udp4").LocalAddr()); return &a }},
	} {
		t.Run(c.name, func(t *testing.T) {
			const most, slow = 40, 10
			r := newDatagramRig(t, Config{Loops: 1, MaxDatagramFlows: most})
			r.k.StopClock()
			s := packetSocket(t, "udp4")
			up := gramAddr(s.LocalAddr())
			asked := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, &up)
			flood := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, c.flood(t))
			quick := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, gramEcho(t, "udp4"))
			for range most { // the table is full
				askGram(t, packetSocket(t, "udp4"), quick.Addr(), "x")
			}
			r.pass(mostPatience) // none of them is in use
			var clients []net.PacketConn
			ports := make(map[string]net.Addr)
			for i := range slow {
				text := fmt.Sprint("client ", i)
				clients = append(clients, packetSocket(t, "udp4"))
				tellGram(t, clients[i], asked.Addr(), text)
				ports[text] = hearGram(t, s, text)
			}
			for range 8 {
				for range most / 4 {
					tellGram(t, packetSocket(t, "udp4"), flood.Addr(), "flood")
				}
				r.pass(firstPatience / 10)
			}
			testwait.Until(t, "the flood is read", func() bool {
				s := r.dgramStats()
				return s.Begun+s.Dropped.Get(stats.DropNoRoom) == 3*most+slow
			})
			kept := 0
			r.e.Flows(func(fs []FlowInfo) bool {
				for i := range fs {
					if fs[i].Listener == quick {
						kept++
					}
				}
				return true
			})
			if c.name == "silent" && kept < most/2-1 {
				t.Errorf("%d flows with an answer have kept their places, of %d", kept, most)
			}
			for i, c := range clients {
				text := fmt.Sprint("client ", i)
				tellGram(t, s, gramAddr(ports[text]), text)
				hearGram(t, c, text)
			}
		})
	}
}

// How long an unanswered flow keeps its place follows the answers.
func TestAnswerTimes(t *testing.T) {
	var a answerTimes
	for _, c := range []struct{ now, add, want time.Duration }{
		{0, 0, firstPatience},
		{0, time.Millisecond, leastPatience},
		{time.Second, time.Second, 2 * time.Second},
		{answerWindow - 1, time.Millisecond, 2 * time.Second},
		{answerWindow, time.Millisecond, 2 * time.Second},
		{2 * answerWindow, time.Millisecond, leastPatience},
		{2 * answerWindow, time.Minute, mostPatience},
		{4 * answerWindow, 0, firstPatience},
	} {
		if c.add > 0 {
			a.add(c.now, c.add)
		}
		if got := a.patience(c.now); got != c.want {
			t.Errorf("at %v, after an answer in %v: %v, want %v", c.now, c.add, got, c.want)
		}
	}
}
