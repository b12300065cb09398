//go:build penstock_invariants

package relay

import "github.com/penstock/penstock/internal/pump"

// checkInvariants checks, at the end of a turn, that each flow that waits will be looked at again, and that what flows have is what is
// counted. See internal/loop.
func (s *streams) checkInvariants() {
	from, to, all := s.loop.Looked()
	flows, pipes := 0, int64(0)
	for i := from; i < to; i++ {
		if !s.slab.Has(i) {
			continue // of datagrams
		}
		f := s.slab.At(i)
		if s.loop.Slots.Owner(i) == nil {
			s.checkFree(i, f)
			continue
		}
		flows++
		s.checkFlow(i, f)
		for h := range f.half {
			if _, n := f.half[h].Memory(); n > 0 {
				pipes++
			}
		}
	}
	if n := s.load.Load(); n < int64(s.slab.Live) {
		s.loop.Violated(15, "%d flows, and a load of %d", s.slab.Live, n)
	}
	if n := s.share.short.flows.Load(); n < 0 || s.share.short.loops.Load() < 0 || s.share.paused.loops.Load() < 0 || s.share.paused.budget.Load() < 0 {
		s.loop.Violated(15, "%d flows are short, %d loops are, %d are paused, %d of them for the budget", n, s.share.short.loops.Load(), s.share.paused.loops.Load(), s.share.paused.budget.Load())
	}
	if !all {
		return
	}
	if flows != s.slab.Live {
		s.loop.Violated(15, "%d stream flows are in their slots, %d are counted", flows, s.slab.Live)
	}
	if s.env.Pipes == nil || len(s.share.all) > 1 || s.keep != nil {
		return // pipes of other loops, or of an earlier process
	}
	if leased := int64(s.env.Pipes.Stats().Leased); leased != pipes {
		s.loop.Violated(7, "%d pipes hold bytes, %d are on lease", pipes, leased)
	}
}

// checkFree checks that a flow that has ended owns nothing.
func (s *streams) checkFree(slot uint32, f *streamFlow) {
	if f.gen != 0 || f.state != 0 || f.early != nil || f.tls != nil || f.fd != [2]int32{} || f.reserved != 0 || f.half[up].Held()+f.half[down].Held() != 0 {
		s.loop.Violated(13, "slot %d is free, and has a flow in state %d with sockets %v, %d descriptors", slot, f.state, f.fd, f.reserved)
	}
}

// checkFlow checks that a flow is looked at again.
func (s *streams) checkFlow(slot uint32, f *streamFlow) {
	l := s.loop
	if f.slot != slot || l.Slots.Find(f.ref()) != s {
		l.Violated(10, "the flow of slot %d says slot %d, generation %d", slot, f.slot, f.gen)
	}
	// One that begins again when all flows are restored has its timer from then on.
	if f.state != streamRestored && f.deadline().cause != CauseNone && !l.Armed(slot) {
		l.Violated(9, "slot %d, state %d: a deadline, and no timer", slot, f.state)
	}
	if f.throttled && !l.Armed(slot) || f.state == streamRetrying && !l.Armed(slot) || f.backlogFull && !l.Armed(slot) {
		l.Violated(9, "slot %d, state %d: it waits for a tick, and has no timer", slot, f.state)
	}
	if f.inReady && s.ready.len() == 0 || f.inLagging && s.lagging.len() == 0 {
		l.Violated(9, "slot %d: it waits in a queue that is empty", slot)
	}
	switch f.state {
	case streamAdmitting, streamChoosing:
		l.Violated(12, "slot %d: a hook is asked between two turns: state %d", slot, f.state)
	case streamRestored:
		if s.restored.len() == 0 {
			l.Violated(9, "slot %d: a restored flow that nobody begins", slot)
		}
	case streamShort:
		if s.short.flows.len() == 0 {
			l.Violated(9, "slot %d: it waits for a descriptor, and nobody knows", slot)
		}
	case streamSecuring, streamReplying:
		if f.state == streamSecuring && f.tls == nil {
			l.Violated(54, "slot %d: a handshake without TLS", slot)
		}
	case streamRelaying:
		for h := range f.half {
			if f.wait[h] == pump.Again && !f.inReady && !f.throttled {
				l.Violated(9, "slot %d: direction %d could go on, and is in no queue", slot, h)
			}
			if f.muted[h] && f.wait[h] == pump.WantRead {
				l.Violated(9, "slot %d: direction %d waits for its source, which is not watched", slot, h)
			}
		}
		if f.over(up) && f.over(down) && f.cause == CauseNone && (f.tls == nil || f.tls.undelivered == 0) {
			l.Violated(14, "slot %d: both directions have ended, and the flow has not", slot)
		}
	}
	if f.fd[sideClient] < 0 {
		l.Violated(13, "slot %d, state %d: a flow without a client's socket", slot, f.state)
	}
	if f.kept && s.keep.ledger.Record(slot).Generation() != f.gen {
		l.Violated(29, "slot %d: a flow that is kept has no record", slot)
	}
}
