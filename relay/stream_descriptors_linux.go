package relay

import (
	"time"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/sys"
)

// A client is accepted when the budget has a descriptor for it and one for its upstream.
// Until then it waits in the accept queue.
//
// If the kernel refuses one all the same, a flow waits for it: neither the flow nor
// the upstream is at fault, and other flows end. No loop accepts meanwhile, so that the
// descriptors that become free go to the flows that wait, in their order, and later clients
// stay in the accept queue. Otherwise the client that took the last descriptor would be
// reset, and so would the next one.

const (
	// shortMost is how long a flow waits for a descriptor, at least. If the waiting
	// flows hold all descriptors themselves, some of them have to end.
	shortMost = time.Second
	// shortBurst is how many flows are tried before others have their turn.
	shortBurst = 32
	// Loops that wait for descriptors are woken when there are enough for one flow per
	// wakeShare descriptors of the budget, or for wakeMost.
	wakeShare, wakeMost = 128, 16
)

// acceptsSingly reports whether the loop is paused for want of descriptors alone. Then each flow that
// ends makes room for one client, which is accepted without a word to epoll: to watch the ports
// again, find that another client waits, and pause again, costs more than the client itself.
func (s *streams) acceptsSingly() bool {
	return s.pause.until > 0 && s.pause.budget && !s.handing && len(s.closingPorts) == 0 && s.share.short.flows.Load() == 0 && !s.share.gate.Load()
}

// turnSingly accepts as many clients as there are descriptors for, while the loop is paused for want of
// them. It leaves to others what is for them, and after a burst what comes next, even if they have as
// many flows. When nobody waits any more, it ends the pause.
func (s *streams) turnSingly() {
	if !s.pause.again {
		return
	}
	s.pause.again = false
	if !s.acceptsSingly() {
		return
	}
	s.pause.asleep.Store(true) // from now on whoever frees descriptors says so again
	empty := 0
	for range acceptBurst {
		if empty >= len(s.ports) {
			s.setShort(false)
			s.watchPorts()
			s.wakeOthers()
			return
		}
		turn := s.pause.singly >= acceptBurst && s.othersShort() // another loop's
		if turn || !s.takeFree() {
			s.setShort(true)
			if b := s.descriptors.budget; turn || b.free.Load()-b.forDatagrams() >= flowDescriptors {
				s.pause.singly = 0
				s.wakeOthers()
			}
			return
		}
		s.pause.first++
		switch e := s.acceptOne(s.ports[s.pause.first%len(s.ports)]); {
		case e == 0:
			empty = 0
			s.pause.singly++
		case e == sys.EAGAIN:
			empty++
		default: // the descriptors were promised in vain, or the connection has failed
			s.loopStats.AcceptErrors++
			if noDescriptors(e) {
				s.descriptors.budget.full(s.loop.Now)
			}
			empty++
		}
	}
	s.pause.again = true
}

// takeClient takes the descriptors of a flow from the budget.
func (s *streams) takeClient() bool {
	return s.descriptors.takeAhead(flowDescriptors, s.loop.Now) || s.takeFree()
}

// takeFree takes the descriptors of a flow where there are few. It leaves to a loop that is short what
// that needs to have as many flows.
func (s *streams) takeFree() bool {
	d := s.descriptors
	if !d.takeAbove(flowDescriptors, d.budget.forDatagrams()+s.forShort()) {
		return false
	}
	s.setShort(false)
	return true
}

// makeRoom takes the descriptors of a flow for which sockets that rest and idle pipes make
// room. If they do not, the loop is short.
func (s *streams) makeRoom() bool {
	b := s.descriptors.budget
	for range giveUpBurst {
		if b.free.Load()-b.forDatagrams() >= flowDescriptors {
			break // they are another loop's
		}
		if !b.measure(s.loop.Now, measureSoon) && !s.loop.Spare() && !b.closeIdlePipes() {
			break
		}
		if s.takeFree() {
			return true
		}
	}
	s.setShort(true)
	for _, other := range b.all {
		if other != s.descriptors && other.dispensable() && other.asked.CompareAndSwap(false, true) {
			other.loop.Post(loop.Request{Do: other.giveUp})
		}
	}
	return false
}

// forShort is how many descriptors those loops need that are short, to have as many flows as this one.
func (s *streams) forShort() (n int64) {
	if s.share.short.loops.Load() == 0 {
		return 0
	}
	own := s.load.Load()
	for _, other := range s.share.all {
		if other != s && other.short.loop.Load() {
			n += max(own-other.load.Load(), 0) / 2 * flowDescriptors
		}
	}
	return n
}

// othersShort reports whether another loop is short.
func (s *streams) othersShort() bool {
	n := s.share.short.loops.Load()
	if s.short.loop.Load() {
		n--
	}
	return n > 0
}

// setShort notes whether the budget had no descriptors.
func (s *streams) setShort(is bool) {
	if s.short.loop.Load() == is {
		return
	}
	s.short.loop.Store(is)
	if is {
		s.share.short.loops.Add(1)
	} else {
		s.share.short.loops.Add(-1)
	}
}

// turnNotShort notes that a loop which was woken and has no client is not short.
func (s *streams) turnNotShort() {
	if s.pause.until > 0 || !s.short.loop.Load() {
		return
	}
	if s.short.turns++; s.short.turns > 1 {
		s.setShort(false)
		s.endPauses()
	}
}

// enough reports whether loops that wait for descriptors are woken: for each single flow that
// would cost too much.
func (s *streams) enough() bool {
	b := s.descriptors.budget
	n := b.free.Load() - b.forDatagrams()
	for _, d := range b.all {
		n += d.resting.Load()
	}
	return n >= flowDescriptors*min(max(b.total.Load()/wakeShare, 1), wakeMost)
}

// noDescriptors reports whether err means that the process or the system has no
// descriptor left.
func noDescriptors(err error) bool { return err == sys.EMFILE || err == sys.ENFILE }

// waitForDescriptor makes f wait for a descriptor.
func (s *streams) waitForDescriptor(f *streamFlow) {
	s.descriptors.budget.full(s.loop.Now)
	if f.hungUp {
		s.end(f, CauseClientGone, nil)
		return
	}
	f.state = streamShort
	s.short.flows.push(shortRef{f.ref(), s.loop.Now})
	s.share.short.flows.Add(1)
	s.pausePorts(false)
	s.rearm(f)
}

// turnShortFlows dials for the flows that wait for a descriptor, as long as there are any.
func (s *streams) turnShortFlows() {
	for range shortBurst {
		if !s.short.again {
			return
		}
		if s.short.flows.len() == 0 {
			s.short.again = false
			return
		}
		w := s.short.flows.first()
		f := s.slab.Find(w.ref)
		if f == nil || f.state != streamShort {
			s.short.flows.pop() // it has ended
			continue
		}
		since := w.since
		f.state, f.since = streamConnecting, s.loop.Now
		err := s.dial(f)
		if noDescriptors(err) && s.loop.Now-since < shortMost {
			f.state = streamShort
			s.short.again = false
			s.pausePorts(false)
			return
		}
		s.short.flows.pop()
		s.notShort()
		switch {
		case err == nil:
			s.rearm(f)
		case noDescriptors(err):
			s.attemptFailed(f, err)
			s.turnAway(f, CauseNoDescriptors, err)
		default:
			s.connectFailed(f, err)
		}
	}
}

// notShort notes that a flow does not wait for a descriptor any more. If it was the last
// one, all loops accept again.
func (s *streams) notShort() {
	if s.share.short.flows.Add(-1) == 0 {
		s.endPauses()
	}
}
