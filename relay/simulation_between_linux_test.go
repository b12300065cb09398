package relay

import "math/rand/v2"

// bulk lets a peer stream for some turns, and the other one read. It reports whether something has arrived.
func (s *simulation) bulk(f *simFlow, side, turns int) bool {
	before := f.half[side].got
	for range turns {
		s.send(f, side, 100_000)
		s.turn()
		for s.world.InFlight() > 0 {
			s.world.Deliver(0, 1<<20)
		}
		s.accept()
		s.turn()
		s.read(f, 1-f.sender(1-side), 1<<18)
	}
	return f.half[side].got > before
}

// between returns what peers and the network do between two calls of the relay: mostly nothing.
func (s *simulation) between(r *rand.Rand) func() {
	return func() {
		if len(s.flows) == 0 || s.settling || r.IntN(4) > 0 {
			return
		}
		f, side, size := s.flows[r.IntN(len(s.flows))], r.IntN(2), simSizes[r.IntN(len(simSizes))]
		switch r.IntN(16) {
		case 0, 1, 2, 3, 4:
			if n := s.world.InFlight(); n > 0 {
				s.world.Deliver(r.IntN(n), size)
			}
		case 5, 6, 7, 8:
			s.read(f, side, size)
		case 9, 10, 11, 12:
			s.send(f, side, size)
		case 13, 14:
			s.accept()
		case 15:
			if r.IntN(8) == 0 {
				s.end(f, side)
			}
		}
	}
}
