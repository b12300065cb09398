package relay

import "slices"

// kill kills the process between two calls.
func (s *simulation) kill() {
	s.died()
	s.begin()
}

// handOver implements simRelay.
func (s *simulation) handOver(said func(err error)) bool {
	e := &Engine{s.core}
	lives := s.lives(func() { said(e.HandOver(simContext)) })
	if lives {
		if s.core.state != closed {
			return false // the holder has failed
		}
		s.upgrades++
		s.begun = s.leaves(true)
		for _, f := range s.left() {
			f.kept = true
		}
		s.drop(true)
	}
	s.begin()
	return lives
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
