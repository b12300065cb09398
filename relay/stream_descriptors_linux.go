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
	// starveMost is how long a flow waits for a descriptor, at least. If the waiting
	// flows hold all descriptors themselves, some of them have to end.
	starveMost = time.Second
	// starveBurst is how many flows are tried before others have their turn.
	starveBurst = 32
	// Loops that wait for descriptors are woken when there are enough for one flow per
	// wakeShare descriptors of the budget, or for wakeMost.
	wakeShare, wakeMost = 128, 16
)

// acceptsSingly reports whether the loop rests for want of descriptors alone. Then each flow that
// ends makes room for one client, which is accepted without a word to epoll: to watch the ports
// again, find that another client waits, and rest again, costs more than the client itself.
func (s *streams) acceptsSingly() bool {
	return s.resting > 0 && s.short && !s.handing && len(s.closingPorts) == 0 && s.share.starved.Load() == 0 && !s.share.gate.Load()
}

// turnShort accepts as many clients as there are descriptors for, while the loop rests for want of
// them. It leaves to others what is for them, and after a burst what comes next, even if they have as
// many flows. When nobody waits any more, it ends the rest.
func (s *streams) turnShort() {
	if !s.retryShort {
		return
	}
	s.retryShort = false
	if !s.acceptsSingly() {
		return
	}
	s.rests.Store(true) // from now on whoever frees descriptors says so again
	empty := 0
	for range acceptBurst {
		if empty >= len(s.ports) {
			s.setHungry(false)
			s.wakePorts()
			s.wakeOthers()
			return
		}
		turn := s.singly >= acceptBurst && s.othersHungry() // another loop's
		if turn || !s.takeFree() {
			s.setHungry(true)
			if b := s.descriptors.budget; turn || b.free.Load()-b.forDatagrams() >= flowDescriptors {
				s.singly = 0
				s.wakeOthers()
			}
			return
		}
		s.firstPort++
		switch e := s.acceptOne(s.ports[s.firstPort%len(s.ports)]); {
		case e == 0:
			empty = 0
			s.singly++
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
	s.retryShort = true
}

// takeClient takes the descriptors of a flow from the budget.
func (s *streams) takeClient() bool {
	return s.descriptors.takeAhead(flowDescriptors, s.loop.Now) || s.takeFree()
}

// takeFree takes the descriptors of a flow where there are few. It leaves to a hungry loop what
// that needs to have as many flows.
func (s *streams) takeFree() bool {
	d := s.descriptors
	if !d.takeAbove(flowDescriptors, d.budget.forDatagrams()+s.hungrier()) {
		return false
	}
	s.setHungry(false)
	return true
}

// makeRoom takes the descriptors of a flow for which sockets that rest and idle pipes make
// room. If they do not, the loop is hungry.
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
	s.setHungry(true)
	for _, other := range b.all {
		if other != s.descriptors && other.dispensable() && other.asked.CompareAndSwap(false, true) {
			other.loop.Post(loop.Request{Do: other.giveUp})
		}
	}
	return false
}

// hungrier is how many descriptors hungry loops need to have as many flows as this one.
func (s *streams) hungrier() (n int64) {
	if s.share.hungry.Load() == 0 {
		return 0
	}
	own := s.load.Load()
	for _, other := range s.share.all {
		if other != s && other.hungry.Load() {
			n += max(own-other.load.Load(), 0) / 2 * flowDescriptors
		}
	}
	return n
}

// othersHungry reports whether another loop is hungry.
func (s *streams) othersHungry() bool {
	n := s.share.hungry.Load()
	if s.hungry.Load() {
		n--
	}
	return n > 0
}

// setHungry notes whether the budget had no descriptors.
func (s *streams) setHungry(is bool) {
	if s.hungry.Load() == is {
		return
	}
	s.hungry.Store(is)
	if is {
		s.share.hungry.Add(1)
	} else {
		s.share.hungry.Add(-1)
	}
}

// turnHungry ends the hunger of a loop that was woken and has no client.
func (s *streams) turnHungry() {
	if s.resting > 0 || !s.hungry.Load() {
		return
	}
	if s.awake++; s.awake > 1 {
		s.setHungry(false)
		s.endRests()
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

// starve makes f wait for a descriptor.
func (s *streams) starve(f *streamFlow) {
	s.descriptors.budget.full(s.loop.Now)
	if f.hungUp {
		s.end(f, CauseClientGone, nil)
		return
	}
	f.state = streamStarved
	s.starved.push(starvedRef{f.ref(), s.loop.Now})
	s.share.starved.Add(1)
	s.restPorts(false)
	s.rearm(f)
}

// turnStarved dials for the flows that wait for a descriptor, as long as there are any.
func (s *streams) turnStarved() {
	for range starveBurst {
		if !s.retryStarved {
			return
		}
		if s.starved.len() == 0 {
			s.retryStarved = false
			return
		}
		w := s.starved.first()
		f := s.slab.Find(w.ref)
		if f == nil || f.state != streamStarved {
			s.starved.pop() // it has ended
			continue
		}
		since := w.since
		f.state, f.since = streamConnecting, s.loop.Now
		err := s.dial(f)
		if noDescriptors(err) && s.loop.Now-since < starveMost {
			f.state = streamStarved
			s.retryStarved = false
			s.restPorts(false)
			return
		}
		s.starved.pop()
		s.unstarved()
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

// unstarved notes that a flow does not wait for a descriptor any more. If it was the last
// one, all loops accept again.
func (s *streams) unstarved() {
	if s.share.starved.Add(-1) == 0 {
		s.endRests()
	}
}
