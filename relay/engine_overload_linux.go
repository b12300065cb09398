package relay

import (
	"cmp"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/relay/overload"
)

// shedBurst is how many flows are ended before others have their turn.
const shedBurst = 32

const (
	// maxShed is the maximum of Shedding.Flows.
	maxShed = 4096
	// flowCost is what a flow takes that holds nothing, for the most part in the kernel:
	// two sockets with their files, and what epoll and the loop know of them.
	flowCost = 6 << 10
)

// Overload returns what steers the engine while its process is short of memory.
func (e *Engine) Overload() overload.Control {
	e.check("Overload", false)
	return overloadControl{e}
}

// overloadControl implements [overload.Control].
type overloadControl struct{ engine *Engine }

func (x overloadControl) Set(o overload.State) {
	e := x.engine
	e.datagrams.gate.Store(o.NoDatagramFlows)
	e.datagrams.less.Store(o.HoldLess)
	opened := e.streams.gate.Swap(o.NoStreams) && !o.NoStreams
	for _, s := range e.streams.all {
		s.loop.Post(loop.Request{Do: func() {
			s.env.Less, s.env.HoldMost = o.HoldLess, o.HoldMost/int64(len(e.loops))
			if opened {
				s.watchPorts()
			}
		}})
	}
	runtime.KeepAlive(e)
}

func (x overloadControl) Shed(s overload.Shedding) overload.Shed {
	e := x.engine
	e.check("Overload().Shed", true)
	if s.Flows <= 0 || s.Flows > maxShed {
		s.Flows = maxShed
	}
	var wg sync.WaitGroup
	found := e.findCandidates(&s, &wg)
	wg.Wait()
	shed := e.end(choose(found, &s))
	runtime.KeepAlive(e)
	return shed
}

// findCandidates begins to look at all flows. wg is done when all have been looked at.
func (e *core) findCandidates(s *overload.Shedding, wg *sync.WaitGroup) []candidates {
	found := make([]candidates, len(e.loops))
	for i, l := range e.loops {
		c := &found[i]
		c.Shedding = *s
		wg.Add(1)
		// A loop that was asleep does not know yet what has come meanwhile: it does two turns later.
		l.InTurns(2, func(ended bool) {
			if ended {
				wg.Done()
				return
			}
			l.Walk(func(owner loop.Handler, slot uint32) { c.look(l, owner, slot) }, nil, wg)
		})
	}
	return found
}

// candidate is a flow that may be ended.
type candidate struct {
	ref
	loop   int
	rank   int64 // the highest goes first
	bytes  int64
	active time.Duration // Flow.active when it was found: it is not ended if it has moved something since
}

// candidates are the flows of one loop that rank highest: a heap, whose first is the lowest.
type candidates struct {
	overload.Shedding
	heap []candidate
}

// look adds the flow in a slot, if it qualifies.
func (c *candidates) look(l *loop.Loop, owner loop.Handler, slot uint32) {
	f := ownerOf(l, slot).flow(slot)
	// Not the loop's present: what came while the process was stopped may not have been handled.
	if l.Seen-f.active < c.Quiet {
		return
	}
	x := candidate{ref: f.ref(), loop: l.Index, rank: -int64(f.active), active: f.active}
	if c.Idle && len(c.heap) == c.Flows && c.heap[0].rank >= x.rank {
		return
	}
	var blocked, relaying bool
	switch o := owner.(type) {
	case *streams:
		blocked, relaying = o.blocked(o.of(f))
	case *datagrams:
		blocked, relaying = o.blocked(o.of(f))
	}
	if !c.Idle && !blocked || c.Idle && !relaying {
		return
	}
	if s, ok := owner.(*streams); ok && s.sentLately(s.of(f), c.Quiet) {
		return
	}
	x.bytes = flowCost + memoryOf(owner, f)
	if !c.Idle {
		x.rank = x.bytes
	}
	c.add(x)
}

// memoryOf returns the bytes that a flow holds in user space, in pipes and in the buffers of sockets.
func memoryOf(owner loop.Handler, f *Flow) int64 {
	switch o := owner.(type) {
	case *streams:
		user, pipes, sockets := o.memory(o.of(f))
		return user + pipes + sockets
	case *datagrams:
		user, sockets := o.memory(o.of(f))
		return user + sockets
	}
	return 0
}

// add adds x, and removes the lowest if there are too many.
func (c *candidates) add(x candidate) {
	h := c.heap
	if len(h) < c.Flows {
		h = append(h, x)
		for i := len(h) - 1; i > 0 && h[i].rank < h[(i-1)/2].rank; i = (i - 1) / 2 {
			h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
		}
		c.heap = h
		return
	}
	if x.rank <= h[0].rank {
		return
	}
	h[0] = x
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
			if h[child].rank < h[least].rank {
				least = child
			}
		}
		if least == i {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

// choose returns, by loop, as many of the flows that rank highest as s asks for.
func choose(found []candidates, s *overload.Shedding) [][]candidate {
	var all []candidate
	for i := range found {
		all = append(all, found[i].heap...)
	}
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Compare(b.rank, a.rank) })
	chosen := make([][]candidate, len(found))
	sum := int64(0)
	for i := 0; i < min(len(all), s.Flows) && sum < s.Bytes; i++ {
		chosen[all[i].loop] = append(chosen[all[i].loop], all[i])
		sum += all[i].bytes
	}
	return chosen
}

// end ends flows, by loop, unless they have ended or moved something meanwhile.
func (e *core) end(chosen [][]candidate) (all overload.Shed) {
	shed := make([]overload.Shed, len(chosen))
	var wg sync.WaitGroup
	for i, list := range chosen {
		if len(list) == 0 {
			continue
		}
		l := e.loops[i]
		var burst func()
		burst = func() {
			n := min(shedBurst, len(list))
			for _, x := range list[:n] {
				if l.Slots.Find(x.ref) == nil {
					continue
				}
				if f := ownerOf(l, x.Slot).flow(x.Slot); f.active == x.active {
					f.owner.kill(f, CauseOverload)
					shed[i].Flows++
					shed[i].Bytes += x.bytes
				}
			}
			list = list[n:]
			if len(list) == 0 || !l.Post(loop.Request{Do: burst}) {
				wg.Done()
			}
		}
		wg.Add(1)
		if !l.Post(loop.Request{Do: burst}) {
			wg.Done()
		}
	}
	wg.Wait()
	for _, s := range shed {
		all.Flows += s.Flows
		all.Bytes += s.Bytes
	}
	return all
}

func (x overloadControl) Trim() {
	e := x.engine
	e.check("Overload().Trim", true)
	var wg sync.WaitGroup
	for i, l := range e.loops {
		wg.Add(1)
		if !l.Post(loop.Request{Do: func() { e.streams.all[i].trim(); e.datagrams.all[i].trim() }, WG: &wg}) {
			wg.Done()
		}
	}
	wg.Wait()
	if e.streams.pipes != nil {
		e.streams.pipes.Drain()
	}
	e.buffers.Drain()
	runtime.KeepAlive(e)
}

// The flows whose memory is measured for MemoryUse, per loop: some runs of slots.
const (
	sampleRuns = 4
	sampleRun  = 32
)

func (x overloadControl) MemoryUse() overload.MemoryUse {
	e := x.engine
	e.check("Overload().MemoryUse", true)
	var all overload.MemoryUse
	uses := make([]overload.MemoryUse, len(e.loops))
	var wg sync.WaitGroup
	for i, l := range e.loops {
		wg.Add(1)
		if !l.Post(loop.Request{Do: func() { uses[i] = sample(l) }, WG: &wg}) {
			wg.Done()
		}
	}
	wg.Wait()
	for _, u := range uses {
		all.Sockets += u.Sockets
		all.Pipes += u.Pipes
	}
	runtime.KeepAlive(e)
	return all
}

// sample extrapolates from some flows of a loop.
func sample(l *loop.Loop) (u overload.MemoryUse) {
	n, seen := l.Slots.Len(), int64(0)
	for range sampleRuns {
		if n == 0 {
			break
		}
		for i, from := uint32(0), rand.Uint32N(n); i < sampleRun; i++ {
			slot := (from + i) % n
			o := ownerOf(l, slot)
			if o == nil {
				continue
			}
			seen++
			switch o := o.(type) {
			case *streams:
				_, pipes, sockets := o.memory(o.slab.At(slot))
				u.Pipes += pipes
				u.Sockets += sockets
			case *datagrams:
				_, sockets := o.memory(o.slab.At(slot))
				u.Sockets += sockets
			}
		}
	}
	if seen > 0 {
		u.Pipes = u.Pipes * int64(l.Slots.Live) / seen
		u.Sockets = u.Sockets * int64(l.Slots.Live) / seen
	}
	return u
}
