package relay

import (
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

// TestDeathAtEachCall runs one script again and again: flows that copy and splice, of which one is half closed and one is reset. The
// process dies in front of its first call, then behind it, and so on until it lives. The next process lives, or dies at an early place
// of its own.
func TestDeathAtEachCall(t *testing.T) {
	for kind, agains := range map[int][]int{0: {0, 4, 11, 18}, 0b101: {0, 11}, 0b001: {0}, 0b100: {0}} { // of the networks of both sides
		if testnet.RaceEnabled { // each run is one goroutine
			agains = agains[:1]
		}
		for _, again := range agains {
			t.Logf("kind %#b: %d places", kind, deathAtEachCall(t, kind, again, deathScript))
		}
	}
}

// TestDeathWhileAsking does so while a socket is asked for its error, because the direction that would find it cannot read on: a
// client closes with bytes that it has not read, and what it has sent waits for its upstream.
func TestDeathWhileAsking(t *testing.T) {
	for _, kind := range []int{0, 0b001} {
		t.Logf("kind %#b: %d places", kind, deathAtEachCall(t, kind, 0, func(s *simulation) {
			f := s.flows[0]
			s.send(f, down, 100)
			for range 8 {
				s.send(f, up, 300_000)
				s.turn()
			}
			s.close(f, sideClient, true)
			s.turn()
			s.turn()
		}))
	}
}

func deathScript(s *simulation) {
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
}

// deathAtEachCall connects three clients and calls script, again and again. The process dies at one place more each time, and the next
// one at its place again; 0: never.
func deathAtEachCall(t *testing.T, kind, again int, script func(*simulation)) (places int) {
	for place := 1; ; place++ {
		s := newSimulation(simSettings{})
		s.process.DieAfter(place)
		s.diesNext = again
		for range 3 {
			s.connect(kind, 0)
			s.turn()
			s.accept()
		}
		script(s)
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
