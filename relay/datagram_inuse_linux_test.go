package relay

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/stats"
)

// askUntil sends until the same comes back. It returns how often it had to.
func askUntil(t *testing.T, c net.PacketConn, to Addr, text string) (times int) {
	t.Helper()
	b := make([]byte, 1<<16)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		tellGram(t, c, to, text)
		times++
		c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		n, _, err := c.ReadFrom(b)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil || string(b[:n]) != text {
			t.Fatalf("heard %q, %v; want %q", b[:n], err, text)
		}
		return times
	}
	t.Fatalf("%q is not answered", text)
	return 0
}

// With more clients than places, those that go on keep theirs, and new ones get in when somebody is idle.
func TestFlowsInUseKeepTheirPlaces(t *testing.T) {
	const places = 4
	r := newDatagramRig(t, Config{Loops: 1, MaxDatagramFlows: places})
	r.e.datagrams.inUse = time.Hour // before the loop has a datagram port
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, gramEcho(t, "udp4"))
	var old, young []net.PacketConn
	for i := range places {
		old, young = append(old, packetSocket(t, "udp4")), append(young, packetSocket(t, "udp4"))
		askGram(t, old[i], l.Addr(), fmt.Sprint("first of ", i))
		askGram(t, old[i], l.Addr(), fmt.Sprint("second of ", i))
	}
	for n := range 10 {
		for i := range places {
			tellGram(t, young[i], l.Addr(), "no room")
			askGram(t, old[i], l.Addr(), fmt.Sprint("old ", i, " ", n))
		}
	}
	testwait.Until(t, "all are read", func() bool { return r.dgramStats().Dropped.Get(stats.DropNoRoom) == 10*places })
	if s := r.dgramStats(); s.Begun != places {
		t.Errorf("%d flows began, for %d places", s.Begun, places)
	}
	r.e.loops[0].Ask(func() { r.e.datagrams.inUse = 0 })
	askGram(t, young[0], l.Addr(), "there is somebody idle")
	if rec := r.expect(CauseEvicted); rec.Client != gramAddr(old[0].LocalAddr()) {
		t.Errorf("%v made room, and not the one that was silent for longest", rec.Client)
	}
}

// A flow that was answered once keeps its place as long as answers take, so that its client can go on; one whose
// upstream sends more than it was asked for is in use.
func TestFlowsWithOneAnswer(t *testing.T) {
	for _, answers := range []int{1, 2} {
		t.Run(fmt.Sprint("answers=", answers), func(t *testing.T) {
			r := newDatagramRig(t, Config{Loops: 1})
			s, c := packetSocket(t, "udp4"), packetSocket(t, "udp4")
			up := gramAddr(s.LocalAddr())
			l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, &up)
			tellGram(t, c, l.Addr(), "question")
			back := gramAddr(hearGram(t, s, "question"))
			for range answers {
				tellGram(t, s, back, "answer")
				hearGram(t, c, "answer")
			}
			want := []time.Duration{leastPatience, inUseTime}[answers-1]
			r.e.loops[0].Ask(func() {
				d := r.e.datagrams.all[0]
				f, now, seen := d.answered.oldest, d.loop.Now, d.loop.Seen
				f.firstByte = time.Millisecond
				for silence, is := range map[time.Duration]bool{want - 1: true, want: false} {
					d.loop.Now, d.loop.Seen = f.active+silence, f.active+silence
					if d.inUse(f) != is {
						t.Errorf("after %v it is in use: %v", silence, !is)
					}
				}
				d.loop.Now, d.loop.Seen = now, seen
			})
		})
	}
}

// waitIdle waits until no flow of the rig's only loop is in use that was answered and whose client is not verified.
func (r *rig) waitIdle() {
	d := r.e.datagrams.all[0]
	testwait.Until(r.t, "the flows with an answer are idle", func() (idle bool) {
		r.e.loops[0].Ask(func() { idle = d.answered.newest == nil || !d.inUse(d.answered.newest) })
		return idle
	})
}

// onEachLoop returns a client of each of two loops, which have no flows.
func onEachLoop(t *testing.T, r *rig, l *Listener) (cs [2]net.PacketConn) {
	t.Helper()
	for cs[0] == nil || cs[1] == nil {
		c := packetSocket(t, "udp4")
		before := r.e.Stats().Loops[0].Datagrams.Begun
		askGram(t, c, l.Addr(), "where am I")
		cs[1-(r.e.Stats().Loops[0].Datagrams.Begun-before)] = c
		r.e.endFlows(CauseRemoved)
		r.expect(CauseRemoved)
	}
	return cs
}

// A client gets in when somebody is idle on another loop.
func TestIdleFlowOfAnotherLoopMakesRoom(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 2, MaxDatagramFlows: 1})
	r.e.datagrams.inUse = 0 // before the loops have a datagram port
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, gramEcho(t, "udp4"))
	cs := onEachLoop(t, r, l)
	askGram(t, cs[0], l.Addr(), "first")
	askGram(t, cs[0], l.Addr(), "second")
	askUntil(t, cs[1], l.Addr(), "let me in")
	if rec := r.expect(CauseEvicted); rec.Client != gramAddr(cs[0].LocalAddr()) {
		t.Errorf("%v made room", rec.Client)
	}
}

// tighten leaves so many descriptors free, whatever kinds of listeners there are, and nothing is measured until the end
// of the test.
func (r *rig) tighten(free int64) {
	b := &r.e.descriptors
	b.mu.Lock()
	for _, d := range b.all {
		d.loop.Ask(d.giveAhead)
	}
	b.plenty.Store(math.MaxInt64)
	was := b.free.Swap(free)
	r.t.Cleanup(func() {
		b.free.Add(was - free)
		b.mu.Unlock()
	})
}

// A socket that rests on one loop gives way to a client of another one.
func TestRestOfAnotherLoopMakesRoom(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 2})
	r.e.datagrams.restTime = time.Hour // before the loops have a datagram port
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, gramEcho(t, "udp4"))
	cs := onEachLoop(t, r, l)
	askGram(t, cs[0], l.Addr(), "hello")
	r.e.endFlows(CauseRemoved)
	r.expect(CauseRemoved)
	if n := r.dgramStats().Resting; n == 0 {
		t.Fatal("nothing rests")
	}
	r.tighten(0)
	r.e.loops[1].Ask(func() {
		for r.e.loops[1].Spare() {
		}
	})
	spared := r.e.descriptors.free.Swap(0)
	t.Cleanup(func() { r.e.descriptors.free.Add(spared) })
	askUntil(t, cs[1], l.Addr(), "let me in")
}

// While few descriptors are free, no socket rests: a flow of any loop finds one.
func TestNothingRestsWithoutDescriptors(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	r.k.StopClock()
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Datagram: DatagramConfig{Replies: 1}}, gramEcho(t, "udp4"))
	for range 3 {
		askGram(t, packetSocket(t, "udp4"), l.Addr(), "x")
		r.expect(CauseAnswered)
	}
	if n := r.dgramStats().Resting; n != 3 {
		t.Fatalf("%d sockets rest", n)
	}
	r.tighten(r.e.descriptors.total.Load()/pipeShare - 1)
	for range 4 {
		askGram(t, packetSocket(t, "udp4"), l.Addr(), "x")
		r.expect(CauseAnswered)
	}
	if s := r.dgramStats(); s.Resting != 0 || s.RestingClosedEarly != 7 {
		t.Errorf("%d sockets rest, %d were closed early", s.Resting, s.RestingClosedEarly)
	}
}
