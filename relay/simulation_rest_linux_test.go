package relay

import (
	"testing"
	"time"

	"github.com/penstock/penstock/internal/simkernel"
	"github.com/penstock/penstock/internal/sys"
)

// rest lets time pass from time-out to time-out of the loop, as it does on a machine that has nothing else to do, and returns how often the
// loop has waited, and how many calls of a kind it has made.
func (s *simulation) rest(d time.Duration, kinds ...simkernel.Call) (waits, calls int) {
	fault := s.process.Fault
	s.process.Fault = func(c simkernel.Call, n int) (int, sys.Errno) {
		for _, kind := range kinds {
			if c == kind {
				calls++
			}
		}
		if fault != nil {
			return fault(c, n)
		}
		return n, 0
	}
	defer func() { s.process.Fault = fault }()
	for end := s.world.Elapsed() + d; waits < 10_000; {
		s.turn()
		waits++
		until := s.process.WaitsUntil()
		if until < 0 || until > end {
			s.world.Sleep(end - s.world.Elapsed())
			break
		}
		s.world.Sleep(max(0, until-s.world.Elapsed()))
	}
	return waits, calls
}

// failing makes a kind of call fail.
func failing(kind simkernel.Call, e sys.Errno) func(simkernel.Call, int) (int, sys.Errno) {
	return func(c simkernel.Call, n int) (int, sys.Errno) {
		if c == kind {
			return 0, e
		}
		return n, 0
	}
}

// A loop whose flows rest sleeps: it asks the kernel for nothing, whatever it did a moment ago, and whatever does not go on.
func TestSimulateRest(t *testing.T) {
	const hour = time.Hour
	exchangeUp := func(s *simulation, f *simFlow, n int) {
		s.send(f, up, n)
		s.turn()
		s.read(f, sideUpstream, 1<<20)
	}
	exchange := func(s *simulation, f *simFlow, n int) {
		for range 50 {
			exchangeUp(s, f, n)
			s.send(f, down, n)
			s.turn()
			s.read(f, sideClient, 1<<20)
		}
	}
	moving := []simkernel.Call{"recv", "splice", "send", "read-pipe"}
	for _, c := range []struct {
		name         string
		idle         time.Duration
		setUp        func(*simulation, *simFlow)
		kinds        []simkernel.Call
		waits, calls int // at most, in 300 ms
	}{
		{"after an exchange", hour, func(s *simulation, f *simFlow) { exchange(s, f, 10) }, moving, 1, 0},
		{"after bulk", hour, func(s *simulation, f *simFlow) { exchange(s, f, 200_000) }, moving, 1, 0},
		{"a reader has stopped", hour, func(s *simulation, f *simFlow) {
			exchange(s, f, 200_000)
			for range 20 {
				s.send(f, up, 1<<20)
				s.turn()
			}
		}, moving, 1, 0},
		{"less than the low-water mark has come", hour, func(s *simulation, f *simFlow) {
			lagging := false
			for range 200 { // 25 MB
				exchangeUp(s, f, 200_000)
			}
			for range 20 {
				exchangeUp(s, f, 10_000)
			}
			s.core.streams.all[0].slab.Each(func(f *streamFlow) { lagging = f.half[up].Lagging() })
			if !lagging {
				s.fail("the source has no mark")
			}
			s.send(f, up, 100)
		}, moving, 1, 0},
		{"one side has ended", hour, func(s *simulation, f *simFlow) { s.end(f, sideClient) }, moving, 2, 0},
		{"no descriptor for a client", hour, func(s *simulation, f *simFlow) {
			s.process.Fault = failing("accept", sys.EMFILE)
			s.connect(0, 0)
		}, []simkernel.Call{"accept"}, 2, 1},
		{"no descriptor for an upstream", hour, func(s *simulation, f *simFlow) {
			s.core.streams.paused.most = hour
			s.process.Fault = failing("socket", sys.EMFILE)
			s.connect(0, 0)
			s.turn()
			s.connect(0, 0)
		}, []simkernel.Call{"accept", "socket"}, 2, 0},
		{"a listener fails", hour, func(s *simulation, f *simFlow) {
			s.process.Fault = failing("accept", sys.EINVAL)
			s.connect(0, 0)
		}, []simkernel.Call{"accept"}, 2, 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSimulation(simSettings{idle: c.idle})
			defer s.finish()
			s.connect(0, 0)
			s.settle(false)
			c.setUp(s, s.flows[0])
			s.rest(100 * time.Millisecond) // what is still to be done
			if waits, calls := s.rest(300*time.Millisecond, c.kinds...); waits > c.waits || calls > c.calls {
				t.Errorf("in 300 ms of rest, the loop has waited %d times, %d at most, and made %d calls of %v, %d at most", waits, c.waits, calls, c.kinds, c.calls)
			} else {
				t.Logf("%d waits, %d calls of %v", waits, calls, c.kinds)
			}
			s.settle(true)
			if s.check(); s.wrong != nil {
				t.Error(s.wrong)
			}
		})
	}
}
