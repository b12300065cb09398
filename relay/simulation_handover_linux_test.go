package relay

import (
	"slices"
	"time"
)

// kill kills the process between two calls.
func (s *simulation) kill() {
	s.died()
	s.begin()
}

// handOver implements simRelay.
func (s *simulation) handOver(said func(err error)) bool {
	e := &Engine{s.core}
	early, began, busy := s.earlyTLS(), s.world.Elapsed(), s.keeper.fails > 0 || s.keeper.real != nil
	lives := s.lives(func() { said(e.HandOver(simContext)) })
	if took := s.world.Elapsed() - began; lives && early == 0 && !busy && took > simHandsOver {
		s.fail("a process has handed over after %v, and all its flows with TLS relayed", took)
	}
	if lives {
		if s.core.state != closed {
			return false // the holder has failed
		}
		s.upgrades++
		s.lookAtHandedPorts()
		s.begun = s.leaves(true)
		for _, f := range s.left() {
			f.kept = true
		}
		s.drop(true)
	}
	s.begin()
	return lives
}

// simHandsOver is how long a process takes at the most that hands over, whose holder is not busy and which waits for no handshake: each call takes a while.
const simHandsOver = 50 * time.Millisecond

// earlyTLS returns how many flows whose TLS ends or begins here do not relay yet.
func (s *simulation) earlyTLS() (n int) {
	for _, st := range s.core.streams.all {
		st.slab.Each(func(f *streamFlow) {
			if f.tls != nil && f.state != streamRelaying {
				n++
			}
		})
	}
	return n
}

// refuses implements simRelay: the flows of which the keeper has not all get lost.
func (s *simulation) refuses(key holdKey) {
	for _, f := range s.flows {
		if f.records == 0 && key == newHoldKey(holdFlow, f.loop, uint64(f.ref.Slot), uint64(f.ref.Gen)) {
			s.begun.lose(f)
		}
	}
	for _, l := range s.begun.left {
		if kindOf(key) == holdPipe && slices.Contains(l.pipes[:], uint32(numberOf(key))+1) {
			s.begun.lose(l.flow)
		}
	}
}

// lose lets a flow get lost.
func (x *begunWith) lose(f *simFlow) {
	f.crashed, x.some = true, true
	for i := range x.left {
		if l := &x.left[i]; l.flow == f && l.held > 0 {
			x.holding, x.bytes, l.held = x.holding-1, x.bytes-l.held, 0
		}
	}
}
