package relay

import (
	"time"

	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/sys"
)

// event lets the half that reads from the side go on, and the half that writes to it.
func (s *streams) event(slot uint32, side int, ev uint32) {
	f := s.slab.at(slot)
	if ev&(sys.Pri|sys.RdHup|sys.Hup|sys.Err) != 0 {
		f.odd[side] = true
		f.half[side].Exact = false
		if f.kept {
			s.noteOdd(f, side, ev&sys.Pri != 0)
		}
	}
	readable := ev&(sys.In|sys.RdHup|sys.Hup|sys.Err) != 0
	if f.state != streamRelaying {
		s.earlyEvent(f, side, ev, readable)
		return
	}
	gen := f.gen
	if f.tls != nil {
		s.eventTLS(f, side, readable, ev&sys.Out != 0)
	}
	switch {
	case !readable:
	case f.wait[side] == pump.WantRead:
		s.carry(f, side)
	case f.wait[side] == pump.WantWrite:
		s.mute(f, side)
	}
	if ev&(sys.Out|sys.Hup|sys.Err) == 0 {
		return
	}
	for h := range f.half {
		if f.alive(gen) && f.dstSide(h) == side && f.wait[h] == pump.WantWrite {
			s.carry(f, h)
		}
	}
	if ev&sys.Err == 0 || !f.alive(gen) {
		return
	}
	s.sideError(f, side)
}

// earlyEvent handles an event of a flow that does not relay yet.
func (s *streams) earlyEvent(f *streamFlow, side int, ev uint32, readable bool) {
	f.hungUp = f.hungUp || side == sideClient && ev&sys.Hup != 0
	f.ended = f.ended || side == sideClient && ev&sys.RdHup != 0
	f.pending = f.pending || side == sideClient && readable
	if f.tls != nil && ev&sys.Out != 0 {
		s.flushTLS(f, side)
	}
	if side == sideClient && ev&(sys.Out|sys.Err) == sys.Out && f.early != nil && len(f.early.reply) > 0 {
		gen, state := f.gen, f.state
		if s.replyTurn(f); !f.alive(gen) || f.state != state {
			return // it has gone on
		}
	}
	switch {
	case f.state == streamSecuring && side == f.tls.side:
		s.exchange(f)
	case f.state == streamAsking && side == sideUpstream:
		s.askTurn(f)
	case side == sideUpstream && f.state == streamReplying: // start has a look
	case side == sideUpstream:
		s.connectEvent(f, ev)
	case ev&sys.Err != 0, f.hungUp && (f.state == streamQueued || f.state == streamStarved), f.ended && f.state == streamRetrying:
		s.end(f, CauseClientGone, nil)
	case f.state == streamSniffing && readable:
		s.sniff(f)
	}
}

const flowEvents = sys.In | sys.Out | sys.RdHup | sys.Pri | sys.Edge

// watch registers a side's socket with the loop's epoll.
func (s *streams) watch(f *streamFlow, side int) sys.Errno {
	return s.loop.watch(int(f.fd[side]), flowEvents, f.ref().token(side))
}

// mute stops watching a side for input while its half cannot deliver what it
// already holds. Without it, each segment that the source still sends wakes the
// loop in vain: nine of ten wake-ups of a bulk flow with a slow reader. It is called
// at the first such wake-up, so that a flow without one pays nothing.
func (s *streams) mute(f *streamFlow, side int) {
	if !f.muted[side] {
		f.muted[side] = true
		s.loop.rewatch(int(f.fd[side]), flowEvents&^(sys.In|sys.Pri), f.ref().token(side))
	}
}

// unmute watches the side again. If something has come meanwhile, there is an event.
func (s *streams) unmute(f *streamFlow, side int) {
	f.muted[side] = false
	s.loop.rewatch(int(f.fd[side]), flowEvents, f.ref().token(side))
}

// sideError handles a side's error if no turn of its half is due that would find it: the
// half holds bytes for the other side, is throttled, or has ended. What it holds has a
// while to be delivered, as after a failed write.
func (s *streams) sideError(f *streamFlow, side int) {
	w := f.wait[side]
	if w == pump.WantRead || w == pump.Again && !f.throttled || f.cause != CauseNone {
		return
	}
	fd := int(f.fd[side])
	if !sys.HasError(fd) {
		return
	}
	if f.kept {
		s.keep.turn.Begin(f.slot, f.gen)
		s.noteFailed(f, causeOf(side, sys.ECONNRESET), sys.ECONNRESET) // the socket tells its error only once
	}
	e := sys.SockError(fd)
	if e == 0 {
		if f.kept {
			s.noteFailed(f, CauseNone, 0)
		}
		return
	}
	s.failed(f, side, e)
	if w == pump.WantWrite {
		s.rearm(f)
		return
	}
	s.end(f, f.cause, f.err)
}

// relay begins to carry bytes. Both sides are connected.
func (s *streams) relay(f *streamFlow) {
	f.state = streamRelaying
	f.active = s.loop.now
	for h := range f.half {
		half := &f.half[h]
		half.TCP, half.Exact = f.tcp[h], f.tcp[h] && !f.odd[h]
		half.Enlarge = !f.tcp[f.dstSide(h)]
		if s.env.Pipes == nil {
			half.Refuse(pump.WhyOff)
		}
		if f.tls != nil {
			f.tls.prepare(half, h)
		}
		f.wait[h] = pump.WantRead
	}
	s.deliver(f)
	s.rearm(f)
	if s.keep != nil && !f.kept && f.tls == nil && (f.listener != nil || s.named(f)) {
		s.keep.add(f.ref(), s.loop.now)
	}
}

// carry lets one half move bytes, and handles the state that it is in afterwards.
func (s *streams) carry(f *streamFlow, h int) {
	half := &f.half[h]
	in, out, spliced := half.In, half.Out, half.Spliced
	dst := int(f.fd[f.dstSide(h)])
	budget := turnBudget
	if f.early != nil {
		budget = s.paced(f, h)
	}
	if f.kept {
		s.noteTurn(f, h)
	}
	if f.tls.has(h) {
		f.tls.conn[h].Turn()
	}
	f.wait[h] = half.Turn(s.envOf(f), int(f.fd[h]), dst, budget)
	if f.tls != nil {
		s.turned(f)
		f.tls.leaves(f, h)
		s.finish(f, h)
	}
	s.env.Note = nil
	if f.early != nil {
		s.env.Hard = false
		f.early.pace.spend(h, half.In-in)
	}
	if f.muted[h] && f.wait[h] == pump.WantRead {
		s.unmute(f, h)
	}
	if half.In != in || half.Out != out {
		f.active = s.loop.now
		s.loop.stats.BytesRead += half.In - in
		s.loop.stats.BytesWritten += half.Out - out
		s.loop.stats.BytesSpliced += half.Spliced - spliced
		if f.echo { // what was written is what came back, too: see transfer
			s.loop.stats.BytesRead += half.Out - out
			s.loop.stats.BytesWritten += half.Out - out
			s.loop.stats.BytesSpliced += half.Spliced - spliced
		}
		if (h == down || f.echo && half.Out != out) && f.firstByte == 0 {
			f.firstByte = max(1, s.loop.now-f.start-f.connect)
		}
	}
	if f.kept {
		s.noteCounted(f, h)
	}
	switch f.wait[h] {
	case pump.Again:
		if budget < turnBudget {
			s.throttle(f)
			break
		}
		s.makeReady(f)
	case pump.End:
		s.halfEnd(f, h)
	case pump.Failed:
		s.halfFailed(f, h)
	default:
		if half.Lagging() {
			s.lag(f, s.loop.now)
		}
		if f.odd[h] && f.wait[h] == pump.WantWrite {
			s.sideError(f, h) // whose event may have come before the half stalled
		}
	}
}

// makeReady puts the flow behind the others that are ready for another turn.
func (s *streams) makeReady(f *streamFlow) {
	if !f.inReady {
		f.inReady = true
		s.ready.push(f.ref())
	}
}

// over reports whether half h has ended or failed.
func (f *streamFlow) over(h int) bool { return f.wait[h] == pump.End || f.wait[h] == pump.Failed }

// halfEnd passes on the end of a direction, whose last byte has been delivered.
func (s *streams) halfEnd(f *streamFlow, h int) {
	f.active = s.loop.now
	switch {
	case f.cause != CauseNone:
		s.endFailed(f)
	case f.over(1 - h):
		c, err := f.tls.outcome()
		s.end(f, c, err) // close(2) includes what shutdown(2) would do
	default:
		if f.kept {
			f.one |= oneRecv << (1 - h) // once it is closed, nobody knows if its counter includes an end
			s.noteFlags(f, 0)
		}
		s.env.Kernel.ShutdownWrite(int(f.fd[1-h]))
		s.rearm(f)
	}
}

// halfFailed ends a flow of which one side has failed. If it was a write that failed,
// what that side has already sent is delivered first.
func (s *streams) halfFailed(f *streamFlow, h int) {
	half := &f.half[h]
	side := h
	if !half.AtSrc {
		side = f.dstSide(h)
	}
	s.failed(f, side, half.Err)
	if half.AtSrc || f.over(1-h) {
		s.endFailed(f)
		return
	}
	if f.kept {
		s.noteHalfFailed(f, h)
	}
	half.Close(s.envOf(f))
	s.turned(f)
	s.rearm(f)
	if f.wait[1-h] == pump.WantRead {
		s.carry(f, 1-h)
	}
}

// endFailed ends a flow that has failed, of which neither half has anything to do.
func (s *streams) endFailed(f *streamFlow) {
	if f.tls != nil && s.undelivered(f) > 0 {
		s.rearm(f)
		return
	}
	s.end(f, f.cause, f.err)
}

// failed notes that the connection of a side has failed. The first failure is
// the flow's cause.
func (s *streams) failed(f *streamFlow, side int, e sys.Errno) {
	f.active = s.loop.now
	if f.cause != CauseNone {
		return
	}
	f.err, f.cause = e, causeOf(side, e)
	if f.tls != nil {
		f.tls.explain(f, side, e)
	}
	if f.kept {
		s.noteFailed(f, f.cause, e)
	}
}

// causeOf returns the cause of a flow of which a side has failed with e.
func causeOf(side int, e sys.Errno) Cause {
	reset := e == sys.ECONNRESET || e == sys.EPIPE
	switch {
	case reset && side == sideClient:
		return CauseClientReset
	case reset:
		return CauseUpstreamReset
	case side == sideClient:
		return CauseClientFailed
	}
	return CauseUpstreamFailed
}

// turnReady gives some of the flows whose budget was spent their next turn. The others
// wait behind the events that have come meanwhile.
func (s *streams) turnReady() {
	for range min(s.ready.len(), readyBurst) {
		r := s.ready.pop()
		f := s.slab.find(r)
		if f == nil {
			continue
		}
		f.inReady = false
		switch f.state {
		case streamSniffing:
			s.sniff(f)
			continue
		case streamSecuring:
			s.exchange(f)
			continue
		}
		for h := range f.half {
			if f.alive(r.gen) && f.wait[h] == pump.Again {
				s.carry(f, h)
			}
		}
	}
}

// turnLagging reads tails that the low-water mark holds back.
func (s *streams) turnLagging() {
	for s.lagging.len() > 0 && s.lagging.first().at+lagWait <= s.loop.now {
		r := s.lagging.pop()
		f := s.slab.find(r.ref)
		if f == nil {
			continue
		}
		f.inLagging = false
		if f.active+lagWait > s.loop.now { // it is streaming: the kernel wakes us
			s.lag(f, f.active)
			continue
		}
		for h := range f.half {
			if f.alive(r.gen) && f.wait[h] == pump.WantRead && f.half[h].Lagging() {
				s.carry(f, h)
			}
		}
	}
}

// lag makes sure that f is looked at within lagWait.
func (s *streams) lag(f *streamFlow, at time.Duration) {
	if !f.inLagging {
		f.inLagging = true
		s.lagging.push(lagRef{f.ref(), at})
	}
}

// dstSide returns the side that half h writes to.
func (f *streamFlow) dstSide(h int) int {
	if f.echo {
		return h
	}
	return 1 - h
}
