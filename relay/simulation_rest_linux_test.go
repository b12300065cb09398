package relay

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/simkernel"
	"github.com/penstock/penstock/internal/sys"
)

// rest lets time pass from time-out to time-out of the loops, as it does on a machine that has nothing else to do, and returns how often the
// busiest loop has waited, and how many calls of some kinds they have made.
func (s *simulation) rest(d time.Duration, kinds ...simkernel.Call) (waits, calls int) {
	fault := s.process.Fault
	s.process.Fault = func(c simkernel.Call, n int) (int, sys.Errno) {
		if slices.Contains(kinds, c) {
			calls++
		}
		if fault != nil {
			return fault(c, n)
		}
		return n, 0
	}
	defer func() { s.process.Fault = fault }()
	end := s.world.Elapsed() + d
	due, waited := make([]time.Duration, len(s.core.loops)), make([]int, len(s.core.loops)) // when each loop has its next turn
	for slices.Max(waited) < 10_000 {
		for i := range due {
			if due[i] <= s.world.Elapsed() {
				s.turnLoop(i)
				waited[i]++
				if due[i] = s.process.WaitsUntil(); due[i] < 0 {
					due[i] = end + 1
				}
			}
		}
		next := slices.Min(due)
		s.world.Sleep(max(0, min(next, end)-s.world.Elapsed()))
		if next > end {
			break
		}
	}
	return slices.Max(waited), calls
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
	exchangeUp := func(s *simulation, n int) {
		s.send(s.flows[0], up, n)
		s.turn()
		s.read(s.flows[0], sideUpstream, 1<<20)
	}
	exchange := func(s *simulation, n int) {
		for range 50 {
			exchangeUp(s, n)
			s.send(s.flows[0], down, n)
			s.turn()
			s.read(s.flows[0], sideClient, 1<<20)
		}
	}
	moving := []simkernel.Call{"recv", "splice", "send", "read-pipe"}
	type state struct {
		name         string
		setUp        func(s *simulation, kind int)
		kinds        []simkernel.Call
		waits, calls int // at most, in 300 ms
	}
	states := []state{
		{"after an exchange", func(s *simulation, _ int) { exchange(s, 10) }, moving, 1, 0},
		{"after bulk", func(s *simulation, _ int) { exchange(s, 200_000) }, moving, 1, 0},
		{"a reader has stopped", func(s *simulation, _ int) {
			exchange(s, 200_000)
			for range 20 {
				s.send(s.flows[0], up, 1<<20)
				s.turn()
			}
		}, moving, 1, 0},
		{"less than the low-water mark has come", func(s *simulation, _ int) {
			for range 200 { // 25 MB
				exchangeUp(s, 200_000)
			}
			for range 20 {
				exchangeUp(s, 10_000)
			}
			lagging := false
			for _, st := range s.core.streams.all {
				st.slab.Each(func(f *streamFlow) { lagging = lagging || f.half[up].Lagging() })
			}
			if lagging == s.flows[0].unix[sideClient] { // only TCP has marks
				s.fail("the source has a mark: %v", lagging)
			}
			s.send(s.flows[0], up, 100)
		}, moving, 1, 0},
		{"one side has ended", func(s *simulation, _ int) { s.end(s.flows[0], sideClient) }, moving, 2, 0},
		{"no descriptor for an upstream", func(s *simulation, kind int) {
			s.core.streams.paused.most = simRestIdle
			s.process.Fault = failing("socket", sys.EMFILE)
			s.connect(kind, 0)
			s.turn()
			s.connect(kind, 0)
		}, []simkernel.Call{"accept", "socket"}, 2, 0},
		{"a listener fails", func(s *simulation, kind int) {
			s.process.Fault = failing("accept", sys.EINVAL)
			s.connect(kind, 0)
		}, []simkernel.Call{"accept"}, 2, 40},
	}
	for _, e := range []sys.Errno{sys.EMFILE, sys.ENFILE, sys.ENOBUFS, sys.ENOMEM} {
		states = append(states, state{fmt.Sprintf("no client can be accepted, errno %d", int(e)), func(s *simulation, kind int) {
			s.process.Fault = failing("accept", e)
			s.connect(kind, 0)
		}, []simkernel.Call{"accept"}, 2, 2})
	}
	for _, c := range states {
		for kind, sockets := range map[int]string{0: "tcp to tcp", 1: "unix to tcp", 4: "tcp to unix", 5: "unix to unix"} {
			for loops := 1; loops <= 2; loops++ {
				t.Run(fmt.Sprintf("%s/%s/loops=%d", c.name, sockets, loops), func(t *testing.T) {
					s := newSimulation(simSettings{idle: simRestIdle, loops: loops})
					defer s.finish()
					s.connect(kind, 0)
					s.settle(false)
					c.setUp(s, kind)
					s.rest(100 * time.Millisecond) // what is still to be done
					if waits, calls := s.rest(300*time.Millisecond, c.kinds...); waits > c.waits || calls > c.calls {
						t.Errorf("in 300 ms of rest, a loop has waited %d times, %d at most, and there were %d calls of %v, %d at most", waits, c.waits, calls, c.kinds, c.calls)
					}
					s.settle(true)
					if s.check(); s.wrong != nil {
						t.Error(s.wrong)
					}
				})
			}
		}
	}
}

// simRestIdle is longer than any rest here.
const simRestIdle = time.Hour
