//go:build penstock_invariants

package relay

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

// checkFlow checks a flow.
func (s *streams) checkFlow(slot uint32, f *streamFlow) {
	l := s.loop
	if f.slot != slot || l.Slots.Find(f.ref()) != s {
		l.Violated(10, "the flow of slot %d says slot %d, generation %d", slot, f.slot, f.gen)
	}
	if f.fd[sideClient] < 0 {
		l.Violated(13, "slot %d, state %d: a flow without a client's socket", slot, f.state)
	}
	if f.kept && s.keep.ledger.Record(slot).Generation() != f.gen {
		l.Violated(29, "slot %d: a flow that is kept has no record", slot)
	}
	if t := f.tls; t != nil {
		for side, c := range t.conn {
			if c != nil && !t.under(side) && (t.tries < 0 || t.tries == 0 && c.IsCareful()) {
				l.Violated(10, "slot %d: %d short turns are left, and the connection of side %d is read with care: %v", slot, t.tries, side, c.IsCareful())
			}
		}
	}
	if v := s.violation(f); v != nil {
		l.Violated(v.Number, "slot %d, state %d: %s", slot, f.state, v.What)
	}
}
