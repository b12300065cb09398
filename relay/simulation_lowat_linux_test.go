package relay

import (
	"testing"
	"time"
)

// TestSimulateLowWaterMark streams until the source has a low-water mark, which takes more than a schedule does: the timer finds
// what stays below the mark, and the next process takes the mark away.
func TestSimulateLowWaterMark(t *testing.T) {
	s := newSimulation(simSettings{})
	defer s.finish()
	s.connect(0, 0)
	s.settle(false)
	f := s.flows[0]
	pass := func(n int) {
		s.send(f, up, n)
		s.turn()
		s.read(f, sideUpstream, 1<<20)
	}
	for range 200 { // 25 MB
		pass(200_000)
	}
	for range 20 {
		pass(10_000)
	}
	s.turn()
	lagging := false
	s.core.streams.all[0].slab.Each(func(f *streamFlow) { lagging = f.half[up].Lagging() })
	if !lagging || s.wrong != nil {
		t.Fatalf("the source has no mark: %v\n%s", s.wrong, s.describe())
	}
	late := func() int64 { return f.half[up].sent - f.half[up].got }
	if pass(10_000); late() != 10_000 {
		t.Errorf("%d bytes below the mark are late, rather than 10000", late())
	}
	s.world.Sleep(2 * time.Millisecond)
	s.turn()
	if s.read(f, sideUpstream, 1<<20); late() != 0 {
		t.Errorf("the timer has left %d bytes\n%s", late(), s.describe())
	}
	s.kill()
	for range 3 {
		if pass(1000); late() != 0 {
			t.Fatalf("%d bytes are late in the next process\n%s", late(), s.describe())
		}
	}
	s.settle(true)
	if s.check(); s.wrong != nil {
		t.Error(s.wrong)
	}
}
