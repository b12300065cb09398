package relay

import (
	"cmp"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/sys"
)

// A loop pauses, and accepts no clients, while descriptors or memory are missing: they wait in the accept queue. It says so in
// loopCounters.AcceptPauses and stats.Engine.LoopsPaused.

// pausePorts stops accepting until flows have ended or a while has passed, so that the
// loop does not spin while descriptors are short. short says that the budget has none,
// and not the kernel.
func (s *streams) pausePorts(short bool) {
	if s.pause.until > 0 {
		return
	}
	s.pause.until = s.loop.Now + s.share.paused.most
	s.pause.asleep.Store(true)
	if s.pause.budget = short; short {
		s.share.paused.budget.Add(1)
	}
	s.share.paused.loops.Add(1)
	for _, p := range s.ports {
		s.loop.Unwatch(p.fd)
	}
}

// endPause starts accepting again after a while, if there are descriptors. Flows that wait for one are tried again
// in any case, or end.
func (s *streams) endPause() {
	if s.pause.budget && s.short.flows.len() == 0 {
		again := s.loop.Now + s.share.paused.most
		if !s.takeFree() && !s.makeRoom() {
			s.pause.until = again
			return
		}
		s.descriptors.give(flowDescriptors)
		if s.acceptsSingly() {
			s.pause.until, s.pause.again = again, true
			return
		}
	}
	s.watchPorts()
}

// watchPorts starts accepting again. Each time another port is the first.
func (s *streams) watchPorts() {
	if s.pause.until == 0 {
		return
	}
	s.pause.until, s.short.turns = 0, 0
	s.short.again = true
	s.pause.asleep.Store(false)
	s.share.paused.loops.Add(-1)
	if s.pause.budget {
		s.pause.budget = false
		s.share.paused.budget.Add(-1)
	}
	s.pause.first++
	e := sys.Errno(0)
	for i := range s.ports {
		e = cmp.Or(e, s.watchPort(s.ports[(i+s.pause.first)%len(s.ports)]))
	}
	s.watched(e)
}

// endPauses makes the loops that share one table of descriptors accept again.
func (s *streams) endPauses() {
	paused := s.share.paused.loops.Load()
	switch {
	case paused == 0:
		return
	case s.acceptsSingly():
		s.pause.again = true // what it leaves is for the others
		return
	case paused == s.share.paused.budget.Load() && s.share.short.flows.Load() == 0 && !s.enough():
		return
	}
	s.watchPorts()
	s.wakeOthers()
}

// wakeOthers makes the other loops accept again that are paused.
func (s *streams) wakeOthers() {
	for _, other := range s.share.all {
		if other != s && other.pause.asleep.CompareAndSwap(true, false) {
			other.loop.Post(loop.Request{Do: other.wake})
		}
	}
}

// wake makes the loop accept again, for another one.
func (s *streams) wake() {
	if s.acceptsSingly() {
		s.pause.again = true
	} else {
		s.watchPorts()
	}
}
