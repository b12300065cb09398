package relay

import (
	"fmt"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// lookAtGrams checks what must be true between two turns.
func (s *gramSimulation) lookAtGrams() {
	if s.core == nil || s.wrong != nil {
		return
	}
	d := s.core.datagrams.all[0]
	var kept int64
	d.slab.Each(func(f *datagramFlow) {
		if x := s.lifeOf(f.Value()); x != nil {
			x.kept = f.kept
			if n := f.moved[up].read + f.moved[down].read; n != x.moved {
				x.moved, x.activeAt = n, s.world.Elapsed()
			}
		}
		if !f.kept {
			return
		}
		kept++
		r := d.record(f)
		if r.Generation() != f.gen {
			s.fail("the flow in slot %d is kept and has no record", f.slot)
			return
		}
		if x := s.keeper.held[d.keep.flowKey(f.ref())]; len(x.FDs) != 1 {
			s.fail("the flow in slot %d is kept, and %d of its sockets are held", f.slot, len(x.FDs))
		}
		if f.noting { // it has carried something outside of a turn
			return
		}
		for dir := range f.moved {
			m, noted := &f.moved[dir], r.Gram().Moved(dir)
			if noted.Read() != m.read || noted.Written() != m.written || noted.Datagrams() != m.datagrams || noted.Dropped() != m.dropped {
				s.fail("the record in slot %d says %d, %d, %d and %d of direction %d, and the flow %+v", f.slot, noted.Read(), noted.Written(), noted.Datagrams(), noted.Dropped(), dir, *m)
			}
		}
	})
	if n := d.loopStats.Kept; n != kept {
		s.fail("%d flows are kept, and %d are counted", kept, n)
	}
	if n := d.undecided.n + d.silent.n + d.answered.n + d.verified.n; n != d.slab.Live {
		s.fail("%d flows, and %d on the lists by age", d.slab.Live, n)
	}
	for _, p := range d.ports {
		if p.state == portClosed && p.owned != len(p.flows) && s.kind.limit == 0 && !s.faulted {
			s.fail("a port is closed, and of its %d flows %d have sockets of their own", len(p.flows), p.owned)
		}
	}
	present := s.present()
	missing, left := int64(0), s.unresolved[:0]
	for _, x := range s.unresolved {
		if x.got || x.lost || x.crashed {
			continue
		}
		left = append(left, x)
		if !present[x.gramID] {
			missing++
		}
	}
	s.unresolved = left
	if dropped, held := s.dropped()-s.counted, s.notSent(); missing != dropped+held && d.share.strays.Load() == 0 {
		s.fail("%d datagrams are missing, of which %d are held, and %d are counted as dropped since this process began, %v\n%s", missing, held, dropped, d.stats.Dropped, s.describeGrams())
	}
	if taken := s.core.descriptors.taken(); taken < 0 {
		s.fail("%d descriptors are taken", taken)
	}
}

// settleGrams lets all happen that is under way, until nothing does any more. Peers read what comes.
func (s *gramSimulation) settleGrams() {
	s.process.Fault = nil
	s.process.DieAfter(0)
	s.keeper.fails = 0
	for turns, still := 0, 0; still < 3 && s.wrong == nil; turns++ {
		if turns > 5000 {
			s.fail("there is no end\n%s", s.describeGrams())
			return
		}
		before := s.progressOfGrams()
		s.turn()
		for s.world.PacketsInFlight() > 0 {
			s.world.DeliverPacket(0)
		}
		for i := range s.upstreams {
			s.upstreamReads(i, 1000)
		}
		for i := range s.clients {
			s.clientReads(i, 1000)
		}
		s.keeper.closeDropped()
		if s.progressOfGrams() != before {
			still = 0
			continue
		}
		still++
		s.world.Sleep(simAfter + 10*time.Millisecond)
	}
	if s.wrong != nil {
		return
	}
	d := s.core.datagrams.all[0]
	d.slab.Each(func(f *datagramFlow) {
		for _, fd := range []int32{f.fd, f.own} {
			if fd >= 0 && sys.Readable(s.process, int(fd)) {
				s.fail("the flow in slot %d does not read what its socket has\n%s", f.slot, s.describeGrams())
			}
		}
		if f.held != nil || f.pending > 0 || f.blocked {
			s.fail("the flow in slot %d holds %d bytes, %d items are pending, blocked is %v, and nothing happens any more\n%s", f.slot, len(f.held), f.pending, f.blocked, s.describeGrams())
		}
	})
	for _, p := range d.ports {
		if sys.Readable(s.process, p.fd) || p.out.blocked {
			s.fail("a port does not read what its socket has, or is blocked: %v\n%s", p.out.blocked, s.describeGrams())
		}
	}
}

// progressOfGrams changes when something happens.
func (s *gramSimulation) progressOfGrams() string {
	return fmt.Sprint(s.received, len(s.flows), s.world.PacketsInFlight(), s.notSent(), s.core.datagrams.flows.Load(), s.dropped(), s.core.datagrams.all[0].stats.Received)
}

// checkGrams lets all flows time out and checks what must be true then.
func (s *gramSimulation) checkGrams() {
	for until := s.world.Elapsed() + gramIdle + restTime + 2*time.Second; s.world.Elapsed() < until && s.wrong == nil; {
		s.world.Sleep(200 * time.Millisecond)
		s.turn()
	}
	s.settleGrams()
	if s.wrong != nil {
		return
	}
	for _, f := range s.flows {
		if f.records != 1 && !(f.records == 0 && f.lost) {
			s.fail("flow %d of %s has %d records, kept %v, lost %v\n%s", f.number, f.client, f.records, f.kept, f.lost, s.describeGrams())
		}
	}
	d := s.core.datagrams.all[0]
	st := d.loopStats
	s.restoredAll = st.Restored
	held := make(map[holdKind]int)
	for key := range s.keeper.held {
		held[kindOf(key)]++
	}
	total := s.dropped()
	ended := int64(0)
	for _, n := range st.Ended {
		ended += n
	}
	switch {
	case s.core.datagrams.flows.Load() != 0 || d.slab.Live != 0:
		s.fail("%d flows are left", d.slab.Live)
	case st.Kept != 0:
		s.fail("%d flows are kept at the end", st.Kept)
	case d.stats.BytesHeld != 0:
		s.fail("%d bytes are held at the end", d.stats.BytesHeld)
	case d.stats.Resting != 0 || d.rests.len() != 0:
		s.fail("%d sockets rest at the end, and %d are counted", d.rests.len(), d.stats.Resting)
	case s.deaths == 0 && d.stats.Received != d.stats.Sent+total:
		s.fail("%d datagrams received, %d sent, %d dropped", d.stats.Received, d.stats.Sent, total)
	case s.deaths == 0 && st.BytesRead != st.BytesWritten+st.BytesDropped:
		s.fail("%d bytes read, %d written, %d dropped", st.BytesRead, st.BytesWritten, st.BytesDropped)
	case st.Accepted != ended:
		s.fail("%d flows were accepted, and %d have ended", st.Accepted, ended)
	case held[holdFlow] != 0 || held[holdListener] != len(d.ports) || len(d.ports) == 0 || held[holdLedger] != 1:
		s.fail("by kind, this is held at the end: %v", held)
	case s.core.datagrams.own.Load() != 0:
		s.fail("%d flows have a socket of their own at the end", s.core.datagrams.own.Load())
	}
	for slot := range d.keep.ledger.All() {
		s.fail("slot %d has a record at the end", slot)
	}
	// An epoll instance, an eventfd, and the listener's sockets, of which there may be two if a process has died that closed one.
	if open := s.process.Open(); open != 2+len(d.ports) {
		s.fail("%d descriptors are open at the end", open)
	}
	if taken, promised := s.core.descriptors.taken()-d.descriptors.ahead, s.core.descriptors.promised(); taken != 0 || promised != d.descriptors.ahead {
		s.fail("%d descriptors are taken, and %d promised, at the end; %d ahead", taken, promised, d.descriptors.ahead)
	}
}

func (s *gramSimulation) finish() {
	if s.core != nil {
		s.drop()
	}
	s.keeper.closeDropped()
	for _, x := range s.keeper.held {
		for _, fd := range x.FDs {
			s.keeper.process.Close(fd)
		}
	}
}

// describeGrams tells what there is.
func (s *gramSimulation) describeGrams() (text string) {
	if s.core == nil {
		return ""
	}
	d := s.core.datagrams.all[0]
	text = fmt.Sprintf("%+v, %d deaths, %d upgrades, time %v, the loop waits until %v\n", s.kind, s.deaths, s.upgrades, s.world.Elapsed(), s.process.WaitsUntil())
	d.slab.Each(func(f *datagramFlow) {
		text += fmt.Sprintf("slot %d, flow %v: socket %d, own %d, kept %v, moved %+v, held %d, pending %d, blocked %v, events %#x, poll %#x\n", f.slot, f.Value(), f.fd, f.own, f.kept, f.moved, heldBytes(f.held),
			f.pending, f.blocked, f.events(), s.process.Poll(int(f.fd), sys.PollIn|sys.PollOut))
	})
	for _, p := range d.ports {
		text += fmt.Sprintf("port: socket %d, state %d, %d flows, blocked %v, poll %#x\n", p.fd, p.state, len(p.flows)+len(p.paths), p.out.blocked, s.process.Poll(p.fd, sys.PollIn|sys.PollOut))
	}
	for _, x := range s.unresolved {
		if !x.got && !x.lost && !x.crashed {
			text += fmt.Sprintf("unresolved: %v, %d bytes, in a queue %v\n", x.gramID, x.size, s.present()[x.gramID])
		}
	}
	return text
}
