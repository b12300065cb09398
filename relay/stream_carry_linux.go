package relay

import (
	"time"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/sys"
)

const flowEvents = sys.In | sys.Out | sys.RdHup | sys.Pri | sys.Edge

// watch registers a side's socket with the loop's epoll.
func (s *streams) watch(f *streamFlow, side int) sys.Errno {
	return s.loop.Watch(int(f.fd[side]), flowEvents, f.ref().Token(side))
}

// mute stops watching a side for input while its half cannot deliver what it
// already holds. Without it, each segment that the source still sends wakes the
// loop in vain: nine of ten wake-ups of a bulk flow with a slow reader. It is called
// at the first such wake-up, so that a flow without one pays nothing.
func (s *streams) mute(f *streamFlow, side int) {
	if !f.muted[side] {
		f.muted[side] = true
		s.loop.Rewatch(int(f.fd[side]), flowEvents&^(sys.In|sys.Pri), f.ref().Token(side))
	}
}

// unmute watches the side again. If something has come meanwhile, there is an event.
func (s *streams) unmute(f *streamFlow, side int) {
	f.muted[side] = false
	s.loop.Rewatch(int(f.fd[side]), flowEvents, f.ref().Token(side))
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
	if !sys.HasError(s.env.Kernel, fd) {
		return
	}
	s.noteAsking(f, side)
	e := s.takeError(f, side)
	if e == 0 {
		s.noteFailed(f, CauseNone, 0)
		return
	}
	s.failed(f, side, e)
	if w == pump.WantWrite {
		s.rearm(f)
		return
	}
	s.end(f, f.cause, f.err)
}

// takeError takes the error of a side's socket, which is told once, and says what it means where the kernel has the TLS: there no read is told of it, either.
func (s *streams) takeError(f *streamFlow, side int) sys.Errno {
	e := sys.SockError(s.env.Kernel, int(f.fd[side]))
	if c := f.tls.inKernel(side); c != nil && e != 0 {
		e = c.Told(e)
		f.half[side].Err = e
	}
	return e
}

// relay begins to carry bytes. Both sides are connected.
func (s *streams) relay(f *streamFlow) {
	f.state = streamRelaying
	f.active = s.loop.Now
	for h := range f.half {
		half := &f.half[h]
		half.TCP, half.Exact = f.tcp[h], f.tcp[h] && !f.odd[h]
		half.Enlarge = !f.tcp[f.dstSide(h)]
		if s.env.Pipes == nil {
			half.Refuse(datapath.WhyOff)
		}
		f.tls.prepare(half, h)
		f.wait[h] = pump.WantRead
	}
	s.deliver(f)
	s.rearm(f)
	s.keepLater(f)
}

// deliver hands what is held to the half that writes to the upstream, which delivers it
// before anything that it reads.
func (s *streams) deliver(f *streamFlow) {
	x := f.early
	if x == nil {
		return
	}
	if x.held != nil {
		s.loopStats.BytesRead += int64(len(x.held) - x.own)
		env, b := s.envOf(f), x.held
		if f.tls != nil {
			b = env.Buffers.Get(len(x.held))
			copy(b, x.held)
			s.putHeld(x)
		}
		f.half[up].Give(env, b, x.own)
		s.turned(f)
		x.held, x.own = nil, 0
	}
	if x.pace.rate > 0 {
		x.pace.start(s.loop.Now, int(f.half[up].In-f.half[up].Out)) // without the preface
		return
	}
	s.freeEarly(f)
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
	most := budget
	if f.tls != nil && f.tls.tries > 0 {
		most = f.tls.short(h, budget)
	}
	s.noteTurn(f, h)
	f.tls.turn(h)
	f.wait[h] = half.Turn(s.envOf(f), int(f.fd[h]), dst, most)
	s.endTurnInner(f, h) // before the end is told by TLS
	s.endTurnTLS(f, h)
	s.env.Note = nil
	if f.early != nil {
		s.env.Hard = false
		f.early.pace.spend(h, half.In-in)
	}
	if f.muted[h] && f.wait[h] == pump.WantRead {
		s.unmute(f, h)
	}
	if half.In != in || half.Out != out {
		f.active = s.loop.Now
		s.loopStats.BytesRead += half.In - in
		s.loopStats.BytesWritten += half.Out - out
		s.loopStats.BytesSpliced += half.Spliced - spliced
		if f.echo { // what was written is what came back, too: see transfer
			s.loopStats.BytesRead += half.Out - out
			s.loopStats.BytesWritten += half.Out - out
			s.loopStats.BytesSpliced += half.Spliced - spliced
		}
		if (h == down || f.echo && half.Out != out) && f.firstByte == 0 {
			f.firstByte = max(1, s.loop.Now-f.start-f.connect)
		}
	}
	s.noteCounted(f, h)
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
			s.lag(f, s.loop.Now)
		}
		if f.odd[h] && f.wait[h] == pump.WantWrite {
			s.sideError(f, h) // whose event may have come before the half stalled
		}
	}
}

// halfEnd passes on the end of a direction, whose last byte has been delivered.
func (s *streams) halfEnd(f *streamFlow, h int) {
	f.active = s.loop.Now
	switch {
	case f.cause != CauseNone:
		s.endFailed(f)
	case f.over(1 - h):
		c, err := s.endCause(f)
		s.end(f, c, err) // close(2) includes what shutdown(2) would do
	default:
		s.noteHalfEnd(f, h)
		s.nameEnd(f, 1-h, s.goodEnd(f, h))
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
		side = f.endSide(h)
	}
	s.failed(f, side, half.Err)
	if !half.AtSrc { // what it held is dropped
		s.noteHalfFailed(f, h)
		half.Close(s.envOf(f))
		s.turned(f)
	}
	if half.AtSrc || f.over(1-h) {
		s.endFailed(f)
		return
	}
	s.rearm(f)
	if f.wait[1-h] == pump.WantRead {
		s.carry(f, 1-h)
	}
}

// endFailed ends a flow that has failed, of which neither half has anything to do.
func (s *streams) endFailed(f *streamFlow) {
	if s.undelivered(f) > 0 {
		s.noteWaits(f)
		s.rearm(f)
		return
	}
	s.end(f, f.cause, f.err)
}

// failed notes that the connection of a side has failed. The first failure is
// the flow's cause.
func (s *streams) failed(f *streamFlow, side int, e sys.Errno) {
	f.active = s.loop.Now
	if f.cause != CauseNone {
		return
	}
	f.err, f.cause = e, causeOf(side, e)
	f.tls.explain(f, side, e)
	s.explainInner(f, side, e)
	if said, ok := f.err.(sys.Errno); ok {
		e = said
	}
	s.noteFailed(f, f.cause, e)
}

// lag makes sure that f is looked at within lagWait.
func (s *streams) lag(f *streamFlow, at time.Duration) {
	if !f.inLagging {
		f.inLagging = true
		s.lagging.push(lagRef{f.ref(), at})
	}
}
