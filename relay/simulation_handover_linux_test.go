package relay

import "errors"

// kill kills the process between two calls.
func (s *simulation) kill() {
	s.died()
	s.begin()
}

// upgrade hands over to a next process, or asks the keeper for that.
func (s *simulation) upgrade(how int) bool {
	if s.keeper.real != nil {
		return s.keeper.real.ask(how)
	}
	return s.handOver(func(err error) {
		if err != nil && !errors.Is(err, errSimHolder) {
			s.fail("hand over: %v", err)
		}
	})
}

// handOver hands over to a next process, unless the holder fails. What came of it, said is told in the process.
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
		s.drop()
	}
	s.begin()
	return lives
}
