package relay

import (
	"testing"
	"time"

	"github.com/penstock/penstock/internal/flood"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/stats"
)

// onFloodControl calls f with the flood control of the rig's only loop, on that loop, which must have a flow.
func (r *rig) onFloodControl(f func(a *flood.Control, now time.Duration)) {
	done := false
	r.e.onLoops(func(flow *Flow) {
		if !done {
			done = true
			f(&r.e.datagrams.all[0].floodControl, flow.owner.base().loop.Now)
		}
	})
}

// crowd has the rig's only loop behave as if datagrams waited, with so much of its budget left.
func (r *rig) crowd(budget time.Duration) {
	r.onFloodControl(func(a *flood.Control, now time.Duration) {
		a.Crowded, a.Budget, a.Filled = now+time.Hour, [2]time.Duration{budget, budget}, now
	})
}

// While a loop has no time for new flows, new clients are dropped as limited and counted, and flows go on.
// When it has time again, or nothing waits, the same clients get in.
func TestCrowdedLoop(t *testing.T) {
	for _, network := range grams {
		t.Run(network, func(t *testing.T) {
			r := newDatagramRig(t, Config{Loops: 1})
			l := r.listenAt(gramPlace(t, network), ListenConfig{}, gramEcho(t, network))
			old, young, third := packetSocket(t, network), packetSocket(t, network), packetSocket(t, network)
			askGram(t, old, l.Addr(), "first")
			r.crowd(-time.Hour)
			tellGram(t, young, l.Addr(), "too early")
			testwait.Until(t, "the new client is dropped", func() bool { return r.dgramStats().Crowded == 1 })
			for range 10 {
				askGram(t, old, l.Addr(), "I go on")
			}
			if s := r.dgramStats(); s.Dropped.Get(stats.DropLimited) != 1 || s.Begun != 1 {
				t.Errorf("%d dropped as limited, %d flows began", s.Dropped.Get(stats.DropLimited), s.Begun)
			}
			r.crowd(flood.Depth)
			askGram(t, young, l.Addr(), "now")
			r.onFloodControl(func(a *flood.Control, now time.Duration) {
				a.Crowded, a.Budget = 0, [2]time.Duration{-time.Hour, -time.Hour}
			})
			askGram(t, third, l.Addr(), "nothing waits")
			if s := r.dgramStats(); s.Crowded != 1 || s.Begun != 3 {
				t.Errorf("%d dropped for want of time, %d flows began", s.Crowded, s.Begun)
			}
		})
	}
}

// The datagrams of flows leave before any flow begins, wherever in the queue they are; two of a new client
// are both of its flow, in their order.
func TestFlowsComeBeforeNewClients(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	s := packetSocket(t, "udp4")
	up := gramAddr(s.LocalAddr())
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, &up)
	old, young := packetSocket(t, "udp4"), packetSocket(t, "udp4")
	tellGram(t, old, l.Addr(), "begin")
	hearGram(t, s, "begin")
	release := r.holdLoop()
	tellGram(t, young, l.Addr(), "new 1")
	tellGram(t, old, l.Addr(), "old 1")
	tellGram(t, young, l.Addr(), "new 2")
	tellGram(t, old, l.Addr(), "old 2")
	release()
	for _, text := range []string{"old 1", "old 2", "new 1", "new 2"} {
		hearGram(t, s, text)
	}
}

// While new clients are refused for want of time, none takes the place of a flow that goes back and forth,
// but that of one whose client has sent nothing since the first reply.
func TestFloodEvictsNoVerifiedFlow(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1, MaxDatagramFlows: 2})
	r.e.datagrams.inUse = 0 // before the loop has a datagram port
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, gramEcho(t, "udp4"))
	old, once, young, next := packetSocket(t, "udp4"), packetSocket(t, "udp4"), packetSocket(t, "udp4"), packetSocket(t, "udp4")
	askGram(t, old, l.Addr(), "first")
	askGram(t, old, l.Addr(), "second")
	askGram(t, once, l.Addr(), "only")
	r.waitIdle()
	r.onFloodControl(func(a *flood.Control, now time.Duration) { a.Refused = now + time.Hour })
	askGram(t, young, l.Addr(), "takes the place of the one that is silent")
	askGram(t, young, l.Addr(), "goes back and forth")
	tellGram(t, next, l.Addr(), "no room")
	testwait.Until(t, "it is dropped", func() bool { return r.dgramStats().Dropped.Get(stats.DropNoRoom) == 1 })
	askGram(t, old, l.Addr(), "third")
	r.onFloodControl(func(a *flood.Control, now time.Duration) { a.Refused = 0 })
	askGram(t, next, l.Addr(), "without a flood, the one that is silent for longest goes")
	if s := r.dgramStats(); s.Begun != 4 {
		t.Errorf("%d flows began", s.Begun)
	}
}
