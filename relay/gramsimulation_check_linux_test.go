package relay

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// lookAtGrams checks what must be true between two turns.
func (s *gramSimulation) lookAtGrams() {
	if s.core == nil || s.wrong != nil {
		return
	}
	if s.core.state != closed {
		s.lookAtDrain()
	}
	before := s.groups.queued
	ports := append(s.groups.now[:0], gramPortNow{s.processes, s.relistens, s.world.Sharing(s.listen.AddrPort.Port())})
	for _, d := range s.core.datagrams.all {
		for _, p := range d.ports {
			now := gramPortNow{p.fd, int(p.state), -1}
			if p.joined {
				now.owned = p.owned
			}
			ports = append(ports, now)
		}
	}
	s.lookForGrams()
	if slices.ContainsFunc(s.core.datagrams.all, func(d *datagrams) bool {
		return slices.ContainsFunc(d.ports, func(p *datagramPort) bool { return p.state == portGiving })
	}) {
		s.regroupedAt = s.ticks
	}
	if s.groups.now = ports; !slices.Equal(ports, s.groups.ports) {
		s.regroupedAt = s.ticks
		s.groups.ports = append(s.groups.ports[:0], ports...)
		for i := range before {
			s.groups.exempt[i] = s.groups.exempt[i] || before[i] || s.groups.queued[i]
		}
		for _, x := range s.unresolved {
			if x.dir == up && !x.got && !x.lost && !x.crashed && !s.present(x) {
				s.groups.exempt[x.client] = true
			}
		}
	}
	s.routes.unasked, s.routes.unheard = nil, nil
	clear(s.groups.flows)
	s.groups.at = [256]*Listener{}
	for _, d := range s.core.datagrams.all {
		s.lookAtLoop(d, s.groups.flows)
	}
	s.lookAtSplit()
	s.lookAtBegins()
	s.lookAtLimited()
	s.lookAtDrops()
	s.lookAtUnasked()
	missing, left := int64(0), s.unresolved[:0]
	for _, x := range s.unresolved {
		if x.got || x.lost || x.crashed {
			continue
		}
		left = append(left, x)
		if !s.present(x) {
			missing++
		}
	}
	s.unresolved = left
	if dropped, held := s.dropped()-s.counted, s.notSent(); missing != dropped+held+s.discardedGrams() && s.core.datagrams.strays.Load() == 0 {
		s.fail("%d datagrams are missing, of which %d are held, and %d are counted as dropped since this process began\n%s", missing, held, dropped, s.describeGrams())
	}
	if taken := s.core.descriptors.taken(); taken < 0 {
		s.fail("%d descriptors are taken", taken)
	}
	s.lookedAt = s.world.Elapsed()
	if s.core.state != closed { // flows are not looked at then
		s.routes.looks++
	}
}

// gramClientAt is a client of a listener, at one address of it.
type gramClientAt struct {
	listener *Listener
	name     string
	named    string
	local    netip.Addr
}

// clientOf returns the number of a flow's client.
func (s *gramSimulation) clientOf(f *datagramFlow) byte {
	if s.kind.several {
		return s.clientIs(s.lifeOf(f.Value()))
	}
	if c := f.Client(); c.Network == UDP {
		var text [64]byte
		return s.groups.clients[string(c.AddrPort.AppendTo(text[:0]))]
	}
	return s.groups.clients[f.Peer().Path]
}

// lookAtLoop looks at a loop's flows. A client of a listener has one at the most.
func (s *gramSimulation) lookAtLoop(d *datagrams, clients map[gramClientAt]bool) {
	var kept int64
	var restored []*simTold
	d.slab.Each(func(f *datagramFlow) {
		c := gramClientAt{f.port.listener, string(f.clientName()), "", f.localAddr}
		if f.shares() {
			c.named = f.Client().String()
		}
		if s.kind.several {
			c.named = fmt.Sprint(s.clientOf(f))
			s.lookAtSeveral(f)
			s.lookAtListeners(f)
		}
		if clients[c] && !s.groups.exempt[s.clientOf(f)] {
			s.fail("a client has two flows at one listener, the second one in slot %d of loop %d\n%s", f.slot, d.loop.Index, s.describeGrams())
		}
		clients[c] = true
		if f.full() && !slices.Contains(d.finished, f.ref()) && s.core.state != closed { // what a flow held is dropped at a hand-over: the next process ends it
			s.fail("the flow in slot %d has had all its replies, and goes on\n%s", f.slot, s.describeGrams())
		}
		s.lookAtWatches(f)
		s.lookAtPreface(f)
		s.lookAtName(f)
		if x := s.lifeOf(f.Value()); x != nil {
			x.kept = f.kept
			s.lookAtGramPace(x, f)
			if !f.noting { // what has moved since the last turn, as a drain begins, the end of the next one notes
				s.lookAtTold(&x.told, x.number, &f.Flow, x.pace.rate == 0 && s.kind.sniff == 0)
				s.lookAtStateTold(f, x)
			}
			if x.told.before > 0 {
				restored = append(restored, &x.told)
			}
			if n := f.moved[up].read + f.moved[down].read; n != x.moved && x.pace.rate == 0 { // what is dropped as too much does not move
				if n > x.moved {
					x.activeAt = s.lookedAt // or later: a call may take its time, as one that waits for the holder
				}
				x.moved = n
			}
			if !f.noting {
				x.notedAt = x.activeAt
			}
			x.loop = d.loop.Index
			s.lookAtOwn(f, x)
			s.lookAtGram(f, x)
			s.lookAtBuiltin(f, x)
			s.lookAtRoute(d, f, x)
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
		if x := s.keeper.held[d.keep.flowKey(f.ref())]; len(x.FDs) != f.upstreamSockets() && !s.keeper.refused(d.keep.flowKey(f.ref())) {
			s.fail("the flow in slot %d is kept, and %d of its sockets are held", f.slot, len(x.FDs))
		}
		if r.Flags()&recordHeld == 0 {
			s.fail("the flow in slot %d is kept, and its record says that it is not held", f.slot)
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
	s.lookAtAges(restored)
	s.lookAtSniffs(d)
	if n := d.loopStats.Kept; n != kept {
		s.fail("%d flows are kept, and %d are counted", kept, n)
	}
	if n := d.undecided.n + d.silent.n + d.answered.n + d.verified.n; n != d.slab.Live {
		s.fail("%d flows, and %d on the lists by age", d.slab.Live, n)
	}
	for _, p := range d.ports {
		s.lookAtPort(p)
		if p.state == portClosed && len(p.flows)-p.owned > s.kernel.refused && s.kind.limit == 0 {
			s.fail("a port is closed, and of its %d flows %d have sockets of their own; %d sockets could not be made\n%s", len(p.flows), p.owned, s.kernel.refused, s.describeGrams())
		}
	}
}

// lookAtAges checks that flows that a process has just begun with are as much older than each other as they were: a record has times of 16.8 ms.
func (s *gramSimulation) lookAtAges(restored []*simTold) {
	for i, x := range restored {
		for _, y := range restored[:i] {
			if d := (x.active - y.active) - (x.before - y.before); d.Abs() > 3<<activeBits {
				s.fail("one flow was active %v after another one, and %v in the next process", x.before-y.before, x.active-y.active)
			}
		}
	}
}

// settleGrams lets all happen that is under way, until nothing does any more. Peers read what comes.
func (s *gramSimulation) settleGrams() {
	s.process.Fault, s.faults = nil, nil
	s.process.DieAfter(0)
	s.keeper.fails = 0
	s.memoryIsBack(s.call)
	s.settling = true
	defer func() { s.settling = false }()
	for turns, still := 0, 0; (still < 3 || still < 20 && s.core.datagrams.strays.Load() > 0) && s.wrong == nil; turns++ {
		if turns > 5000 {
			s.fail("there is no end\n%s", s.describeGrams())
			return
		}
		before := s.progressOfGrams()
		if s.keeper.real != nil && s.keeper.real.rest() {
			still = 0
		}
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
		s.successorReads(1000)
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
	if n := s.core.datagrams.strays.Load(); n != 0 {
		s.fail("%d datagrams go from loop to loop, and nothing happens any more\n%s", n, s.describeGrams())
	}
	for _, d := range s.core.datagrams.all {
		s.settled(d)
	}
	s.lookAtStrays()
	s.lookAtTolds()
}

// settled checks what must be true of a loop when nothing is under way any more.
func (s *gramSimulation) settled(d *datagrams) {
	d.slab.Each(func(f *datagramFlow) {
		s.lookAtAddressesTold(f)
		for _, fd := range []int32{f.fd, f.own} {
			if fd >= 0 && sys.Readable(s.process, int(fd)) {
				s.fail("the flow in slot %d does not read what its socket has\n%s", f.slot, s.describeGrams())
			}
		}
		if f.held != nil && !f.sniffed || f.pending > 0 || f.blocked {
			s.fail("the flow in slot %d holds %d bytes, %d items are pending, blocked is %v, and nothing happens any more\n%s", f.slot, len(f.held), f.pending, f.blocked, s.describeGrams())
		}
	})
	for _, p := range d.ports {
		if sys.Readable(s.process, p.fd) || p.out.blocked {
			s.fail("a port does not read what its socket has, or is blocked: %v\n%s", p.out.blocked, s.describeGrams())
		}
		if p.state == portClosed && p.live() == 0 {
			s.fail("a port is closed and has no flows, and is still there\n%s", s.describeGrams())
		}
	}
}

// progressOfGrams changes when something happens.
func (s *gramSimulation) progressOfGrams() string {
	received := int64(0)
	for _, d := range s.core.datagrams.all {
		received += d.stats.Received
	}
	return fmt.Sprint(received, s.received, len(s.flows), s.world.PacketsInFlight(), s.notSent(), s.core.datagrams.flows.Load(), s.core.datagrams.strays.Load(), s.dropped())
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
		if f.records == 0 && !f.lost && s.unknown > 0 {
			s.unknown--
			continue
		}
		if f.records != 1 && !(f.records == 0 && f.lost) {
			s.fail("flow %d of %s has %d records, kept %v, lost %v\n%s", f.number, f.client, f.records, f.kept, f.lost, s.describeGrams())
		}
	}
	held := s.keeper.kinds(s.core.holding)
	var sum gramSum
	for _, d := range s.core.datagrams.all {
		s.checkGramLoop(d, &sum)
	}
	s.restoredAll = sum.restored
	s.checkGramCounts()
	loops := len(s.core.loops)
	switch {
	case s.core.datagrams.flows.Load() != 0:
		s.fail("%d flows are left", s.core.datagrams.flows.Load())
	case sum.received != sum.sent+s.dropped():
		s.fail("%d datagrams received, %d sent, %d dropped", sum.received, sum.sent, s.dropped())
	case sum.read != sum.written+sum.dropped:
		s.fail("%d bytes read, %d written, %d dropped", sum.read, sum.written, sum.dropped)
	case sum.accepted != sum.ended:
		s.fail("%d flows were accepted, and %d have ended", sum.accepted, sum.ended)
	case s.drain.begun && !s.drain.done && !s.drain.over:
		s.fail("Drain would wait for ever\n%s", s.describeGrams())
	case held[holdFlow] != 0 || held[holdListener] != sum.ports && !s.keeper.full() || sum.ports == 0 && !s.drain.begun || held[holdLedger] != loops:
		s.fail("by kind, this is held at the end: %v; there are %d ports", held, sum.ports)
	case s.core.datagrams.own.Load() != 0:
		s.fail("%d flows have a socket of their own at the end", s.core.datagrams.own.Load())
	}
	// An epoll instance and an eventfd for each loop, and the listener's sockets, of which there may be more if a process has died
	// that closed one.
	if open := s.process.Open(); open != 3*loops+sum.ports+s.keeper.connections() {
		s.fail("%d descriptors are open at the end, and there are %d loops and %d ports", open, loops, sum.ports)
	}
	if n := s.process.Mapped(); n != loops {
		s.fail("%d ledgers are mapped at the end, and there are %d loops", n, loops)
	}
	if taken, promised := s.core.descriptors.taken()-sum.ahead, s.core.descriptors.promised(); taken != 0 || promised != sum.ahead {
		s.fail("%d descriptors are taken, and %d promised, at the end; %d ahead", taken, promised, sum.ahead)
	}
}

// gramSum is what loops have counted together.
type gramSum struct {
	accepted, ended, restored, received, sent, read, written, dropped, ahead int64
	ports                                                                    int
}

// checkGramLoop checks what must be true of a loop at the end.
func (s *gramSimulation) checkGramLoop(d *datagrams, sum *gramSum) {
	st := d.loopStats
	switch {
	case d.slab.Live != 0:
		s.fail("%d flows are left", d.slab.Live)
	case st.Kept != 0:
		s.fail("%d flows are kept at the end", st.Kept)
	case d.stats.BytesHeld != 0:
		s.fail("%d bytes are held at the end", d.stats.BytesHeld)
	case d.stats.Resting != 0 || d.rests.len() != 0:
		s.fail("%d sockets rest at the end, and %d are counted", d.rests.len(), d.stats.Resting)
	}
	for slot := range d.keep.ledger.All() {
		s.fail("slot %d has a record at the end", slot)
	}
	sum.accepted += st.Accepted
	for _, n := range st.Ended {
		sum.ended += n
	}
	sum.restored += st.Restored
	sum.received, sum.sent = sum.received+d.stats.Received, sum.sent+d.stats.Sent
	sum.read, sum.written, sum.dropped = sum.read+st.BytesRead, sum.written+st.BytesWritten, sum.dropped+st.BytesDropped
	sum.ahead += d.descriptors.ahead
	sum.ports += len(d.ports)
}

func (s *gramSimulation) finish() {
	if s.core != nil {
		s.drop(false)
	}
	s.takeBack()
	s.keeper.close()
	s.giveBack()
}

// describeGrams tells what there is.
func (s *gramSimulation) describeGrams() (text string) {
	if s.core == nil {
		return ""
	}
	text = fmt.Sprintf("%+v, %d deaths, %d upgrades, time %v, the loop waits until %v\n", s.kind, s.deaths, s.upgrades, s.world.Elapsed(), s.process.WaitsUntil())
	text += s.describeGramLoops()
	s.lookForGrams()
	for _, x := range s.unresolved {
		if !x.got && !x.lost && !x.crashed {
			if text += fmt.Sprintf("unresolved: %v, %d bytes, in a queue %v\n", x.gramID, x.size, s.present(x)); len(text) > 4000 {
				return text + "and others\n"
			}
		}
	}
	return text
}

func (s *gramSimulation) describeGramLoops() (text string) {
	if s.core != nil {
		for _, d := range s.core.datagrams.all {
			text += s.describeGramLoop(d)
		}
	}
	return text
}

func (s *gramSimulation) describeGramLoop(d *datagrams) (text string) {
	text = fmt.Sprintf("loop %d: dropped %v\n", d.loop.Index, d.stats.Dropped)
	d.slab.Each(func(f *datagramFlow) {
		text += fmt.Sprintf("slot %d, flow %v: socket %d, own %d, kept %v, moved %+v, held %d, pending %d, blocked %v, events %#x, poll %#x\n", f.slot, f.Value(), f.fd, f.own, f.kept, f.moved, heldBytes(f.held),
			f.pending, f.blocked, f.events(), s.process.Poll(int(f.fd), sys.PollIn|sys.PollOut))
	})
	for _, p := range d.ports {
		text += fmt.Sprintf("port: socket %d, state %d, %d flows, blocked %v, poll %#x\n", p.fd, p.state, p.live()+len(p.paths), p.out.blocked, s.process.Poll(p.fd, sys.PollIn|sys.PollOut))
	}
	return text
}
