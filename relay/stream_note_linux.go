package relay

import (
	"github.com/penstock/penstock/internal/ledger"
	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/tlsconn"
	"github.com/penstock/penstock/relay/hold"
)

// record returns the record of a flow that is kept.
func (s *streams) record(f *streamFlow) ledger.Record { return s.keep.ledger.Record(f.slot) }

// notePair notes what a pair given to Relay is to have.
func (s *streams) notePair(f *streamFlow, cfg *PairConfig) {
	p := pair{done: cfg.Done}
	if s.keep != nil && cfg.Name != "" {
		p.name, p.encode = cfg.Name, cfg.Encode
	}
	if p.name == "" && p.done == nil {
		return
	}
	if s.pairs == nil {
		s.pairs = make(map[uint32]pair)
	}
	s.pairs[f.slot] = p
}

// named reports whether f is a pair with a name. Only such pairs outlive the process.
func (s *streams) named(f *streamFlow) bool { return s.pairs[f.slot].name != "" }

// done returns the hook that gets the flow's record; nil: there is none.
func (s *streams) done(f *streamFlow) func(*Record) {
	if f.cfg != nil {
		return f.cfg.Hooks.Done
	}
	return s.pairs[f.slot].done
}

func (s *streams) encoder(f *Flow) func(*hold.Encoder) { return s.pairs[f.slot].encode }

// inner reports whether the socket of a side is an inner one; see [streams.nameEnd].
func (f *streamFlow) inner(side int) bool { return f.one&(oneInner<<side) != 0 }

// hasInner reports whether that of one side is.
func (f *streamFlow) hasInner() bool { return f.one&(oneInner|oneInner<<1) != 0 }

// recvOne reports whether what is read from a side is noted by a message header, because the kernel does
// not count it.
func (f *streamFlow) recvOne(side int) bool { return f.one&(oneRecv<<side) != 0 }

// sendOne reports the same of what is written.
func (f *streamFlow) sendOne(side int) bool { return f.one&(oneSend<<side) != 0 }

// finSent reports whether the end of the stream towards a side was passed on, while the flow relays.
func (f *streamFlow) finSent(side int) bool {
	return !f.echo && f.fd[sideUpstream] >= 0 && f.wait[1-side] == pump.End
}

// flags are those flags of the record that change while the flow is kept.
func (f *streamFlow) flags() (flags uint32) {
	for side := range f.fd {
		if f.recvOne(side) {
			flags |= recordRecvOne << side
		}
		if f.sendOne(side) {
			flags |= recordSendOne << side
		}
		if f.finSent(side) {
			flags |= recordFinSent << side
		}
	}
	return flags
}

// What the steps of a flow call is named note: it does something for a flow that is kept, and is short, so that the
// compiler puts the question where it is called. What it does then is named write.

// noteTurn names the flow and the half whose turn begins.
func (s *streams) noteTurn(f *streamFlow, h int) {
	if f.kept {
		s.writeTurn(f, h)
	}
}

func (s *streams) writeTurn(f *streamFlow, h int) {
	k, half := s.keep, &f.half[h]
	k.turn.Begin(f.slot, f.gen)
	k.turn.SetCounted(uint8(h), half.In, half.Out, half.Spliced)
	k.note.Of(h, s.record(f).Half(h), f.recvOne(h), f.sendOne(f.dstSide(h)))
	s.env.Note = k.note
}

// noteCounted notes that the loop's counters include what the half has moved.
func (s *streams) noteCounted(f *streamFlow, h int) {
	if f.kept {
		s.writeCounted(f, h)
	}
}

func (s *streams) writeCounted(f *streamFlow, h int) {
	half := &f.half[h]
	s.keep.turn.SetCounted(uint8(h), half.In, half.Out, half.Spliced)
	if half.Sink {
		s.keep.note.Done(half)
	}
	r := s.record(f)
	if r.Crashes() != 0 {
		r.SetCrashes(0) // it was not this flow that the process died of
	}
	if f.firstByte != 0 && r.FirstByte() == 0 {
		r.SetFirstByte(int64(f.firstByte))
	}
}

// writeFlags updates the flags of a flow that is kept.
func (s *streams) writeFlags(f *streamFlow, more uint32) {
	r := s.record(f)
	r.SetFlags(r.Flags() | f.flags() | more)
}

// seeOdd sees from an event whether a side may have ended, or has sent urgent data.
func (s *streams) seeOdd(f *streamFlow, side int, ev uint32) {
	if ev&(sys.Pri|sys.RdHup|sys.Hup|sys.Err) != 0 {
		f.odd[side] = true
		f.half[side].Exact = false
		s.noteOdd(f, side, ev)
	}
}

// noteOdd notes that a side may have ended, or has sent urgent data: what is read from it is then noted by a
// message header, because the kernel's counter includes what no read returns. That an error waits is noted, too, where nobody is told twice: behind the
// last bytes of a Unix socket, from which recvmmsg(2) takes it before them, and of TLS that is the kernel's, behind the last record, where what is no record
// leaves the connection as it was (tls_strp_abort_strp). Of TCP, the state tells.
func (s *streams) noteOdd(f *streamFlow, side int, ev uint32) {
	if f.kept {
		s.writeOdd(f, side, ev)
	}
}

func (s *streams) writeOdd(f *streamFlow, side int, ev uint32) {
	if ev&sys.Pri != 0 {
		s.writeFlags(f, recordUrgent<<side)
	}
	if half := s.record(f).Half(side); ev&sys.Err != 0 && half.Errno() == 0 { // or the source is known to have failed
		switch {
		case !f.tcp[side]:
			half.SetErrno(uint32(sys.ECONNRESET))
		case f.tls.inKernel(side) != nil: // a reset is told by the state
			half.SetErrno(uint32(tlsconn.Invalid))
		}
	}
	if !f.recvOne(side) {
		f.one |= oneRecv << side
		s.writeFlags(f, 0)
	}
}

// noteHalfEnd notes that the end of half h's direction is passed on: once the socket is closed, nobody knows if its counter
// includes an end.
func (s *streams) noteHalfEnd(f *streamFlow, h int) {
	if f.kept {
		f.one |= oneRecv << (1 - h)
		s.writeFlags(f, 0)
	}
}

// noteAsking notes that a side's socket is about to be asked for its error, which it tells only once.
func (s *streams) noteAsking(f *streamFlow, side int) {
	if f.kept {
		s.keep.turn.Begin(f.slot, f.gen)
		s.writeFailed(f, causeOf(side, sys.ECONNRESET), sys.ECONNRESET)
	}
}

// noteFailed notes that a side has failed; CauseNone: it has not.
func (s *streams) noteFailed(f *streamFlow, c Cause, e sys.Errno) {
	if f.kept {
		s.writeFailed(f, c, e)
	}
}

func (s *streams) writeFailed(f *streamFlow, c Cause, e sys.Errno) {
	r := s.record(f)
	r.SetErrno(uint16(e))
	r.SetCause(uint8(c))
}

// noteHalfFailed notes that a half carries nothing any more, and that what it held is dropped.
func (s *streams) noteHalfFailed(f *streamFlow, h int) {
	if f.kept {
		s.writeHalfFailed(f, h)
	}
}

func (s *streams) writeHalfFailed(f *streamFlow, h int) {
	s.writeFlags(f, recordFailed<<h)
	s.keep.note.Of(h, s.record(f).Half(h), false, false)
	s.keep.note.Done(&f.half[h])
	half := s.record(f).Half(h)
	half.SetOut(f.half[h].Out) // own bytes that were not delivered are dropped, too
	half.SetBlock(0, 0)
	half.SetPipe(0)
}

// noteWaits notes with which errors sources have failed, while the flow waits for what came before them to arrive.
func (s *streams) noteWaits(f *streamFlow) {
	if f.kept {
		s.writeWaits(f)
	}
}

func (s *streams) writeWaits(f *streamFlow) {
	for h := range f.half {
		if half := &f.half[h]; f.wait[h] == pump.Failed && half.AtSrc {
			s.record(f).Half(h).SetErrno(uint32(half.Err))
		}
	}
}

// noteFinal notes that the flow ends, and how, so that the next process finishes that.
func (s *streams) noteFinal(f *streamFlow, c Cause, err error) {
	if f.kept {
		s.writeFinal(f, c, err)
	}
}

func (s *streams) writeFinal(f *streamFlow, c Cause, err error) {
	k, r := s.keep, s.record(f)
	k.turn.Begin(f.slot, f.gen)
	for h := range f.half { // without what is in somebody's hands
		half := r.Half(h)
		half.SetIn(f.half[h].In)
		half.SetOut(f.half[h].Raw())
		half.SetSpliced(f.half[h].Spliced)
	}
	var flags uint32
	for side, fd := range f.fd {
		if fd >= 0 && (f.tcp[side] || f.inner(side)) && s.resets(f, side, c) {
			flags |= recordReset << side
		}
	}
	e, _ := err.(sys.Errno) // 0: what was noted of a failure before is not why it ends
	r.SetErrno(uint16(e))
	r.SetCause(uint8(c))
	r.SetFlags(r.Flags() | flags)
	r.SetState(recordFinal)
}

// resets reports whether the end of a flow for the cause c resets a TCP side, or says to the process behind an inner socket that the stream was cut.
func (s *streams) resets(f *streamFlow, side int, c Cause) bool {
	return c.broken() || !f.complete(side) && !f.tls.failed(side)
}

// noteEnded forgets the record of a flow that has ended. It comes before the flow's record is handed out: a process that
// dies in between does so without one. The other order would give two, and let a hook that panics do so again and again.
func (s *streams) noteEnded(f *streamFlow) {
	if f.kept {
		s.keep.end(f.ref())
	}
}
