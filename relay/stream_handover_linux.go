package relay

import (
	"time"

	"github.com/penstock/penstock/internal/ledger"
	"github.com/penstock/penstock/internal/sys"
)

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
		if len(x.reply) > 0 || x.replied && f.state != streamSniffing {
			return settleNever // what the client was told by Hooks.Connected it would be told twice
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

// restoreEarly restores a flow that did not relay yet. It begins again at its stage when all flows are restored:
// until the hooks know those that relay, they cannot tell whether there is room for it.
func (s *streams) restoreEarly(f *streamFlow, r ledger.Record) {
	x := s.earlyOf(f)
	if ref, n := r.Half(up).Block(); ref != 0 {
		x.held, _ = s.keep.ledger.Arena().Bytes(ref, n)
	}
	x.replied = r.Flags()&recordReplied != 0
	x.most, x.patience = int(r.Half(down).In()), time.Duration(r.Half(down).Out())
	f.tcp[sideUpstream] = false
	f.to = nil
	f.connect = 0
	f.state = streamRestored
	s.restored.push(f.ref())
}

// beginSome begins some of the restored flows that did not relay yet again, and reports whether there are more.
func (s *streams) beginSome(result *Restored) (more bool) {
	for range restoreBurst {
		if s.restored.len() == 0 {
			return false
		}
		f := s.slab.find(s.restored.pop())
		if f == nil {
			result.Ended++ // somebody has killed it meanwhile
			continue
		}
		s.keep.turn.Begin(f.slot, f.gen)
		if e := s.begin(f); e != 0 {
			result.Lost[LossResources]++
			s.end(f, CauseCrashed, e)
		} else {
			result.Flows++
		}
		s.keep.turn.End()
	}
	return true
}

// begin begins a restored flow again at its stage. An error says that it cannot.
func (s *streams) begin(f *streamFlow) sys.Errno {
	if e := s.watch(f, sideClient); e != 0 {
		return e
	}
	sniffing := s.record(f).Flags()&recordSniffing != 0 && f.cfg.Hooks.Sniff != nil
	// It is a flow like others now, and not held any more.
	f.kept = false
	s.keep.end(f.ref())
	if !sniffing {
		f.state = streamConnecting
		s.connect(f)
		return 0
	}
	f.state = streamSniffing
	s.rearm(f)
	if len(f.early.held) > 0 {
		s.show(f, false)
	}
	return 0
}

// stopAccepting leaves clients in the queues of the listeners, for the next process.
func (s *streams) stopAccepting() {
	if s.resting == 0 {
		for _, p := range s.ports {
			s.loop.unwatch(p.fd)
		}
	}
	s.handing = true
}

// startAccepting undoes stopAccepting.
func (s *streams) startAccepting() {
	s.handing = false
	if s.resting == 0 {
		for _, p := range s.ports {
			s.watchPort(p)
		}
	}
}

// handOver settles what is left, and ends what cannot be. Clients that still wait at a listener that is being
// closed are the next process's: it accepts them if it listens there, and otherwise closes the socket.
func (s *streams) handOver() {
	for _, p := range s.closingPorts {
		p.closed.Done()
	}
	s.closingPorts = nil
	s.slab.each(func(f *streamFlow) {
		if f.state != streamRelaying && !f.kept {
			s.keep.unsettled.push(unsettledRef{f.ref(), s.loop.now})
		}
	})
	s.keep.settleAll(s.loop.now)
	s.slab.each(func(f *streamFlow) {
		if !f.kept && s.keep.ledger.Record(f.slot).Generation() != f.gen {
			s.end(f, CauseCrashed, nil)
		}
	})
	s.keep.turn.End()
}
