package relay

import (
	"slices"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/simkernel"
	"github.com/penstock/penstock/internal/sys"
)

// Workers that linger in a simulation: a process that has handed over goes on with the TLS of its flows, which are the next one's, and has its turns
// behind those of that one. It ends when its last connection has, or dies before.

// simLingerer is such a process.
type simLingerer struct {
	process *simkernel.Process
	core    *core
	stepper *loop.Stepper
	ledgers int  // of the engine that has handed over: the process keeps their descriptors
	failed  bool // a connection has failed in it, for want of memory
}

// lingers is called when the process that hands over makes the engine that goes on.
func (s *simulation) lingers(c *core) {
	l := &simLingerer{process: s.process, core: c, stepper: loop.NewStepper(c.loops, func() { close(c.done) }), ledgers: len(s.core.loops)}
	s.lingerers = append(s.lingerers, l)
}

// exits ends the process, unless it has handed over and lingers.
func (s *simulation) exits(handedOver bool) {
	if n := len(s.lingerers); n > 0 && s.lingerers[n-1].process == s.process {
		l := s.lingerers[n-1]
		for _, f := range s.flows {
			if f.records == 0 && f.kept && (f.secure.began[sideClient] || f.secure.began[sideUpstream]) && f.lingerer == nil {
				f.lingerer, f.crashed, f.lingererDied = l, f.crashed || !handedOver, !handedOver
				s.seen.costs[lingerSplit]++
			}
		}
		if handedOver {
			l.process.DieAfter(0)
			for _, st := range l.core.streams.all { // it has taken its connections
				l.lookAt(st)
			}
			return
		}
		s.lingerers = s.lingerers[:n-1]
		forget(l.core)
	}
	s.process.Exit()
}

// Counted of processes that linger.
const (
	lingerSplit = "flows whose TLS stays in a process that lingers"
	lingerEnds  = "processes that linger until their last flow has ended"
	lingerDies  = "processes that die while they linger"
)

// turnLingerers is one turn of each loop of the processes that linger.
func (s *simulation) turnLingerers() {
	for _, l := range slices.Clone(s.lingerers) {
		for _, lo := range l.core.loops {
			if !s.lingererLives(l, func() { l.stepper.Turn(lo) }) {
				break
			}
			l.lookAt(l.core.streams.all[lo.Index])
		}
		if slices.Contains(s.lingerers, l) && l.core.flows() == 0 {
			s.lingererEnds(l)
		}
	}
}

func (s *simulation) lingererLives(l *simLingerer, do func()) (lives bool) {
	defer func() {
		if cause := recover(); cause != nil {
			died, ok := cause.(simkernel.Died)
			if !ok {
				panic(cause)
			}
			s.seen.deaths[died.Call]++
			s.lingererDies(l)
			lives = false
		}
	}()
	do()
	return true
}

// lingererDies ends a process that lingers: the flows whose TLS it has end as crashed.
func (s *simulation) lingererDies(l *simLingerer) {
	s.seen.costs[lingerDies]++
	for _, f := range s.flows {
		if f.lingerer == l {
			f.crashed, f.lingererDied = true, true
		}
	}
	s.dropLingerer(l)
}

// lookAt notes whether connections of a loop have failed.
func (l *simLingerer) lookAt(st *streams) {
	failed := func(c Cause) bool {
		return c == CauseClientFailed || c == CauseUpstreamFailed || c == CauseNoDescriptors
	}
	for c, n := range st.loopStats.Ended {
		l.failed = l.failed || n > 0 && failed(Cause(c))
	}
	st.slab.Each(func(f *streamFlow) { l.failed = l.failed || failed(f.cause) })
}

// lingererFails reports whether a flow's connection may have failed in a process that lingers, for want of memory: the process that has the flow
// learns of it later, or not at all if it has delivered everything by then.
func (s *simulation) lingererFails(f *simFlow) bool { return f.lingerer != nil && f.lingerer.failed }

// someLingererDies has one of them die at a place, or at once.
func (s *simulation) someLingererDies(n int) bool {
	if len(s.lingerers) == 0 {
		return false
	}
	l := s.lingerers[n/32%len(s.lingerers)]
	if n%8 == 0 {
		s.lingererDies(l)
	} else {
		l.process.DieAfter(1 + n%32)
	}
	return true
}

// lingererEnds looks at a process whose last flow has ended, which is what it waits for.
func (s *simulation) lingererEnds(l *simLingerer) {
	s.seen.costs[lingerEnds]++
	for _, st := range l.core.streams.all {
		x := st.loopStats
		if st.env.Held != 0 || st.slab.Live != 0 || x.BytesRead != x.BytesWritten+x.BytesDropped {
			s.fail("a process has lingered: %d bytes of buffers and %d flows are left, %d bytes read, %d written and %d dropped", st.env.Held, st.slab.Live, x.BytesRead, x.BytesWritten, x.BytesDropped)
		}
	}
	l.process.DieAfter(0)
	if err := l.core.close(); err != nil {
		s.fail("close what lingers: %v", err)
	}
	if n := l.process.Open() - s.keeper.connections(); n != l.ledgers {
		s.fail("a process that has lingered has %d descriptors open, beside %d of ledgers", n-l.ledgers, l.ledgers)
	}
	s.dropLingerer(l)
}

func (s *simulation) dropLingerer(l *simLingerer) {
	s.lingerers = slices.DeleteFunc(s.lingerers, func(x *simLingerer) bool { return x == l })
	forget(l.core)
	l.process.Exit()
	if s.keeper.real != nil {
		s.keeper.real.lingererEnded(l.process)
	}
}

// failCalls has calls fail, of all processes that relay; nil: none.
func (s *simulation) failCalls(fault func(simkernel.Call, int) (int, sys.Errno)) {
	s.process.Fault = fault
	for _, l := range s.lingerers {
		l.process.Fault = fault
	}
}

// calm has peers do nothing between two calls from now on, and no process die.
func (s *simulation) calm() {
	s.peersDo, s.process.Before = nil, nil
	for _, l := range s.lingerers {
		l.process.Before = nil
	}
}

// goesOn lets the handshakes of a process go on that hands over, and waits for them.
func (s *simulation) goesOn() {
	s.computeAll()
	for i, l := range s.core.loops {
		s.stepper.Turn(l)
		s.core.streams.all[i].slab.Each(func(f *streamFlow) {
			if x := s.flowOf(&f.Flow); x != nil {
				s.lookAtPace(x, f)
			}
		})
	}
	s.arrive()
	for _, f := range s.flows {
		for side := range f.secure.peer {
			if p := f.peerOf(side); p != nil {
				s.pump(p, 1<<20)
			}
		}
	}
}
