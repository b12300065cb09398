package relay

import (
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/hold"
)

// Flows that were queued begin again after all others are restored: until the hooks know those, they cannot tell
// whether there is room for another one.
func TestHandOverQueued(t *testing.T) {
	const early, relaying = 40, 3 * restoreBurst
	k := newKeptTable(t)
	upstream := echoServer(t, "unix")
	o := keptOrder{Loops: 2, After: patience, Listen: []string{keptPlace(t, "unix")}, Upstream: upstream.String(), Connected: relaying}
	proc := k.start(o)
	var all []net.Conn
	enter := func() net.Conn {
		c := testnet.Dial(t, toNet(proc.addrs[0]))
		all = append(all, c)
		return c
	}
	// Flows that end leave places for the queued ones in front of some that relay.
	var short []net.Conn
	for range early {
		c := testnet.Dial(t, toNet(proc.addrs[0]))
		say(t, c, c, "short")
		short = append(short, c)
	}
	for range relaying - early {
		c := enter()
		say(t, c, c, "relaying")
	}
	for _, c := range short {
		c.Close()
	}
	testwait.Until(t, "the short ones have ended", func() bool {
		return proc.ask("stats").Stats.Flows() == relaying-early
	})
	for range early {
		enter()
	}
	testwait.Until(t, "the others are queued", func() bool {
		return proc.ask("stats").Stats.Flows() == relaying
	})
	proc.ask("handover")
	proc.kill()
	o.Connected, o.Decoded = 0, relaying
	proc = k.start(o)
	if r := proc.Restored; r.Flows != relaying || r.Ended != 0 || r.TotalLost() != 0 {
		t.Fatalf("%+v", r)
	}
	for i, c := range all {
		say(t, c, c, fmt.Sprintf("client %d", i))
		c.Close()
	}
	k.settled(0)
}

// An early flow whose client epoll does not take is lost, and not restored.
func TestHandOverEarlyWithoutEpoll(t *testing.T) {
	k := newKeptTable(t)
	upstream := echoServer(t, "unix")
	o := keptOrder{Loops: 1, After: patience, Listen: []string{keptPlace(t, "unix")}, Upstream: upstream.String(), Sniff: 9}
	proc := k.start(o)
	testnet.Dial(t, toNet(proc.addrs[0]))
	testwait.Until(t, "the client is sniffed", func() bool { return proc.ask("stats").Stats.Flows() == 1 })
	proc.ask("handover")
	proc.kill()
	for _, x := range k.heldOf(holdFlow) {
		f, err := os.Open(os.Args[0])
		if err != nil {
			t.Fatal(err)
		}
		k.closeAll(x.FDs)
		x.FDs[0], _ = sys.Dup(int(f.Fd())) // epoll(7) takes no regular file
		f.Close()
	}
	proc = k.start(o)
	if r := proc.Restored; r.Flows != 0 || r.TotalLost() != 1 || r.Lost.Get(hold.LossResources) != 1 {
		t.Errorf("%+v", r)
	}
	k.settled(0)
}

// A flow that is about to try its upstream again does so in the next process. What was sniffed is the record's,
// what the client has sent behind that is its socket's, and nobody has anything else.
func TestHandOverRetrying(t *testing.T) {
	for _, network := range []string{"tcp4", "unix"} {
		t.Run(network, func(t *testing.T) {
			k := newKeptTable(t)
			place := Addr{Network: Unix, Path: socketPath(t)}
			o := keptOrder{Loops: 2, After: patience, Listen: []string{keptPlace(t, network)}, Upstream: place.String(), Retry: true, Sniff: 5}
			proc := k.start(o)
			o.Listen = proc.urls()
			c := testnet.Dial(t, toNet(proc.addrs[0]))
			say := func(text string) {
				if _, err := io.WriteString(c, text); err != nil {
					t.Fatal(err)
				}
			}
			say("early")
			testwait.Until(t, "it is tried again", func() bool { return proc.ask("stats").Stats.Total().ConnectErrors >= attemptsAtOnce })
			say(" and late")
			proc.ask("handover")
			proc.kill()
			l, err := net.Listen("unix", place.Path)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			proc = k.start(o)
			if r := proc.Restored; r.Flows != 1 || r.TotalLost() != 0 {
				t.Fatalf("%+v", r)
			}
			b := (&server{Listener: l}).accept(t)
			hear(t, b, "early and late")
			closeWrite(t, c)
			expectEOF(t, b)
			b.Close()
			expectEOF(t, c)
			k.settled(0)
			if rec := <-proc.records; rec.Cause != CauseEnd || rec.Up.Read != 14 || rec.Up.Written != 14 {
				t.Errorf("%+v", rec)
			}
		})
	}
}

// A flow whose upstream has not answered yet asks it again in the next process. What was sniffed is still there.
func TestHandOverAsking(t *testing.T) {
	const own = 100
	k := newKeptTable(t)
	s := newServer(t, "tcp4")
	o := keptOrder{Loops: 1, After: patience, Listen: []string{keptPlace(t, "tcp4")}, Upstream: s.addr.String(), Sniff: 5, Preface: own, Expect: "yes"}
	proc := k.start(o)
	o.Listen = proc.urls()
	c := testnet.Dial(t, toNet(proc.addrs[0]))
	io.WriteString(c, "early")
	asked := string(testnet.NewPattern(9).At(0, own))
	b := s.accept(t)
	hear(t, b, asked)
	io.WriteString(b, "ye")
	proc.ask("handover")
	proc.kill()
	proc = k.start(o)
	if r := proc.Restored; r.Flows != 1 || r.TotalLost() != 0 {
		t.Fatalf("%+v", r)
	}
	b = s.accept(t)
	hear(t, b, asked)
	io.WriteString(b, "yes")
	hear(t, b, "early")
	say(t, b, c, "and back")
	closeWrite(t, c)
	expectEOF(t, b)
	b.Close()
	expectEOF(t, c)
	k.settled(0)
	if rec := <-proc.records; rec.Cause != CauseEnd || rec.Up.Written != 5 {
		t.Errorf("%+v", rec)
	}
}

// A client that was sent a reply can read it if the next process refuses it: it is not reset. It is asked nothing
// again, and gets no reply twice.
func TestHandOverReplied(t *testing.T) {
	for _, replies := range []int{0, 1, 2} {
		t.Run(fmt.Sprintf("replies=%d", replies), func(t *testing.T) {
			k := newKeptTable(t)
			o := keptOrder{Loops: 1, After: patience, Listen: []string{keptPlace(t, "tcp4")}, Upstream: newServer(t, "tcp4").addr.String(), Sniff: 9, Reply: "yes"}
			proc := k.start(o)
			o.Listen = proc.urls()
			c := testnet.Dial(t, toNet(proc.addrs[0]))
			testwait.Until(t, "the client is sniffed", func() bool { return proc.ask("stats").Stats.Flows() == 1 })
			for range replies {
				io.WriteString(c, "?")
				hear(t, c, "yes")
			}
			for range 2 { // the second time it is handed over as it was restored
				proc.ask("handover")
				proc.kill()
				proc = k.start(o)
				if r := proc.Restored; r.Flows != 1 || r.TotalLost() != 0 {
					t.Fatalf("%+v", r)
				}
			}
			io.WriteString(c, "!and more")
			if replies > 0 {
				wantEnd(t, c)
			} else {
				wantReset(t, c)
			}
			k.settled(0)
			if rec := <-proc.records; rec.Cause != CauseRefused || rec.Down.Written != 0 {
				t.Errorf("%+v", rec)
			}
		})
	}
}

// A client that was told that it has an upstream, which is still to answer, would be told twice by the next process: its
// flow ends with its own.
func TestHandOverWelcomed(t *testing.T) {
	k := newKeptTable(t)
	s := newServer(t, "tcp4")
	o := keptOrder{Loops: 1, After: patience, Listen: []string{keptPlace(t, "tcp4")}, Upstream: s.addr.String(), Welcome: 10, Preface: 10, Expect: "yes"}
	proc := k.start(o)
	o.Listen = proc.urls()
	c := testnet.Dial(t, toNet(proc.addrs[0]))
	hear(t, c, string(testnet.NewPattern(9).At(0, o.Welcome)))
	s.accept(t)
	proc.ask("handover")
	if rec := <-proc.records; rec.Cause != CauseCrashed {
		t.Errorf("%+v", rec)
	}
	proc.kill()
	wantReset(t, c)
	if r := k.start(o).Restored; r.Flows != 0 || r.TotalLost() != 0 {
		t.Errorf("%+v", r)
	}
	k.settled(0)
}

// kill(2) ends flows whose client was replied to, or whose upstream is to answer: nothing of them is held, the
// next process knows nothing of them, and the upstream has got what it was asked, and nothing of the client's.
func TestKilledWhileAgreeing(t *testing.T) {
	k := newKeptTable(t)
	s := newServer(t, "tcp4")
	o := keptOrder{Loops: 1, Listen: []string{keptPlace(t, "tcp4"), keptPlace(t, "tcp4")}, Upstream: s.addr.String(), Sniff: 9, Reply: "yes"}
	asks := o
	asks.Reply, asks.Sniff, asks.Preface, asks.Expect = "", 5, 100, "yes"
	for _, o := range []keptOrder{o, asks} {
		proc := k.start(o)
		c := testnet.Dial(t, toNet(proc.addrs[0]))
		var b net.Conn
		if o.Reply != "" {
			io.WriteString(c, "?")
			hear(t, c, "yes")
		} else {
			io.WriteString(c, "early")
			b = s.accept(t)
			hear(t, b, string(testnet.NewPattern(9).At(0, o.Preface)))
			io.WriteString(b, "ye")
		}
		k.expect(holdFlow, 0)
		proc.kill()
		for _, end := range []net.Conn{c, b} {
			if end == nil {
				continue
			}
			if got, _ := readToEnd(t, end); got > 0 {
				t.Errorf("%d bytes", got)
			}
		}
		proc = k.start(o)
		if r := proc.Restored; r.Flows != 0 || r.TotalLost() != 0 {
			t.Errorf("%+v", r)
		}
		proc.kill()
	}
}

// A preface that the upstream has not taken yet is delivered by the next process, once. Until then it is the
// record's; what the client has sent is its socket's, since nothing is read before the preface has left.
func TestHandOverUndeliveredPreface(t *testing.T) {
	const own = 60_000
	k := newKeptTable(t)
	config := net.ListenConfig{Control: func(_, _ string, rc syscall.RawConn) error {
		return rc.Control(func(fd uintptr) { sys.SetBuffers(sys.Linux{}, int(fd), 4<<10, 0) })
	}}
	l, err := config.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := keptOrder{Loops: 1, After: patience, Listen: []string{keptPlace(t, "tcp4")}, Upstream: fromNet(l.Addr()).String(), Preface: own, Socket: SocketOptions{SendBuffer: 4 << 10}}
	proc := k.start(o)
	o.Listen = proc.urls()
	a := testnet.Dial(t, toNet(proc.addrs[0]))
	b := (&server{Listener: l}).accept(t)
	io.WriteString(a, "and then the client")
	testwait.Until(t, "the upstream is connected", func() bool { return proc.ask("stats").Stats.Total().Connects == 1 })
	for range 2 {
		proc.ask("handover")
		proc.kill()
		proc = k.start(o)
		if r := proc.Restored; r.Flows != 1 || r.TotalLost() != 0 || r.Holding != 1 || r.Bytes == 0 {
			t.Fatalf("%+v", r)
		}
	}
	got := make([]byte, own)
	b.SetReadDeadline(time.Now().Add(patience))
	if n, err := io.ReadFull(b, got); err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if err := testnet.NewPattern(9).Check(0, got); err != nil {
		t.Error(err)
	}
	hear(t, b, "and then the client")
	say(t, b, a, "answer")
	a.Close()
	expectEOF(t, b)
	b.Close()
	k.settled(0)
	if rec := <-proc.records; rec.Cause != CauseEnd || rec.Up.Written != 19 {
		t.Errorf("%+v", rec)
	}
}
