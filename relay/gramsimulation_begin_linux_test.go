package relay

import (
	"math/rand/v2"
	"time"
)

// gramBegins are the flows that have begun in a tick, by loop, and in which one.
type gramBegins struct {
	process int
	tick    [maxLoops]int64
	n       [maxLoops]int
	looked  [maxLoops]int64 // the tick of the last look
	full    bool            // see lookAtBegins
}

// mostBegin is how many flows may begin on a loop in a tick.
func (s *gramSimulation) mostBegin() int {
	n := s.kind.newFlows
	if n == 0 {
		n = defaultNewFlows
	}
	return max(1, n/int(time.Second/tick))
}

// lookAtBegins finds out whether on a loop as many flows have begun as may, at any time since the last look: a step may be several turns.
func (s *gramSimulation) lookAtBegins() {
	x := &s.begins
	x.full = false
	for i, d := range s.core.datagrams.all {
		x.full = x.full || x.n[i] >= s.mostBegin() && x.tick[i] >= x.looked[i]
		x.looked[i] = int64(d.loop.Now / tick)
	}
}

// lookAtBeginning looks at a flow that begins.
func (s *gramSimulation) lookAtBeginning(f *Flow) {
	if s.over.NoDatagramFlows {
		s.fail("a flow begins, and memory is short")
	}
	if s.drain.over && s.relistens == 0 { // a listener that was closed before it may still take clients
		s.fail("a flow begins, and the drain's time is over")
	}
	x, d := &s.begins, f.owner.(*datagrams)
	i, now := d.loop.Index, int64(d.loop.Now/tick)
	if x.process != s.processes {
		*x = gramBegins{process: s.processes}
	}
	if now != x.tick[i] {
		x.tick[i], x.n[i] = now, 0
	}
	x.n[i]++
	most := s.mostBegin()
	if x.n[i] > most {
		s.fail("%d flows have begun on loop %d within %v, and %d may", x.n[i], i, time.Duration(tick), most)
	}
	s.mark2(markFull, x.n[i] == most)
}

// between returns what peers and the network do between two calls of the relay: mostly nothing.
func (s *gramSimulation) between(r *rand.Rand) func() {
	return func() {
		if len(s.clients) == 0 || s.core == nil || s.settling || r.IntN(4) > 0 {
			return
		}
		i, size := r.IntN(len(s.clients)), gramLengths[r.IntN(len(gramLengths))]
		switch r.IntN(8) {
		case 0, 1:
			if n := s.world.PacketsInFlight(); n > 0 {
				s.world.DeliverPacket(r.IntN(n))
			}
		case 2, 3:
			if s.routesMiss() && len(s.unresolved) > 200 {
				return // each attempt in vain is some calls, between which there would be more and more datagrams
			}
			s.clientSends(i, size, 1+r.IntN(3), 0, r.IntN(2) == 0, uint8(r.IntN(8)))
		case 4:
			if len(s.heard) > 0 {
				s.upstreamAnswers(r.IntN(len(s.heard)), size, 1, 0, false, 0)
			}
		case 5:
			s.clientReads(i, 3)
		case 6:
			s.upstreamReads(r.IntN(2), 3)
		case 7:
			s.successorReads(3)
		}
	}
}

// closeGrams closes the engine, and checks that nothing is left.
func (s *gramSimulation) closeGrams() {
	s.process.Fault, s.faults, s.keeper.fails, s.diesNext, s.closing = nil, nil, 0, 0, true
	s.process.DieAfter(0)
	if s.keeper.real != nil {
		s.keeper.real.leaves()
	}
	if err := (&Engine{s.core}).Close(); err != nil {
		s.fail("close: %v", err)
	}
	for _, f := range s.flows {
		if f.records != 1 && !f.lost && s.unknown == 0 {
			s.fail("flow %d has %d records after the engine was closed", f.number, f.records)
		}
	}
	for _, x := range s.closings {
		if x.processes == s.processes && waits(&x.wg) {
			s.fail("a listener was closed, and the engine, and whoever waits for the listener would wait for ever")
		}
	}
	s.keeper.closeDropped()
	if len(s.keeper.held) != 0 || s.process.Open() != s.keeper.connections() {
		s.fail("%d things are held after the engine was closed, and %d descriptors are open", len(s.keeper.held), s.process.Open())
	}
	if n := s.core.datagrams.flows.Load() + s.core.datagrams.own.Load(); n != 0 {
		s.fail("%d flows and own sockets are left after the engine was closed", n)
	}
	s.core = nil
}
