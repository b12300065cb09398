package relay

import (
	"time"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/relay/hold"
)

// lookAtGauges checks that what loops share says what they say themselves.
func (s *simulation) lookAtGauges() {
	c := &s.core.streams
	var paused, budget, short, shortFlows int64
	for _, st := range c.all {
		if n := int64(st.slab.Live); st.load.Load() != n {
			s.fail("loop %d has %d flows, and its load is %d", st.loop.Index, n, st.load.Load())
		}
		if st.pause.until > 0 {
			paused++
			if st.pause.budget {
				budget++
			}
		}
		if st.short.loop.Load() {
			short++
		}
		st.slab.Each(func(f *streamFlow) {
			if f.state == streamShort {
				shortFlows++
			}
		})
	}
	if n := int64(c.paused.loops.Load()); n != paused || int64(c.paused.budget.Load()) != budget {
		s.fail("%d loops pause, %d of them for want of descriptors, and %d and %d are counted", paused, budget, n, c.paused.budget.Load())
	}
	if n := int64(c.short.loops.Load()); n != short || int64(c.short.flows.Load()) != shortFlows {
		s.fail("%d loops and %d flows wait for descriptors, and %d and %d are counted", short, shortFlows, n, c.short.flows.Load())
	}
}

// checkCounts checks what the loops have counted, all processes together.
func (s *simulation) checkCounts() {
	var sum loopCounters
	for _, st := range s.core.streams.all {
		sum.add(st.loopStats)
	}
	var causes [64]int64
	var admitted, attempts, connected, pending, rudes int64
	unknown := int64(0) // flows without a record
	for _, f := range s.flows {
		if f.records == 0 {
			unknown++
		}
	}
	for c, n := range s.seen.causes {
		if more := sum.Ended[c] + s.vanished.Ended[c] - int64(n); more < 0 || more > unknown {
			s.fail("%d flows have told that they ended with %v, %d others have told nothing, and the loops have counted %d", n, Cause(c), unknown, sum.Ended[c])
		}
	}
	for _, f := range s.flows {
		if f.lost || f.crashed {
			return
		}
		if f.admitted {
			admitted++
		}
		attempts += int64(f.record.Attempts)
		rudes += int64(f.words.rudes) // they were connected, and failed if the flow has not ended before
		switch c := f.record.Cause; {
		case f.record.Connect > 0 && f.record.Upstream.Network.BuiltIn():
			attempts-- // nobody is connected to
		case f.record.Connect > 0:
			connected++
		case f.record.Attempts > 0 && c != CauseNoUpstream && c != CauseConnectTimeout:
			pending++ // it ended while an attempt was under way, or between two
		}
	}
	for c, n := range s.seen.causes {
		causes[c] = int64(n)
	}
	if sum.Ended != causes && !s.damaged {
		s.fail("flows have ended with the causes %v, and the loops have counted %v", causes, sum.Ended)
	}
	if s.deaths > 0 || s.scarce {
		return
	}
	if sum.AcceptErrors != s.acceptErrors {
		s.fail("%d accepts have failed, and %d are counted", s.acceptErrors, sum.AcceptErrors)
	}
	if sum.Accepted != admitted {
		s.fail("%d clients were admitted, and %d are counted", admitted, sum.Accepted)
	}
	if s.limits && s.words > 0 || s.secure > 0 {
		rudes = attempts - connected // so are those that have not answered in time
	}
	if failed := attempts - connected; s.upgrades == 0 && (sum.Connects < connected || sum.Connects > connected+rudes || sum.ConnectErrors > failed || sum.ConnectErrors < failed-pending) {
		s.fail("of %d attempts to connect %d were answered, %d of them otherwise than they should, and the loops have counted %d, and %d that failed", attempts, connected+rudes, rudes, sum.Connects, sum.ConnectErrors)
	}
}

// pipeStats returns the counts of an engine's pipes, which has none if it may have none.
func pipeStats(c *core) (n pump.PipeStats) {
	if c.streams.pipes != nil {
		n = c.streams.pipes.Stats()
	}
	return n
}

// checkPipes checks that when nobody leases a pipe, all that there may be can be leased.
func (s *simulation) checkPipes() {
	pipes := s.core.streams.pipes
	if s.pipes < 0 { // too many to lease, or none
		if n := pipeStats(s.core).Max; s.pipes == simDefaultPipes && n != pump.MaxPipes || s.pipes == simNoPipes && n > 0 {
			s.fail("there may be %d pipes, and %d are asked for", n, s.maxPipes())
		}
		return
	}
	if s.files > 0 { // they are not scarce any more
		s.process.Limit = 0
		s.core.descriptors.measure(s.world.Elapsed()+time.Hour, 0)
	}
	var all []*pump.Pipe
	for p := pipes.Get(); p != nil; p = pipes.Get() {
		all = append(all, p)
	}
	if n := int64(len(all)); n != pipes.Stats().Max && !s.keeper.full() {
		s.fail("%d pipes can be leased, of %d", n, pipes.Stats().Max)
	}
	for _, p := range all {
		pipes.Put(p)
	}
}

// begunWith is what a process finds: the flows of which the one before has left records, and if that has handed over, what it held for them.
type begunWith struct {
	flows   int
	byLoop  []int // flows
	unread  int   // flows of ledgers that cannot be read, or are held no more
	some    bool  // some of those flows have got lost meanwhile
	handed  bool
	holding int
	bytes   int64
	left    []simLeft
}

// simLeft is a flow that relays, of which a process leaves a record: how many bytes it holds, and which pipes the record names.
type simLeft struct {
	flow  *simFlow
	held  int64
	pipes [2]uint32 // their numbers and 1; 0: none
}

// leaves tells what a process leaves.
func (s *simulation) leaves(handed bool) (x begunWith) {
	x.handed = handed
	if s.core == nil {
		return x
	}
	for _, st := range s.core.streams.all {
		if st.keep == nil {
			continue
		}
		n := 0
		for range st.keep.ledger.All() {
			n++
		}
		x.flows, x.byLoop = x.flows+n, append(x.byLoop, n)
		st.slab.Each(func(f *streamFlow) {
			n := int64(f.half[up].Held() + f.half[down].Held())
			if f.state != streamRelaying {
				return
			}
			if n > 0 {
				x.holding++
				x.bytes += n
			}
			if r := st.record(f); r.Generation() == f.gen {
				x.left = append(x.left, simLeft{s.flowOf(&f.Flow), n, [2]uint32{r.Half(up).Pipe(), r.Half(down).Pipe()}})
			}
		})
	}
	return x
}

// checkRestored checks what Restore has returned.
func (s *simulation) checkRestored(r *hold.Restored) {
	left := s.begun.flows + s.begun.unread
	if n := r.Flows + r.Ended + r.TotalLost(); n > left || n < left && !s.begun.some {
		s.fail("%d flows were left, and %d have gone on, %d ended and %d got lost: %v", left, r.Flows, r.Ended, r.TotalLost(), r.Lost)
	}
	s.begun.unread = 0
	if s.begun.handed && (r.Holding != s.begun.holding || r.Bytes != s.begun.bytes) {
		s.fail("%d flows held %d bytes, and it is said to be %d and %d", s.begun.holding, s.begun.bytes, r.Holding, r.Bytes)
	}
}

// checkTimes checks what a record says of times, who the client is, and how bytes went.
func (s *simulation) checkTimes(f *simFlow, r *Record) {
	now, began := s.world.Now(), s.world.Now().Add(-s.world.Elapsed())
	switch end := r.Start.Add(r.Duration); {
	case r.Start.Before(began.Add(f.began)), end.After(now), now.Sub(end) > 50*time.Millisecond:
		s.fail("flow %d began at %v, and its record says that it has begun at %v and ended at %v; now it is %v", f.id, f.began, r.Start.Sub(began), end.Sub(began), now.Sub(began))
	}
	for h, t := range [2]Transfer{up: r.Up, down: r.Down} {
		want := datapath.Copy
		switch {
		case t.Spliced > 0:
			want = datapath.Splice
		case t.Written == 0:
			want = datapath.None
		}
		if t.Path != want || (t.Why == datapath.WhyNone) != (want == datapath.Splice) && want != datapath.None {
			s.fail("flow %d has the path %v, %v in direction %d, of %d bytes, %d of them spliced", f.id, t.Path, t.Why, h, t.Written, t.Spliced)
		}
	}
	if tls := f.secure.at != [2]bool{}; tls && f.lingerer == nil && !s.kernelTLS && r.Cause == CauseEnd && (r.Up.Written > 0 && r.Up.Why != datapath.WhyTLS || r.Down.Written > 0 && r.Down.Why != datapath.WhyTLS) {
		s.fail("flow %d has TLS, and was copied because of %q and %q", f.id, r.Up.Why, r.Down.Why)
	}
	for _, other := range s.flows {
		if other != f && other.records > 0 && other.record.ID == r.ID && !s.damaged {
			s.fail("flows %d and %d have the same ID, %d", other.id, f.id, r.ID)
		}
	}
}
