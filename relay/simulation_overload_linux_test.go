package relay

import (
	"math"
	"sync"
	"time"

	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/relay/overload"
)

// A program that is short of memory, in a simulation: it tells the engine to begin less and to hold less, has it give back what is not in use, and ends flows.

// simOverload is what the engine was told, and what it is ending.
type simOverload struct {
	overload.State
	shedding *overload.Shedding // while it runs
	shed     int                // flows that it has ended
	died     bool               // a process has died meanwhile, and the next one ends a flow
	setting  bool               // loops read what was asked before, and may not know yet
}

// steer tells the engine what to do because memory is short, or that there is enough again.
func (s *simulation) steer(a, b int, call func(func())) bool {
	x := overload.State{HoldLess: a&1 != 0, NoStreams: a&6 == 2, NoDatagramFlows: a&24 == 8, HoldMost: [...]int64{0, 0, 0, 1, 3000, 100_000}[b%6]}
	if a>>5%3 == 0 {
		x = overload.State{}
	}
	changes := x != s.over.State
	call(func() {
		s.over.State, s.over.setting = x, true
		overloadControl{&Engine{s.core}}.Set(x)
		s.over.setting = false
	})
	return changes
}

// memoryIsBack ends that.
func (s *simulation) memoryIsBack(call func(func())) {
	if s.over.State != (overload.State{}) {
		s.steer(0, 0, call)
	}
}

// trims has the engine give back what is not in use.
func (s *simulation) trims(call func(func())) {
	call(func() {
		x := overloadControl{&Engine{s.core}}
		x.Trim()
		s.lookAtSpare()
		p := s.process
		defer func(do func()) { p.Before = do }(p.Before)
		p.Before = nil // or there is more, or less, before it is told
		least, most := s.memoryUse()
		if m := x.MemoryUse(); m.Sockets < least.Sockets || m.Sockets > most.Sockets || m.Pipes < least.Pipes || m.Pipes > most.Pipes {
			s.fail("memory in use is said to be %+v, and is from %+v to %+v", m, least, most)
		} else if m.Sockets < 0 || m.Pipes < 0 || s.core.flows() == 0 && m != (overload.MemoryUse{}) {
			s.fail("%d flows are said to use %+v", s.core.flows(), m)
		}
		told := !s.pipesHold()
		for i := 0; i < 64 && !told; i++ { // of a loop with 64 slots, one sample in 16 does not meet a flow
			told = x.MemoryUse().Pipes > 0
		}
		if !told {
			s.fail("pipes are said to hold nothing, and a flow has something in one")
		}
		if n := pipeStats(s.core); n.Open != n.Leased {
			s.fail("%d pipes rest after a trim", n.Open-n.Leased)
		}
	})
}

// lookAtSpare checks that memory for replies which no outbox has is kept for one kind of addresses only.
func (s *simulation) lookAtSpare() {
	for _, d := range s.core.datagrams.all {
		if a, b := d.spareMemory[0], d.spareMemory[1]; cap(a) > 0 && cap(b) > 0 && &a[:1][0] == &b[:1][0] {
			s.fail("loop %d keeps the same memory for IP addresses and for paths", d.loop.Index)
		}
	}
}

// pipesHold reports whether a flow has something in a pipe.
func (s *simulation) pipesHold() (some bool) {
	for _, st := range s.core.streams.all {
		st.slab.Each(func(f *streamFlow) {
			_, n, _ := st.memory(f)
			some = some || n > 0
		})
	}
	return some
}

// memoryUse returns what flows use at least and at most: what is told is what some of them use, extrapolated. In a loop of few slots a sample sees each of them, one
// of them at the most once more than another; otherwise each flow could use as much as the one that uses least, or most.
func (s *simulation) memoryUse() (least, most overload.MemoryUse) {
	for i, l := range s.core.loops {
		pipes, sockets := [2]int64{math.MaxInt64, 0}, [2]int64{math.MaxInt64, 0}
		var sum overload.MemoryUse
		see := func(x *[2]int64, n int64) { x[0], x[1] = min(x[0], n), max(x[1], n) }
		st, d := s.core.streams.all[i], s.core.datagrams.all[i]
		st.slab.Each(func(f *streamFlow) {
			_, p, n := st.memory(f)
			see(&pipes, p)
			see(&sockets, n)
			sum.Pipes, sum.Sockets = sum.Pipes+p, sum.Sockets+n
		})
		d.slab.Each(func(f *datagramFlow) {
			_, n := d.memory(f)
			see(&pipes, 0)
			see(&sockets, n)
			sum.Sockets += n
		})
		if n, slots := int64(l.Slots.Live), int64(l.Slots.Len()); n > 0 {
			if slots <= sampleRun { // or it may meet no flow
				seldom, often := sampleRun/slots, (sampleRun+slots-1)/slots
				least.Pipes, least.Sockets = least.Pipes+max(n*pipes[0], sum.Pipes*seldom/often), least.Sockets+max(n*sockets[0], sum.Sockets*seldom/often)
				pipes[1], sockets[1] = min(pipes[1], (sum.Pipes*often/seldom+n-1)/n), min(sockets[1], (sum.Sockets*often/seldom+n-1)/n)
			}
			most.Pipes, most.Sockets = most.Pipes+n*pipes[1], most.Sockets+n*sockets[1]
		}
	}
	return least, most
}

// sheds has flows end, of which none may have moved something lately: invariants 42 and 43.
func (s *simulation) sheds(a, b int, turn func(), call func(func())) bool {
	x := overload.Shedding{Idle: a&1 != 0, Quiet: [...]time.Duration{0, time.Second, 3 * time.Second}[a>>1%3], Flows: [...]int{1, 2, maxShed}[b%3], Bytes: [...]int64{1, math.MaxInt64}[b>>2&1]}
	var wg sync.WaitGroup
	var found []candidates
	deaths, core := s.deaths, s.core
	turn()
	turn() // as InTurns would
	if s.deaths > deaths || s.core != core || s.wrong != nil {
		return false
	}
	resting := s.resting(&x)
	if x.Flows == 2 && b&8 != 0 {
		x.Flows = 3
	}
	call(func() { found = s.core.findCandidates(&x, &wg) })
	for range 20 { // they look at some flows in each turn
		if s.wrong != nil || s.deaths > deaths || s.core != core {
			return false
		}
		if !waits(&wg) {
			break
		}
		wg.Add(1)
		turn()
	}
	if s.deaths > deaths || s.core != core || waits(&wg) {
		return false
	}
	s.over.shedding, s.over.shed = &x, 0
	call(func() {
		all := s.core.end(choose(found, &x))
		if all.Flows != s.over.shed || all.Flows > x.Flows || all.Flows > 1 && x.Bytes == 1 || (all.Flows > 0) != (all.Bytes > 0) {
			s.fail("of flows that %+v asks for, %d have ended, and %+v is said", x, s.over.shed, all)
		}
	})
	s.over.shedding = nil
	if s.core == core && s.deaths == deaths && x.Bytes > 1 {
		s.lookAtShed(&x, resting)
	}
	return s.over.shed > 0
}

// resting returns the flows that have moved nothing for long enough as their loop sees it, and when they did. One that begins to relay, or moves
// something, while the engine looks at all flows may have been looked at before.
func (s *simulation) resting(x *overload.Shedding) map[byte]time.Duration {
	active := map[byte]time.Duration{}
	for _, st := range s.core.streams.all {
		st.slab.Each(func(f *streamFlow) {
			if life := s.flowOf(&f.Flow); life != nil && f.state == streamRelaying && st.loop.Seen-f.active >= x.Quiet {
				active[life.id] = f.active
			}
		})
	}
	return active
}

// lookAtShed checks that none of these flows is left that should have ended: if only some were to end for having moved nothing, none that is left has moved nothing
// for longer.
func (s *simulation) lookAtShed(x *overload.Shedding, resting map[byte]time.Duration) {
	last := never
	if x.Flows < maxShed {
		last = -1
		for id, active := range resting {
			if f := s.flows[id-1]; x.Idle && f.records > 0 && f.record.Cause == CauseOverload {
				last = max(last, active)
			}
		}
	}
	for _, st := range s.core.streams.all {
		st.slab.Each(func(f *streamFlow) {
			life := s.flowOf(&f.Flow)
			blocked, relaying := st.blocked(f)
			if life == nil || s.world.Elapsed()-life.movedAt < x.Quiet+100*time.Millisecond || f.cause != CauseNone || f.state != streamRelaying {
				return
			}
			if active, ok := resting[life.id]; !ok || active != f.active || active >= last {
				return
			}
			if (x.Idle && relaying || !x.Idle && blocked) && !st.sentLately(f, x.Quiet) {
				s.fail("flow %d has moved nothing since %v, and %+v has not ended it", life.id, life.movedAt, *x)
			}
		})
	}
}

// shedNow is called when a flow ends because memory is short, in which nothing was seen to move for a time.
func (s *simulation) shedNow(id int, quiet time.Duration) (explained bool) {
	x := s.over.shedding
	if x == nil {
		return s.over.died
	}
	if s.over.shed++; quiet < x.Quiet-time.Millisecond {
		s.fail("flow %d was ended for want of memory after %v without anything, rather than %v", id, quiet, x.Quiet)
	}
	return true
}

// lookAtRead checks that a loop that is to hold less does not read more than it may at a time. What is discarded nobody holds; of TLS that the kernel has,
// it is read. What the turn of a flow with TLS holds, and has let go of, is in an environment of its own until that turn ends.
func (s *simulation) lookAtRead(fd, n int) {
	if n <= pump.LeastRead || s.over.setting {
		return
	}
	less, most := s.over.HoldLess, int64(0)
	if len(s.core.loops) == 1 {
		most = s.over.HoldMost
	}
	if !less && (most == 0 || s.core.streams.all[0].env.Held <= most) {
		return
	}
	may := false
	for _, st := range s.core.streams.all {
		st.slab.Each(func(f *streamFlow) {
			switch {
			case f.tls == nil || int(f.fd[sideClient]) != fd && int(f.fd[sideUpstream]) != fd:
			case f.half[up].Sink && f.tls.inKernel(sideClient) != nil && int(f.fd[sideClient]) == fd:
				may = true
			case !less && st.tlsLoop.env.Held <= most:
				may = true
			}
		})
	}
	if !may {
		s.fail("%d bytes are asked for, and memory is short", n)
	}
}
