package relay

import (
	"github.com/penstock/penstock/internal/ledger"
	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/hold"
	"github.com/penstock/penstock/relay/stats"
)

// restore continues a flow of an earlier process, or ends it.
func (s *streams) restore(x *earlierFlow, t *restorer) {
	r := x.record
	f := s.slab.TakeAt(x.ref)
	if f == nil {
		s.keep.abandon(x)
		t.result.Lost.Add(hold.LossInconsistent, 1)
		return
	}
	f.init(s, x.ref, s.loop.Now)
	s.load.Add(1)
	f.state, f.kept = streamRelaying, true
	s.loopStats.Kept++
	for h := range f.half {
		f.wait[h] = pump.WantRead
	}
	f.fd = [2]int32{-1, -1}
	for side, fd := range x.fds {
		f.fd[side] = int32(fd)
		f.reserved++
	}
	s.descriptors.takeOpen(int64(f.reserved))
	if r.State() == recordEarly && f.reserved == 1 {
		f.reserved++
		s.descriptors.promise(1) // its upstream's
	}
	for side := range f.fd {
		f.tcp[side] = r.Flags()&(recordTCP<<side) != 0
		if r.Flags()&(recordRecvOne<<side) != 0 {
			f.one |= oneRecv << side
		}
		if r.Flags()&(recordSendOne<<side) != 0 {
			f.one |= oneSend << side
		}
	}
	loss := s.restoreFlow(f, x, t)
	final, early := r.State() == recordFinal, r.State() == recordEarly
	switch {
	case loss != notLost || final:
	case !early:
		loss = s.restoreHalves(f, r, t)
	case f.listener == nil, f.fd[sideUpstream] >= 0: // a pair relays from its beginning; the upstream of such a flow is not held
		loss = hold.LossInconsistent
	}
	if loss != notLost {
		t.result.Lost.Add(loss, 1)
		if loss == hold.LossHook || loss == hold.LossListener {
			f.cfg = &noHooks // nobody knows the flow
		}
		s.endLost(f, r, CauseCrashed)
		return
	}
	if final {
		t.result.Ended++
		s.endLost(f, r, notedCause(r))
		return
	}
	if early {
		s.restoreEarly(f, r)
		return
	}
	if e := s.goOn(f, r); e != 0 {
		t.result.Lost.Add(hold.LossResources, 1)
		s.end(f, CauseCrashed, e)
		return
	}
	t.result.Flows++
	s.loopStats.Restored++
}

// noHooks is the configuration of a flow that could not be restored, and that no hook is told of.
var noHooks ListenConfig

// restoreFlow restores all of a flow but its halves.
func (s *streams) restoreFlow(f *streamFlow, x *earlierFlow, t *restorer) hold.Loss {
	r, flags := x.record, x.record.Flags()
	if flags&recordDamaged != 0 {
		return hold.LossInconsistent
	}
	if deadly(r) {
		return hold.LossRepeated
	}
	m, err := s.readRecord(&f.Flow, r)
	if err != nil {
		return hold.LossInconsistent
	}
	f.peer = m.peer.AddrPort
	if inner := m.inner & (oneInner | oneInner<<1); inner != 0 {
		f.one |= inner
		s.noteInner(f, m.tls)
	}
	s.restoreTLS(f, m.inner, m.tls)
	f.echo, f.half[up].Sink = flags&recordEcho != 0, flags&recordDiscard != 0
	if flags&recordPair != 0 {
		if t.cfg.Pair == nil {
			return hold.LossListener
		}
		pair, err := t.cfg.Pair(m.name, &m.decoder)
		if err != nil {
			return hold.LossListener
		}
		f.timeouts, f.value = s.shareTimeouts(&pair.Timeouts), pair.Value
		pair.Name = m.name
		s.notePair(f, &pair)
	} else {
		l := t.listener(m.name)
		if l == nil {
			return hold.LossListener
		}
		f.inherit(l)
		if flags&recordStale != 0 {
			return hold.LossHook
		}
		if decode := f.cfg.Hooks.Decode; decode != nil {
			if decode(&f.Flow, &m.decoder) != nil {
				return hold.LossHook
			}
		}
	}
	if m.own != nil {
		f.timeouts = s.shareTimeouts(m.own)
	}
	if m.rate > 0 {
		s.earlyOf(f).pace.rate = m.rate
	}
	one := f.echo || f.half[up].Sink || r.State() == recordEarly // it has one socket
	switch {
	case r.State() == recordFinal && r.Crashes() < crashesMost:
		return notLost
	case x.fds == nil && flags&recordHeld == 0:
		return hold.LossUnsettled
	case r.Crashes() >= crashesMost:
		return hold.LossRepeated
	case x.fds == nil, !one && len(x.fds) < 2:
		return hold.LossDescriptors
	}
	return notLost
}

// restoreHalves restores what the halves hold.
func (s *streams) restoreHalves(f *streamFlow, r ledger.Record, t *restorer) hold.Loss {
	if r.Flags()&recordOdd != 0 {
		for side := range f.fd {
			if s.closedState(f, side) {
				for h := range f.half {
					s.restoreCounts(&f.half[h], r.Half(h))
				}
				return notLost // goOn finds that it was reset
			}
		}
		return hold.LossInconsistent
	}
	var bytes int64
	for h := range f.half {
		rec, half := r.Half(h), &f.half[h]
		in, out := rec.In(), rec.Out()
		if half.Sink {
			in = max(in, out) // the next store would have made them equal
			half.Restore(&s.env, in, in, 0, pump.Held{Err: sys.Errno(rec.Errno())})
			continue
		}
		if r.Flags()&(recordFailed<<h) != 0 || h == down && f.fd[sideUpstream] < 0 {
			s.restoreCounts(half, rec) // the process may have died before it had noted that what the half held is dropped
			rec.SetOut(half.Out)
			rec.SetPipe(0)
			continue
		}
		held := pump.Held{Err: sys.Errno(rec.Errno())}
		if p := rec.Pipe(); p > 0 && s.env.Pipes != nil {
			n, ok := s.env.Pipes.Queued(p - 1)
			if !ok {
				return hold.LossDescriptors
			}
			if held.Piped = n; n > 0 {
				if held.Pipe = s.env.Pipes.Lease(p - 1); held.Pipe == nil {
					return hold.LossDescriptors // another loop's flow names it, too
				}
			}
		}
		rest := in - out - int64(held.Piped)
		ref, n := rec.Block()
		switch {
		case ref == 0:
		case rest > 0 && rest <= int64(n):
			held.Block, _ = s.keep.ledger.Arena().Bytes(ref, n)
			held.Rest = int(rest)
		default: // its last byte was sent, if the record is right
			s.freeBlock(rec)
		}
		half.Restore(&s.env, in, out, rec.Spliced(), held)
		if int64(held.Rest) != rest || rest > 0 && held.Block == nil {
			return hold.LossInconsistent
		}
		rec.SetPipe(0)
		if held.Piped > 0 {
			rec.SetPipe(held.Pipe.Key().Number + 1)
		}
		bytes += rest + int64(held.Piped)
	}
	if bytes > 0 {
		t.result.Holding++
		t.result.Bytes += bytes
	}
	return notLost
}

// restoreCounts restores what a half has moved. What it held is nobody's any more.
func (s *streams) restoreCounts(half *pump.Half, rec ledger.Half) {
	in, out := rec.In(), max(rec.Out(), 0)
	half.Restore(&s.env, max(in, out), out, rec.Spliced(), pump.Held{})
	s.freeBlock(rec)
}

// freeBlock gives back the block that the record of a half names, if any.
func (s *streams) freeBlock(rec ledger.Half) {
	if b, ok := s.keep.ledger.Arena().Bytes(rec.Block()); ok {
		rec.SetBlock(0, 0)
		s.keep.ledger.Arena().Put(b)
	}
}

// closedState reports whether a side's connection is not there any more.
func (s *streams) closedState(f *streamFlow, side int) bool {
	return f.fd[side] >= 0 && f.tcp[side] && s.env.Kernel.TCPInfo(int(f.fd[side]), &s.info) == 0 && sys.TCPState(s.info.State) == sys.TCPClose
}

// goOn has a restored flow carry bytes again. An error says that it cannot.
func (s *streams) goOn(f *streamFlow, r ledger.Record) sys.Errno {
	flags := r.Flags()
	s.relay(f)
	gen := f.gen
	for h := range f.half {
		switch {
		case flags&(recordFailed<<h) != 0:
			f.wait[h] = pump.Failed
		case flags&(recordFinSent<<f.dstSide(h)) != 0 && !f.echo, h == down && f.fd[sideUpstream] < 0:
			f.wait[h] = pump.End
		}
	}
	f.cause = notedCause(r)
	if e := r.Errno(); e != 0 {
		f.err = sys.Errno(e)
	}
	if f.firstByte == 0 && (f.half[down].In > 0 || f.echo && f.half[up].Out > 0) { // it has come, and the process died before it had noted when
		f.firstByte = max(1, s.loop.Now-f.start-f.connect)
	}
	for side, fd := range f.fd {
		if fd < 0 {
			continue
		}
		if f.tcp[side] {
			s.env.Kernel.RcvLowat(int(fd), 1)
		}
		if flags&(recordFinSent<<side) != 0 {
			s.nameEnd(f, side, s.goodEnd(f, 1-side))
			s.env.Kernel.ShutdownWrite(int(fd)) // again: nobody knows if it came to that
		}
		if e := s.watch(f, side); e != 0 {
			return e
		}
		s.seeOdd(f, side, uint32(uint16(s.env.Kernel.Poll(int(fd), sys.PollPri|sys.PollRdHup)))) // it is read before the first event
	}
	for side := range f.fd {
		// An error that is there is told by the next call. A process takes one only in a turn, whose end notes it.
		taken := func() bool { return r.Crashes() > 0 && !s.orderly(f, side, r) }
		if f.cause == CauseNone && s.closedState(f, side) && (flags&recordOdd != 0 || taken()) {
			e := s.takeError(f, side)
			if e == 0 {
				e = sys.ECONNRESET
			}
			s.failed(f, side, e)
		}
	}
	for side := range f.fd {
		if flags&(recordDoubt<<side) != 0 && f.cause == CauseNone && !f.finSent(side) && sys.HungUp(s.env.Kernel, int(f.fd[side])) {
			// Its peer has closed it, and perhaps with bytes that it had not read. The dead process may
			// have been told, and nobody is told twice.
			s.failed(f, side, sys.ECONNRESET)
		}
	}
	if f.cause != CauseNone && (flags&recordOdd != 0 || f.over(up) && f.over(down)) {
		s.end(f, f.cause, f.err)
		return 0
	}
	s.rearm(f)
	for h := range f.half {
		if f.alive(gen) && !f.over(h) {
			s.carry(f, h)
		}
	}
	return 0
}

// orderly reports whether a connection that is closed has ended well in both directions. A reset whose
// error the dead process has already taken from the socket looks like an end otherwise.
func (s *streams) orderly(f *streamFlow, side int, r ledger.Record) bool {
	if !f.finSent(side) || r.Flags()&((recordNoBase|recordUrgent)<<side) != 0 {
		return false
	}
	c, e := s.env.Kernel.TCPCounts(int(f.fd[side]))
	// Of a closed connection nobody subtracts the end that was received.
	return e == 0 && int64(c.Consumed)+int64(r.Half(side).InBase())-f.half[side].In == 1
}

// endLost ends a flow that cannot go on, or that was about to end.
func (s *streams) endLost(f *streamFlow, r ledger.Record, c Cause) {
	flags := r.Flags()
	for h := range f.half {
		half, rec := &f.half[h], r.Half(h)
		if r.State() == recordEarly {
			if flags&recordDamaged == 0 {
				s.freeBlock(rec)
			}
			continue
		}
		if half.Held() == 0 && flags&recordDamaged == 0 {
			s.restoreCounts(half, rec)
		}
		if r.State() == recordFinal && flags&(recordReset<<f.dstSide(h)) == 0 ||
			flags&(recordFinSent<<f.dstSide(h)) != 0 && !f.echo {
			f.wait[h] = pump.End
		}
	}
	if f.timeouts == nil {
		f.timeouts = s.shareTimeouts(&Timeouts{})
	}
	var err error
	if e := r.Errno(); e != 0 {
		err = sys.Errno(e)
	}
	if flags&recordDamaged != 0 {
		s.keep.ledger.Begin(f.slot) // forgets the blocks that are not its own
	}
	s.end(f, c, err)
}

// balanceStats counts what the earlier process could not: the end of flows that were not settled, and
// what was lost with it. It is called when the loop's flows are restored.
func (s *streams) balanceStats() {
	st := s.loopStats
	open := st.Accepted + st.Adopted - int64(s.loop.Slots.Live)
	for _, n := range st.Ended {
		open -= n
	}
	st.Ended[CauseCrashed] += max(open, 0)
	bytes := st.BytesRead - st.BytesWritten - st.BytesDropped
	s.slab.Each(func(f *streamFlow) {
		for h := range f.half {
			bytes -= f.half[h].In - f.half[h].Out
		}
	})
	st.BytesDropped += max(bytes, 0)
	d := &st.Datagrams
	lost := d.Received - d.Sent
	for _, n := range d.Dropped {
		lost -= n
	}
	d.Dropped[stats.DropCrashed] += max(lost, 0)
}
