package relay

import (
	"github.com/penstock/penstock/internal/ledger"
	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/sys"
)

// pair is what a pair given to Relay has that other flows have from their listener.
type pair struct {
	done   func(*Record)
	name   string
	encode func(*Encoder)
}

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

func (s *streams) encoder(f *Flow) func(*Encoder) { return s.pairs[f.slot].encode }

// The bits of Flow.one, shifted by a side.
const (
	oneRecv = 1 << 0
	oneSend = 1 << 2
)

// recvOne reports whether what is read from a side is noted by a message header, because the kernel does
// not count it.
func (f *streamFlow) recvOne(side int) bool { return f.one&(oneRecv<<side) != 0 }

// sendOne reports the same of what is written.
func (f *streamFlow) sendOne(side int) bool { return f.one&(oneSend<<side) != 0 }

// settle implements settler.
func (s *streams) settle(slot uint32, r ledger.Record, fds *[2]int) verdict {
	f := s.slab.at(slot)
	if f.state != streamRelaying {
		return s.settleEarly(f, r, fds)
	}
	if f.listener == nil && !s.named(f) {
		return settleNever
	}
	r.SetKind(ledger.KindStream)
	var flags uint32
	for side, fd := range f.fd {
		fds[side] = int(fd)
		if fd < 0 {
			continue
		}
		if f.tcp[side] {
			flags |= recordTCP << side
		}
		counted, open := s.count(f, side, r)
		if !open {
			return settleLater // it has not begun, with TCP Fast Open
		}
		if !counted {
			f.one |= oneRecv<<side | oneSend<<side
			flags |= recordNoBase << side
		}
		if f.finSent(side) || f.odd[side] {
			f.one |= oneRecv << side
		}
	}
	if e, ok := f.err.(sys.Errno); ok && f.cause != CauseNone { // it still delivers what came before its end
		r.SetErrno(uint16(e))
	}
	for h := range f.half {
		if f.wait[h] == pump.Failed {
			flags |= recordFailed << h
		}
		if !f.half[h].Store(r.Half(h), s.keep.ledger.Arena()) {
			return settleLater // a buffer that was too large for the ledger: it is delivered soon, or never
		}
	}
	flags |= f.flags()
	if f.echo {
		flags |= recordEcho
	} else if f.fd[sideUpstream] < 0 {
		flags |= recordDiscard
	}
	name, encode := "", (func(*Encoder))(nil)
	if pair := s.pairs[slot]; pair.name != "" {
		flags |= recordPair
		name, encode = pair.name, pair.encode
	}
	r.SetFlags(flags)
	if s.writeRecord(&f.Flow, r, name, encode) != nil {
		s.loop.stats.KeepErrors++
		s.keep.ledger.SetBlob(r, nil)
		return settleNever
	}
	return settleNow
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

// finSent reports whether the end of the stream towards a side was passed on, while the flow relays.
func (f *streamFlow) finSent(side int) bool {
	return !f.echo && f.fd[sideUpstream] >= 0 && f.wait[1-side] == pump.End
}

// countless reports whether a side's counters are what the flow's counts make them.
func (s *streams) countless(f *streamFlow, side int) bool {
	if !f.straight || f.cause != CauseNone || f.odd[side] || f.finSent(side) || s.keep.fastOpen || f.cfg.Socket.FastOpen > 0 {
		return false
	}
	if side == sideUpstream && f.dialConfig().Socket.FastOpen > 0 {
		return false
	}
	return sys.IsPlainTCP(int(f.fd[side]))
}

// count stores how the flow's counts differ from those of a side's socket. counted is false if the kernel
// does not count there, or if the difference is too large for the record; open is false if the socket has
// no connection yet.
func (s *streams) count(f *streamFlow, side int, r ledger.Record) (counted, open bool) {
	if !f.tcp[side] {
		return false, true
	}
	if s.countless(f, side) {
		// The counters began at 0, but for the SYN of the side that has opened the connection, and all
		// that has passed since is known. Sockets are mostly cold when their flow is settled: asking
		// would take longer than all the rest.
		if side == sideUpstream {
			r.Half(up).SetOutBase(-1)
		}
		return true, true
	}
	c, e := sys.ReadTCPCounts(int(f.fd[side]))
	if e == 0 && c.State == sys.TCPClose {
		if f.cause != CauseNone || sys.HasError(int(f.fd[side])) {
			return false, true // it was reset: nobody knows if its counter includes an end
		}
		if !f.finSent(side) {
			return false, false
		}
		// It has ended well in both directions: the error of a reset would still be there, or have failed
		// the flow. The base says so: the end that was received is no byte, see orderly.
		c.Consumed--
	}
	if e != 0 || c.Urgent {
		return false, true
	}
	in := f.half[side].In - int64(consumed(&c))
	out := int64(0)
	for h := range f.half {
		if f.dstSide(h) == side && (h == up || !f.echo) {
			out = f.half[h].Raw() - int64(written(&c))
			r.Half(h).SetOutBase(int32(out))
		}
	}
	r.Half(side).SetInBase(int32(in))
	return in == int64(int32(in)) && out == int64(int32(out)), true
}

// settled implements settler.
func (s *streams) settled(slot uint32) {
	f := s.slab.at(slot)
	if f.state == streamRelaying {
		f.kept = true
	}
	r := s.record(f)
	r.SetFlags(r.Flags() | recordHeld)
}

// record returns the record of a flow that is kept.
func (s *streams) record(f *streamFlow) ledger.Record { return s.keep.ledger.Record(f.slot) }

// noteTurn names the flow and the half whose turn begins.
func (s *streams) noteTurn(f *streamFlow, h int) {
	k, half := s.keep, &f.half[h]
	k.turn.Begin(f.slot, f.gen)
	k.turn.SetCounted(uint8(h), half.In, half.Out, half.Spliced)
	k.note.Of(h, s.record(f).Half(h), f.recvOne(h), f.sendOne(f.dstSide(h)))
	s.env.Note = k.note
}

// noteCounted notes that the loop's counters include what the half has moved.
func (s *streams) noteCounted(f *streamFlow, h int) {
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

// noteFlags updates the flags of a flow that is kept.
func (s *streams) noteFlags(f *streamFlow, more uint32) {
	r := s.record(f)
	r.SetFlags(r.Flags() | f.flags() | more)
}

// noteOdd notes that a side may have ended, or has sent urgent data: what is read from it is then noted by a
// message header, because the kernel's counter includes what no read returns.
func (s *streams) noteOdd(f *streamFlow, side int, urgent bool) {
	if urgent {
		s.noteFlags(f, recordUrgent<<side)
	}
	if !f.recvOne(side) {
		f.one |= oneRecv << side
		s.noteFlags(f, 0)
	}
}

// noteFailed notes that a side has failed: its socket tells that only once.
func (s *streams) noteFailed(f *streamFlow, c Cause, e sys.Errno) {
	r := s.record(f)
	r.SetErrno(uint16(e))
	r.SetCause(uint8(c))
}

// noteHalfFailed notes that a half carries nothing any more, and that what it held is dropped.
func (s *streams) noteHalfFailed(f *streamFlow, h int) {
	s.noteFlags(f, recordFailed<<h)
	s.keep.note.Of(h, s.record(f).Half(h), false, false)
	s.keep.note.Done(&f.half[h])
	half := s.record(f).Half(h)
	half.SetBlock(0, 0)
	half.SetPipe(0)
}

// noteFinal notes that the flow ends, and how, so that the next process finishes that.
func (s *streams) noteFinal(f *streamFlow, c Cause, err error) {
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
		if fd >= 0 && f.tcp[side] && s.resets(f, side, c) {
			flags |= recordReset << side
		}
	}
	if e, ok := err.(sys.Errno); ok {
		r.SetErrno(uint16(e))
	}
	r.SetCause(uint8(c))
	r.SetFlags(r.Flags() | flags)
	r.SetState(recordFinal)
}

// resets reports whether the end of a flow for the cause c resets a TCP side.
func (s *streams) resets(f *streamFlow, side int, c Cause) bool {
	return c.broken() || !f.complete(side) && !f.tls.failed(side)
}

// endSocket closes a side of a flow that is kept. The holder has the socket too, so that close(2) alone
// would not end the connection.
func (s *streams) endSocket(f *streamFlow, side int, reset bool) {
	fd := int(f.fd[side])
	s.loop.unwatch(fd)
	switch {
	case reset:
		resetSocket(s.env.Kernel, fd)
	case f.tcp[side]:
		sys.ClearLinger(fd)
		if !f.over(side) {
			s.discard(f, side)
		}
		s.env.Kernel.ShutdownBoth(fd)
	default:
		if f.complete(side) && !f.over(side) {
			s.discard(f, side)
		}
		s.env.Kernel.ShutdownBoth(fd)
	}
	s.env.Kernel.Close(fd)
}
