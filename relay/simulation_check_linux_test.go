package relay

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/sys"
)

const (
	simFlowsMost = 10
	simAfter     = 100 * time.Millisecond
	simForever   = time.Hour
	simIdle      = 4 * time.Second
)

var simContext = context.Background()

// simLooked is memory that a look uses.
type simLooked struct {
	pipes []uint32
	info  FlowInfo
}

// look checks what must be true between two turns: docs/invariants.md, 25 to 30.
func (s *simulation) look() {
	if s.core == nil || s.wrong != nil {
		return
	}
	s.looked.pipes = s.looked.pipes[:0]
	leased := int64(0)
	for _, st := range s.core.streams.all {
		leased += s.lookAt(st)
		s.lookAtWatches(st)
	}
	if got := pipeStats(s.core).Leased; got != leased {
		s.fail("%d pipes are leased, and halves have %d", got, leased)
	}
	if taken := s.core.descriptors.taken(); taken < 0 {
		s.fail("%d descriptors are taken", taken)
	}
	s.lookAtClients() // first: who was lost with a process may be reset
	for _, f := range s.flows {
		if f.unexplained != "" && !f.mayReset() && !s.lingererFails(f) {
			s.fail("flow %d: %s, and nobody has done anything to it", f.id, f.unexplained)
		}
		f.unexplained = ""
	}
	s.lookAtGauges()
	s.lookAtPauses()
	s.lookAtOptions()
	s.lookAtDrain()
}

// lookAt looks at a loop's flows, and returns how many pipes they lease.
func (s *simulation) lookAt(st *streams) (leased int64) {
	if len(st.closingPorts) > 0 && st.pause.until == 0 && st.Until() > 0 {
		s.fail("loop %d sleeps, and clients may wait at a listener that closes", st.loop.Index)
	}
	k := st.keep
	begun := st.handshakes()
	var kept int64
	st.slab.Each(func(f *streamFlow) {
		if t := f.tls; f.state == streamSecuring && t.begun && begun[f.ref()] != t.since {
			s.fail("the handshake of the flow in slot %d goes on since %v, and is among those that others wait for since %v", f.slot, t.since, begun[f.ref()])
		}
		s.seen.states[f.stateOf()]++
		for h := range f.half {
			half := &f.half[h]
			if _, n := half.Memory(); n > 0 {
				leased++
			}
			if half.In-half.Raw() != int64(half.Held()) && f.wait[h] != pump.Failed && f.cause == CauseNone {
				s.fail("flow in slot %d: %d bytes taken, %d delivered and %d held", f.slot, half.In, half.Out, half.Held())
			}
		}
		if x := s.flowOf(&f.Flow); x != nil {
			x.kept, x.ref, x.loop = f.kept, f.ref(), st.loop.Index
			s.lookAtPace(x, f)
			s.lookAtTold(&x.told, int(x.id), &f.Flow, true)
			if f.echo != (x.builtin == Echo) && f.state == streamRelaying {
				s.fail("the flow in slot %d returns what its client sends: %v, and its upstream is %v", f.slot, f.echo, x.builtin)
			}
			for side := range x.half {
				if h := &x.half[side]; len(h.urgent) > 0 && f.fd[side] >= 0 {
					c, _ := s.process.TCPCounts(int(f.fd[side]))
					h.waits = c.Urgent && f.odd[side] // or the event waits, and that of the other side can come first
				}
			}
			x.timedOut = x.timedOut || s.scarce && (f.cause == CauseClientFailed || f.cause == CauseUpstreamFailed)
			if n := f.half[up].In + f.half[up].Out + f.half[down].In + f.half[down].Out; n != x.moved {
				x.moved, x.movedAt = n, s.world.Elapsed()
			}
		}
		if !f.kept {
			return
		}
		kept++
		r := k.ledger.Record(f.slot)
		if r.Generation() != f.gen {
			s.fail("the flow in slot %d is kept and has no record", f.slot)
			return
		}
		if x := s.keeper.held[k.flowKey(f.ref())]; len(x.FDs) != f.sockets() && !s.keeper.refused(k.flowKey(f.ref())) {
			s.fail("the flow in slot %d is kept, and %d of its sockets are held", f.slot, len(x.FDs))
		}
		want, mask := f.flags(), uint32((recordRecvOne|recordSendOne|recordFinSent)*3|recordTCP*3|recordFailed*3)
		for h := range f.half {
			switch half := &f.half[h]; {
			case f.wait[h] != pump.Failed:
			case half.AtSrc: // it waits for what has not arrived yet: the next process finds the error in the half's record
				if e := sys.Errno(r.Half(h).Errno()); e != half.Err {
					s.fail("half %d in slot %d has failed with %v, and its record says %v", h, f.slot, half.Err, e)
				}
			default:
				want |= recordFailed << h
			}
		}
		for side, tcp := range f.tcp {
			if tcp && f.fd[side] >= 0 {
				want |= recordTCP << side
				s.lookAtReads(f, side, r.Flags())
			}
		}
		if st.delivers(f) { // an end that comes meanwhile is not passed on
			mask &^= recordFinSent * 3
		}
		if r.Flags()&mask != want&mask {
			s.fail("the record in slot %d has the flags %#x, and the flow %#x", f.slot, r.Flags()&mask, want)
		}
		if Cause(r.Cause()) != f.cause || r.State() != recordRelaying {
			s.fail("the record in slot %d has state %d and cause %s, and the flow %s", f.slot, r.State(), Cause(r.Cause()), f.cause)
		}
		if e, ok := f.err.(sys.Errno); ok && f.cause != CauseNone && sys.Errno(r.Errno()) != e {
			s.fail("the record in slot %d has the error %v, and the flow %v", f.slot, sys.Errno(r.Errno()), e)
		}
		for h := range f.half {
			half, rec := &f.half[h], r.Half(h)
			if rec.In() != half.In || rec.Out() != half.Raw() {
				s.fail("the record in slot %d says %d and %d, and the half has %d and %d", f.slot, rec.In(), rec.Out(), half.In, half.Raw())
			}
			_, piped := half.Memory()
			if _, n := rec.Block(); (n > 0) != (half.Held() > piped) || (rec.Pipe() != 0) != (piped > 0) {
				s.fail("the record in slot %d says a block of %d bytes and pipe %d, and the half holds %d bytes, of them %d in a pipe", f.slot, n, rec.Pipe(), half.Held(), piped)
			}
			if p := rec.Pipe(); p != 0 {
				if slices.Contains(s.looked.pipes, p) {
					s.fail("slot %d and another name pipe %d", f.slot, p)
				}
				s.looked.pipes = append(s.looked.pipes, p)
			}
		}
	})
	if st.loopStats.Kept != kept {
		s.fail("%d flows are kept, and %d are counted", kept, st.loopStats.Kept)
	}
	return leased
}

// settle lets all happen that is under way, until nothing does any more. Peers read what comes, and if end is set they end what they
// send.
func (s *simulation) settle(end bool) {
	s.failCalls(nil)
	s.faults = nil
	s.settling = true
	defer func() { s.settling = false }()
	s.process.DieAfter(0)
	for _, l := range s.lingerers {
		l.process.DieAfter(0)
	}
	s.keeper.fails = 0
	s.memoryIsBack(s.call)
	still := 0
	for turns := 0; (still < 4 || still < 12 && s.retries() || end && still < 100 && s.fails()) && s.wrong == nil; turns++ {
		if turns > 20_000 {
			s.fail("there is no end:\n%s", s.describe())
			return
		}
		before := s.progress()
		if s.keeper.real != nil && s.keeper.real.rest() {
			still = 0
		}
		s.computeAll()
		s.turn()
		s.arrive()
		s.pumpAll()
		for _, f := range s.flows {
			s.resume(f)
			s.say(f, 1<<18)
			for side := range f.fd {
				s.read(f, side, 1<<18)
				if end {
					s.end(f, side)
				}
			}
		}
		s.keeper.closeDropped()
		if s.progress() != before || s.world.InFlight() > 0 {
			still = 0
			continue
		}
		still++
		s.world.Sleep(simAfter + 10*time.Millisecond)
	}
}

// arrive has all arrive that is under way, connects too.
func (s *simulation) arrive() {
	for s.world.InFlight() > 0 {
		s.world.Deliver(0, 1<<30)
	}
	for i := s.world.Connecting(); i > 0; i-- {
		s.world.Answer(i-1, 0)
	}
	s.accept()
}

// retries reports whether a flow waits to try its upstream again, which takes up to retryMost.
func (s *simulation) retries() (some bool) {
	for _, st := range s.core.streams.all {
		st.slab.Each(func(f *streamFlow) { some = some || f.state == streamRetrying })
	}
	return some
}

// simRest is how long loops must be able to rest for, and simWakes how often one may wake up meanwhile, for timers: those of flows come up early,
// and a loop is woken for those of others here.
const simRest, simWakes = 300 * time.Millisecond, 100

// sleeps checks that loops sleep when nothing is under way any more, and have nothing left to do.
func (s *simulation) sleeps() {
	if s.wrong != nil {
		return
	}
	s.settling = true
	waits, calls := s.rest(simRest, "recv", "recv-one", "send", "send-one", "splice", "read-pipe", "accept")
	s.settling = false
	if most := 4 * (1 + len(s.flows)); waits > simWakes || calls > most {
		s.fail("nothing happens any more, and in %v a loop has waited %d times, and there were %d calls\n%s", simRest, waits, calls, s.describe())
	}
	for _, st := range s.core.streams.all {
		if st.short.loop.Load() && st.pause.until == 0 && st.Until() > 0 { // or its pause has just ended
			s.fail("loop %d sleeps, and waits for descriptors\n%s", st.loop.Index, s.describe())
		}
		st.slab.Each(func(f *streamFlow) {
			for side, fd := range f.fd {
				if fd < 0 || !f.tcp[side] || f.odd[side] || f.wait[side] == pump.Failed { // nobody reads from it any more, or counts what was read
					continue
				}
				if c, e := s.process.TCPCounts(int(fd)); e == 0 && c.Urgent {
					s.fail("urgent data waits at side %d of the flow in slot %d, and the loop does not know\n%s", side, f.slot, s.describe())
				}
			}
		})
	}
}

// quiet checks what must be true when nothing is under way any more and peers have read what came: all that was sent has arrived,
// though nobody has ended anything. An event that is missed has no other chance to be noticed.
func (s *simulation) quiet() {
	if s.drain.over && s.core.flows() > 0 {
		s.fail("there are %d flows, and the drain's time is over\n%s", s.core.flows(), s.describe())
	}
	for _, f := range s.flows {
		if f.fd[sideUpstream] < 0 && s.waitsForFiles() {
			continue
		}
		for side := range f.half {
			if h := &f.half[side]; h.got != h.sent && !f.mayReset() && !s.lingererFails(f) && f.half[up].sent >= int64(f.plan.sniff) {
				s.fail("flow %d: of %d bytes that side %d has sent, %d have arrived, and nothing happens any more\n%s", f.id, h.sent, side, h.got, s.describe())
			}
		}
	}
	s.discards()
	s.unsaid()
	s.lookAtAddresses()
	s.sleeps()
}

// sockets returns how many a flow has that relays.
func (f *streamFlow) sockets() int {
	if f.to.Network.BuiltIn() {
		return 1
	}
	return 2
}

// waitsForFiles reports whether descriptors are scarce, and somebody waits for flows to end.
func (s *simulation) waitsForFiles() bool {
	return s.files > 0 && slices.ContainsFunc(s.core.streams.all, func(st *streams) bool { return st.pause.until != 0 || st.short.loop.Load() || st.short.flows.len() > 0 })
}

// timeOut lets all flows that there still are time out.
func (s *simulation) timeOut() {
	rounds := 1
	if s.files > 0 {
		rounds += len(s.flows) // who waits for descriptors begins when others have timed out
	}
	for until := s.world.Elapsed() + time.Duration(rounds)*(s.idle+time.Second); s.world.Elapsed() < until && s.wrong == nil; {
		s.world.Sleep(50 * time.Millisecond)
		s.computeAll()
		s.turn()
		s.arrive()
		s.pumpAll()
		for _, f := range s.flows {
			if f.answers() { // it has no time-out before that
				s.read(f, sideUpstream, 1<<18)
				s.say(f, 1<<18)
			}
		}
	}
	for _, f := range s.flows {
		if f.records == 0 && !f.lost {
			s.fail("flow %d should have timed out\n%s", f.id, s.describe())
		}
	}
}

// progress changes when something happens.
func (s *simulation) progress() string {
	n := 0
	for _, f := range s.flows {
		n += f.records + len(f.words.owed)<<20
		for side := range f.fd {
			if f.half[side].end || f.half[side].failed {
				n += 1 << 8
			}
			if f.fd[side] < 0 {
				n += 1 << 16
			}
		}
	}
	return fmt.Sprint(s.delivered, s.discarded(), n, len(s.accepted), s.attempts, s.world.Connecting(), s.core.streams.flows(), s.movedTLS(), len(s.lingerers))
}

// check checks what must be true at the end, when all peers have ended and read what they got.
func (s *simulation) check() {
	if s.wrong != nil {
		return
	}
	for _, f := range s.flows {
		if f.records != 1 && !(f.records == 0 && f.lost) {
			s.fail("flow %d has %d records", f.id, f.records)
		}
		for side := range f.half {
			h, mayReset := &f.half[side], f.mayReset() || s.lingererFails(f)
			if f.fd[1-side] >= 0 && !h.end {
				s.fail("flow %d: side %d waits for side %d, and the flow is over", f.id, 1-side, side)
			}
			if n := h.got + h.overtaken; !mayReset && f.records == 1 && n != f.written[side] && (f.builtin != Discard || s.deaths == 0) {
				s.fail("flow %d: %d bytes that side %d has sent have arrived, and the record says %d", f.id, n, side, f.written[side])
			}
			if !mayReset && (!h.end || h.got != h.sent) {
				s.fail("flow %d: of %d bytes that side %d has sent, %d have arrived, and the end: %v\n%s", f.id, h.sent, side, h.got, h.end, s.describe())
			}
		}
	}
	c, sockets := s.core, 0
	if c.streams.flows() != 0 {
		s.fail("%d flows are left\n%s", c.streams.flows(), s.describe())
	}
	if n := pipeStats(c).Leased; n != 0 {
		s.fail("%d pipes are leased at the end", n)
	}
	var sum simCounts
	ahead := int64(0)
	for _, st := range c.streams.all {
		s.checkLoop(st)
		sum.read += st.loopStats.BytesRead
		sum.written += st.loopStats.BytesWritten
		sum.spliced += st.loopStats.BytesSpliced
		s.restored += st.loopStats.Restored
		ahead += st.descriptors.ahead
	}
	s.spliced = sum.spliced
	if sum != s.recorded && !s.damaged && !slices.ContainsFunc(s.flows, func(f *simFlow) bool { return f.lost || f.crashed }) {
		s.fail("the loops have counted %+v, and records say %+v", sum, s.recorded)
	}
	for l := range c.listeners {
		sockets += len(l.sockets())
	}
	s.checkCounts()
	if s.keeper.real != nil {
		s.keeper.real.calm()
	}
	s.checkPipes()
	held := s.keeper.kinds(c.holding)
	if held[holdFlow] != 0 || held[holdPipe] != int(pipeStats(c).Open) && !s.keeper.full() || held[holdListener] != sockets && !s.keeper.full() || held[holdLedger] != len(c.loops) {
		s.fail("by kind, this is held at the end: %v; %d pipes are open, and %d sockets of listeners", held, pipeStats(c).Open, sockets)
	}
	if d := &s.drain; d.begun && !d.done && !d.over {
		s.fail("Drain would wait for ever")
	}
	if len(s.lingerers) > 0 {
		s.fail("%d processes linger, and all flows have ended", len(s.lingerers))
	}
	if len(s.accepted) > 0 {
		s.fail("%d connections of upstreams are nobody's at the end", len(s.accepted))
	}
	// An epoll instance, an eventfd and a ledger for each loop, the listeners, and the pipes that rest.
	if open, want := s.process.Open(), 3*len(c.loops)+sockets+2*int(pipeStats(c).Open)+s.keeper.connections(); open != want {
		s.fail("%d descriptors are open at the end, rather than %d", open, want)
	}
	if n := s.process.Mapped(); n != len(c.loops) {
		s.fail("%d ledgers are mapped at the end, and there are %d loops", n, len(c.loops))
	}
	promised := c.descriptors.promised()
	if taken := c.descriptors.taken() - 2*pipeStats(c).Open - ahead; taken != 0 || promised != ahead {
		s.fail("%d descriptors are taken, and %d promised, at the end; %d ahead", taken, promised, ahead)
	}
}

// checkLoop checks what must be true of a loop at the end.
func (s *simulation) checkLoop(st *streams) {
	stats := st.loopStats
	switch {
	case stats.Kept != 0:
		s.fail("%d flows are kept at the end", stats.Kept)
	case st.env.Held != 0:
		s.fail("%d bytes of buffers are held at the end", st.env.Held)
	case stats.BytesRead != stats.BytesWritten+stats.BytesDropped:
		s.fail("%d bytes read, %d written, %d dropped", stats.BytesRead, stats.BytesWritten, stats.BytesDropped)
	case st.keep.ledger.Arena().Used() != 0:
		s.fail("%d bytes of the ledger's blocks are lent at the end", st.keep.ledger.Arena().Used())
	}
	ended := int64(0)
	for _, n := range stats.Ended {
		ended += n
	}
	if stats.Accepted != ended {
		s.fail("%d flows were accepted, and %d have ended", stats.Accepted, ended)
	}
	for slot := range st.keep.ledger.All() {
		s.fail("slot %d has a record at the end", slot)
	}
}

// finish gives back the memory.
func (s *simulation) finish() {
	s.stopPeers()
	if s.core != nil {
		s.drop(false)
	}
	for len(s.lingerers) > 0 {
		s.dropLingerer(s.lingerers[0])
	}
	s.keeper.close()
	s.giveBack()
}

// describe tells what there is.
func (s *simulation) describe() (text string) {
	for _, f := range s.flows {
		text += fmt.Sprintf("flow %d: broken %v, lost %v, crashed %v, timed out %v, kept %v, %d records, descriptors %v, sent and got %+v\n", f.id, f.broke, f.lost, f.crashed, f.timedOut, f.kept, f.records, f.fd, f.half)
		for side, fd := range f.fd {
			if fd >= 0 {
				c, _ := s.peers.TCPCounts(fd)
				in, _ := s.peers.ReadQueued(fd)
				text += fmt.Sprintf("  peer %d: %+v, %d to read, poll %#x\n", side, c, in, s.peers.Poll(fd, sys.PollIn|sys.PollOut))
			}
		}
	}
	if s.core == nil {
		return text
	}
	for _, st := range s.core.streams.all {
		text += s.describeLoop(st)
	}
	return text + fmt.Sprintf("%d deaths, %d upgrades, time %v, the loops wait until %v\n", s.deaths, s.upgrades, s.world.Elapsed(), s.process.WaitsUntil())
}

func (s *simulation) describeLoop(st *streams) (text string) {
	st.slab.Each(func(f *streamFlow) {
		text += fmt.Sprintf("loop %d, slot %d, client %s: state %d, waits %v, kept %v, cause %s, %v, odd %v\n", st.loop.Index, f.slot, f.peer, f.state, f.wait, f.kept, f.cause, f.err, f.odd)
		for h := range f.half {
			text += fmt.Sprintf("  half %d: %d in, %d out, %d held\n", h, f.half[h].In, f.half[h].Out, f.half[h].Held())
		}
		for side, fd := range f.fd {
			if fd >= 0 {
				c, _ := s.process.TCPCounts(int(fd))
				in, _ := s.process.ReadQueued(int(fd))
				text += fmt.Sprintf("  side %d: %+v, %d to read, poll %#x\n", side, c, in, s.process.Poll(int(fd), sys.PollIn|sys.PollOut|sys.PollRdHup))
			}
		}
	})
	return text
}
