package relay

import (
	"time"

	"github.com/penstock/penstock/internal/ledger"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/hold"
)

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
func (s *streams) beginSome(result *hold.Restored) (more bool) {
	for range restoreBurst {
		if s.restored.len() == 0 {
			return false
		}
		f := s.slab.Find(s.restored.pop())
		if f == nil {
			result.Ended++ // somebody has killed it meanwhile
			continue
		}
		s.keep.turn.Begin(f.slot, f.gen)
		if e := s.begin(f); e != 0 {
			result.Lost.Add(hold.LossResources, 1)
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
