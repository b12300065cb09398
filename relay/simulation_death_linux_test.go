package relay

import "testing"

// TestDeathAtEachCall runs one script again and again: flows that copy and splice, of which one is half closed and one is reset. The
// process dies in front of its first call, then behind it, and so on until it lives. The next process lives, or dies at an early place
// of its own.
func TestDeathAtEachCall(t *testing.T) {
	for kind, agains := range map[int][]int{0: {0, 4, 11, 18}, 0b101: {0, 11}, 0b001: {0}, 0b100: {0}} { // of the networks of both sides
		for _, again := range agains {
			t.Logf("kind %#b: %d places", kind, deathAtEachCall(t, kind, again))
		}
	}
}

func deathAtEachCall(t *testing.T, kind, again int) (places int) {
	for place := 1; ; place++ {
		s := newSimulation(simSettings{})
		s.process.DieAfter(place)
		s.diesNext = again
		for range 3 {
			s.connect(kind, 0)
			s.turn()
			s.accept()
		}
		for range 6 {
			s.send(s.flows[0], up, 100_000) // spliced
			s.send(s.flows[0], down, 100)   // copied
			s.send(s.flows[2], up, 5000)
			s.turn()
			s.read(s.flows[0], sideUpstream, 1<<20)
		}
		s.end(s.flows[0], sideClient)
		s.turn()
		s.send(s.flows[0], down, 100_000) // half closed
		s.close(s.flows[1], sideUpstream, true)
		s.turn()
		died := s.deaths > 0
		s.settle(false)
		s.quiet()
		s.settle(true)
		s.check()
		s.finish()
		if s.wrong != nil {
			t.Fatalf("kind %#b, the process died at place %d, and the next at %d: %v\n%s", kind, place, again, s.wrong, s.describe())
		}
		if !died {
			return place - 1
		}
	}
}
