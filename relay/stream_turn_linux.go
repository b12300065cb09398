package relay

import (
	"os"
	"runtime"
	"time"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/tlsconn"
)

// readyBurst is how many flows that are ready have their next turn before events are taken again.
const readyBurst = 32

// init makes the share of an engine that uses pipes, which may be nil.
func (sh *streamShare) init(pipes *pump.Pipes) {
	sh.pipes = pipes
	sh.paused.most = acceptPause
	sh.computing.Limit = make(chan struct{}, runtime.GOMAXPROCS(0))
	sh.early.New = func() *earlyState { return new(earlyState) }
	sh.adoptions.New = func() *adoption { return new(adoption) }
}

// newStreams makes the streams of a loop, and adds them to the loop and the share.
func newStreams(t tenant, share *streamShare) *streams {
	s, all := &streams{tenant: t, share: share}, t.shared
	s.slab.Init(&t.loop.Slots, s)
	s.env = pump.Env{Kernel: all.kernel, Pipes: share.pipes, Lowat: all.cfg.LowWaterMark}
	if k := s.keep; k != nil {
		s.env.Buffers, s.env.Scratch = k.ledger.Arena(), k.ledger.Scratch()
	} else {
		s.env.Buffers, s.env.Scratch = &all.buffers, make([]byte, pump.ScratchSize)
	}
	s.tlsLoop.init(all)
	t.loop.Add(s)
	share.all = append(share.all, s)
	return s
}

// Event lets the half that reads from the side go on, and the half that writes to it.
func (s *streams) Event(slot uint32, side int, ev uint32) {
	f := s.slab.At(slot)
	s.seeOdd(f, side, ev)
	readable := ev&(sys.In|sys.RdHup|sys.Hup|sys.Err) != 0
	if f.state != streamRelaying {
		s.earlyEvent(f, side, ev, readable)
		return
	}
	gen := f.gen
	s.eventTLS(f, side, readable, ev&sys.Out != 0)
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
		if f.alive(gen) && f.endSide(h) == side && f.wait[h] == pump.WantWrite {
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
	if ev&sys.Out != 0 {
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
	case ev&sys.Err != 0, f.hungUp && (f.state == streamQueued || f.state == streamShort), f.ended && f.state == streamRetrying:
		s.end(f, CauseClientGone, nil)
	case f.state == streamSniffing && readable:
		s.sniff(f)
	}
}

// Turn ends a turn of the loop.
func (s *streams) Turn() (more bool) {
	if s.pause.until > 0 && s.pause.until <= s.loop.Now {
		s.endPause()
	}
	s.turnNotShort()
	s.turnSingly()
	s.turnShortFlows()
	s.turnClosing()
	s.turnReady()
	s.turnLagging()
	s.turnHandshakes()
	if s.keep != nil {
		s.keep.turn.End()
		s.keep.settleSome(s.loop.Now)
	}
	s.checkInvariants()
	return false
}

// turnReady gives some of the flows whose budget was spent their next turn. The others
// wait behind the events that have come meanwhile.
func (s *streams) turnReady() {
	for range min(s.ready.len(), readyBurst) {
		r := s.ready.pop()
		f := s.slab.Find(r)
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
			if f.alive(r.Gen) && f.wait[h] == pump.Again {
				s.carry(f, h)
			}
		}
	}
}

// turnLagging reads tails that the low-water mark holds back.
func (s *streams) turnLagging() {
	for s.lagging.len() > 0 && s.lagging.first().at+lagWait <= s.loop.Now {
		r := s.lagging.pop()
		f := s.slab.Find(r.ref)
		if f == nil {
			continue
		}
		f.inLagging = false
		if f.active+lagWait > s.loop.Now { // it is streaming: the kernel wakes us
			s.lag(f, f.active)
			continue
		}
		for h := range f.half {
			if f.alive(r.Gen) && f.wait[h] == pump.WantRead && f.half[h].Lagging() {
				s.carry(f, h)
			}
		}
	}
}

func (s *streams) Until() time.Duration {
	if s.ready.len() > 0 || s.pause.again || len(s.closingPorts) > 0 && s.pause.until == 0 || s.short.again && s.short.flows.len() > 0 {
		return 0
	}
	if s.pause.until == 0 && s.short.loop.Load() {
		return 0 // turnNotShort
	}
	at := s.handshakesUntil()
	if s.lagging.len() > 0 {
		at = min(at, s.lagging.first().at+lagWait)
	}
	if s.pause.until > 0 {
		at = min(at, s.pause.until)
	}
	if s.keep != nil {
		at = min(at, s.keep.until())
	}
	return at
}

// Due looks at a flow whose timer came up, which may be early. Timers come up behind Turn, which would end the note otherwise.
func (s *streams) Due(slot uint32) {
	s.due(s.slab.At(slot))
	if s.keep != nil {
		s.keep.turn.End()
	}
}

func (s *streams) due(f *streamFlow) {
	gen := f.gen
	if f.throttled {
		s.unthrottle(f) // which may be what keeps it from being idle
		if !f.alive(gen) {
			return
		}
	}
	d := f.deadline()
	due := d.cause != CauseNone && d.at <= s.loop.Seen
	switch {
	case s.delivers(f):
		s.delivering(f, due)
	case !due && f.backlogFull:
		s.redial(f)
	case !due && f.state == streamRetrying && f.retryAt() <= s.loop.Now:
		s.retry(f)
	case !due:
		s.rearm(f)
	case f.cause != CauseNone:
		s.end(f, f.cause, f.err)
	case f.state == streamSecuring && d.cause == f.tls.failure():
		s.handshakeFailed(f, os.ErrDeadlineExceeded)
	case d.cause == CauseClientGone:
		s.end(f, d.cause, os.ErrDeadlineExceeded) // it does not take its reply
	case d.cause == CauseRefused:
		s.show(f, true)
	case f.state == streamAsking && d.cause == CauseConnectTimeout:
		s.answerFailed(f, os.ErrDeadlineExceeded)
	case d.cause == CauseConnectTimeout:
		s.connectFailed(f, os.ErrDeadlineExceeded)
	default:
		s.end(f, d.cause, nil)
	}
}

// Request accepts clients, begins the flow of a pair, goes on with a handshake, or resumes a flow.
func (s *streams) Request(r *loop.Request) {
	switch x := r.Arg.(type) {
	case *streamPort:
		s.answer(x)
	case *adoption:
		s.adopt(x)
		*x = adoption{}
		s.share.adoptions.Put(x)
	case *leg:
		s.adoptLeg(x)
	case *tlsconn.Conn:
		s.handshakeTurn(r.Ref, x)
	default:
		s.resume(r.Ref)
	}
}

// Freed makes the loops that share one table of descriptors accept again.
func (s *streams) Freed() {
	if s.share.paused.loops.Load() > 0 {
		s.endPauses()
	}
}

// Spare reports that streams have no descriptor that they can do without.
func (s *streams) Spare() bool { return false }

// Close ends all flows; ports that close take what waits for the last time.
func (s *streams) Close() {
	s.expireClosing()
	s.turnClosing()
	s.slab.Each(func(f *streamFlow) { s.end(f, CauseClosed, nil) })
}

// HandOver settles what is left, and ends what cannot be. Clients that still wait at a listener that is being
// closed are the next process's: it accepts them if it listens there, and otherwise closes the socket.
func (s *streams) HandOver() {
	for _, p := range s.closingPorts {
		p.closed.Done()
	}
	if s.lingering == nil { // or closeHeld closes their sockets
		s.closingPorts = nil
	}
	var split []splitFlow
	if s.lingering != nil {
		split = s.splitAll()
	}
	s.slab.Each(func(f *streamFlow) {
		if f.state != streamRelaying && !f.kept {
			s.keep.unsettled.push(unsettledRef{f.ref(), s.loop.Now})
		}
	})
	s.keep.settleAll(s.loop.Now)
	s.loop.Now = s.loop.Clock() // it may have waited for the holder
	for _, x := range split {
		s.leave(x, s.lingering)
	}
	s.slab.Each(func(f *streamFlow) {
		if !f.kept && s.keep.ledger.Record(f.slot).Generation() != f.gen {
			s.end(f, CauseCrashed, nil)
		}
	})
	s.keep.turn.End()
}
