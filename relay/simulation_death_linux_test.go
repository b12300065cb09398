package relay

import (
	"testing"

	"github.com/penstock/penstock/internal/ledger"
	"github.com/penstock/penstock/internal/sys"
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
			t.Logf("kind %#b: %d places", kind, deathAtEachCall(t, kind, again, nil, deathScript))
		}
	}
}

// TestDeathWhileAsking does so while a socket is asked for its error, because the direction that would find it cannot read on: a
// client closes with bytes that it has not read, and what it has sent waits for its upstream.
func TestDeathWhileAsking(t *testing.T) {
	for _, kind := range []int{0, 0b001} {
		t.Logf("kind %#b: %d places", kind, deathAtEachCall(t, kind, 0, nil, func(s *simulation) {
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

// TestDeathBetweenStores: a process dies when a send has failed and the record says that the half has failed, and not yet that what it had in its hands is
// dropped. No call lies between these stores, so the test does the first one itself.
func TestDeathBetweenStores(t *testing.T) {
	sends := map[ledger.Phase]int{ledger.PhaseRead: 0, ledger.PhaseFlushing: 0, ledger.PhaseEmptying: 0} // what was in its hands, and how often
	fails := func(s *simulation) {
		k := s.core.streams.all[0].keep
		note := k.turn.Note()
		r, fds := k.ledger.Record(note.Slot), s.keeper.held[k.flowKey(ref{Slot: note.Slot, Gen: note.Generation})].FDs
		if r.Generation() != note.Generation || r.State() != recordRelaying || len(fds) != 2 {
			return
		}
		c, _ := s.keeper.process.TCPCounts(fds[1-note.Half])
		if _, ok := sends[note.Phase]; ok && c.State == sys.TCPClose {
			r.SetFlags(r.Flags() | recordFailed<<note.Half)
			sends[note.Phase]++
		}
	}
	for _, n := range []int{100, 5_000, 100_000} { // read, and then held in a block, and spliced
		deathAtEachCall(t, 0, 0, fails, func(s *simulation) {
			for range 80 {
				s.send(s.flows[0], up, n)
				s.turn()
			}
			s.read(s.flows[0], sideUpstream, 1<<20)
			s.send(s.flows[0], up, n)
			s.process.Before = func() { // the upstream resets its connection in front of a send
				if _, ok := sends[s.core.streams.all[0].keep.turn.Note().Phase]; ok {
					s.close(s.flows[0], sideUpstream, true)
				}
			}
			s.turn()
			s.process.Before = nil
		})
	}
	for phase, n := range sends {
		if n == 0 {
			t.Errorf("no process has died in phase %d of a half whose destination was reset", phase)
		}
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
// one at its place again; 0: never. dying is called when a process has died.
func deathAtEachCall(t *testing.T, kind, again int, dying, script func(*simulation)) (places int) {
	for place := 1; ; place++ {
		s := newSimulation(simSettings{})
		s.process.DieAfter(place)
		s.diesNext = again
		if dying != nil {
			s.dying = func() { dying(s) }
		}
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
