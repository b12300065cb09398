package relay

import (
	"github.com/penstock/penstock/internal/ledger"
	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/hold"
)

// keepLater has a flow settled when it is time, if it can outlive the process.
func (s *streams) keepLater(f *streamFlow) {
	switch {
	case f.kept:
	case s.keep != nil && f.tls.keepable() && (f.listener != nil || s.named(f)):
		s.keep.add(f.ref(), s.loop.Now)
		if f.tls != nil {
			f.tls.settles = true
		}
	default:
		f.tls.stay()
	}
}

// keepSoon has a flow settled whose connections were just given to the kernel.
func (s *streams) keepSoon(f *streamFlow) {
	if !f.kept && !f.tls.settles {
		f.tls.settles = true
		s.keep.unsettled.push(unsettledRef{f.ref(), s.loop.Now})
	}
}

// settle implements settler.
func (s *streams) settle(slot uint32, r ledger.Record, fds *[2]int) verdict {
	f := s.slab.At(slot)
	v := s.settleFlow(f, r, fds)
	if f.tls != nil {
		f.tls.settles = v != settleNever
		if v == settleNever {
			f.tls.stay()
		}
	}
	return v
}

func (s *streams) settleFlow(f *streamFlow, r ledger.Record, fds *[2]int) verdict {
	if f.state != streamRelaying {
		return s.settleEarly(f, r, fds)
	}
	switch {
	case f.listener == nil && !s.named(f):
		return settleNever
	case s.giveTLS(f):
	case f.tls.keepable():
		f.tls.hurry()
		return settleLater
	default:
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
		if f.wait[h] == pump.Failed && !f.half[h].AtSrc { // or the next process finds the error in the half's record
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
	name, encode := "", (func(*hold.Encoder))(nil)
	if pair := s.pairs[f.slot]; pair.name != "" {
		flags |= recordPair
		name, encode = pair.name, pair.encode
	}
	r.SetFlags(flags)
	if s.writeRecord(&f.Flow, r, name, encode) != nil {
		s.loopStats.KeepErrors++
		s.keep.ledger.SetBlob(r, nil)
		return settleNever
	}
	return settleNow
}

// A flow that does not relay yet is only ever handed over: then the client's socket is held, and what it
// has sent. In the next process it begins again at its stage, and is not kept before it has relayed for
// Keep.After. The fields of the halves have other meanings in its record: the block of the first half is
// what was read from the client, In of the second the most that the sniffing hook asked for, and Out its
// timeout.

// settleEarly fills in the record of a flow that does not relay yet.
func (s *streams) settleEarly(f *streamFlow, r ledger.Record, fds *[2]int) verdict {
	if f.listener == nil || f.state == streamAdmitting || f.tls != nil {
		return settleNever
	}
	r.SetKind(ledger.KindStream)
	r.SetState(recordEarly)
	fds[0], fds[1] = int(f.fd[sideClient]), -1
	var flags uint32
	if x := f.early; x != nil {
		if len(x.reply) > 0 || x.failed != 0 || x.replied && f.state != streamSniffing {
			return settleNever // what the client was told by Hooks.Connected it would be told twice; a reply that failed has a part missing
		}
		if len(x.held) > 0 {
			ref, ok := s.keep.ledger.Arena().Ref(x.held)
			if !ok {
				return settleNever
			}
			r.Half(up).SetBlock(ref, len(x.held))
		}
		r.Half(down).SetIn(int64(x.most))
		r.Half(down).SetOut(int64(x.patience))
		if x.replied {
			flags |= recordReplied
		}
	}
	if f.tcp[sideClient] {
		flags |= recordTCP << sideClient
	}
	if f.state == streamSniffing {
		flags |= recordSniffing
	}
	r.SetFlags(flags)
	attempts := f.attempts
	if f.state != streamSniffing && f.state != streamQueued && f.attempts > 0 {
		f.attempts-- // the one that is under way is made again
	}
	err := s.writeRecord(&f.Flow, r, "", nil)
	f.attempts = attempts
	if err != nil {
		s.keep.ledger.SetBlob(r, nil)
		return settleNever
	}
	return settleNow
}

// countless reports whether a side's counters are what the flow's counts make them.
func (s *streams) countless(f *streamFlow, side int) bool {
	if !f.straight || f.cause != CauseNone || f.odd[side] || f.finSent(side) || s.keep.holding.fastOpen || f.cfg.Socket.FastOpen > 0 {
		return false
	}
	return side == sideClient || f.dialConfig().Socket.FastOpen == 0
}

// count stores how the flow's counts differ from those of a side's socket. counted is false if the kernel
// does not count there, or if the difference is too large for the record; open is false if the socket has
// no connection yet.
func (s *streams) count(f *streamFlow, side int, r ledger.Record) (counted, open bool) {
	if !f.tcp[side] || f.tls.has(side) { // the kernel counts records
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
	c, e := s.env.Kernel.TCPCounts(int(f.fd[side]))
	if e == 0 && c.State == sys.TCPClose {
		if f.cause != CauseNone || sys.HasError(s.env.Kernel, int(f.fd[side])) {
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
	f := s.slab.At(slot)
	if f.state == streamRelaying {
		f.kept = true
	}
	r := s.record(f)
	r.SetFlags(r.Flags() | recordHeld)
}
