package relay

import (
	"time"

	"github.com/penstock/penstock/internal/sys"
)

func (s *streams) startSniff(f *Flow, most int, patience time.Duration) error {
	sf := s.of(f)
	switch {
	case sf.state == streamAdmitting:
	case sf.state == streamSniffing && sf.early.showing:
		sf.early.again = true
		patience = after(s.loop.Now-sf.since, patience)
	default:
		return sf.stage("StartSniff", admitOnly+" and Hooks.Sniff")
	}
	x := s.earlyOf(sf)
	x.most, x.patience = most, patience
	return nil
}

// ClientEnded, called in Hooks.Sniff, reports whether the client has ended its side,
// which is one of the reasons for last; see [Flow.StartSniff].
func (f *Flow) ClientEnded() bool {
	s, ok := f.owner.(*streams)
	if !ok {
		return false
	}
	x := s.of(f).early
	return x != nil && x.ended
}

// sniffBurst is how often one flow is sniffed before others have their turn.
const sniffBurst = 16

// sniff reads what the client says and shows it to the hook, until that has
// seen enough or the client says no more for now. A hook that takes what it sees
// and asks for more does not hold the loop for a client that says much.
func (s *streams) sniff(f *streamFlow) {
	x := f.early
	for range sniffBurst {
		want := min(x.most-len(x.held), len(s.env.Scratch))
		n, e := s.env.Kernel.Recv(int(f.fd[sideClient]), s.env.Scratch[:want])
		switch {
		case e == sys.EINTR, e == sys.EAGAIN && s.disturbed(f, sideClient):
			continue
		case e == sys.EAGAIN:
			f.pending = false
			return
		case e != 0:
			s.end(f, CauseClientGone, e)
			return
		}
		s.resize(x, len(x.held)+n)
		x.held = append(x.held, s.env.Scratch[:n]...)
		// There is no event for what is left in the socket: the edge has passed.
		f.pending = n == want || n == 0 || f.odd[sideClient] || !f.tcp[sideClient]
		x.ended = n == 0
		s.show(f, n == 0)
		if f.state != streamSniffing || !f.pending {
			return
		}
	}
	s.makeReady(f)
}

// disturbed reports whether a read has stopped at an urgent byte because a signal was pending, though there is more
// behind it, and no event would follow; see package pump.
func (s *streams) disturbed(f *streamFlow, side int) bool {
	fd := int(f.fd[side])
	return f.tcp[side] && f.odd[side] && s.env.Kernel.AtMark(fd) && sys.Readable(s.env.Kernel, fd)
}

// show lets the hook decide about what is held; over says that no more will come.
func (s *streams) show(f *streamFlow, over bool) {
	x := f.early
	for {
		last := over || len(x.held) >= x.most
		x.again, x.showing = false, true
		take, next := f.cfg.Hooks.Sniff(&f.Flow, x.held, last)
		x.showing = false
		take = min(max(take, 0), len(x.held))
		if take > 0 {
			x.held = x.held[:copy(x.held, x.held[take:])]
		}
		full := len(x.held) >= x.most
		again := x.again && !x.ended && !full
		if again {
			over = false
			s.rearm(f)
		}
		switch {
		case x.failed != 0:
			s.end(f, CauseClientGone, x.failed)
			return
		case next == SniffDone:
			s.sniffed(f)
			return
		case next != SniffMore, last && take == 0 && !again:
			s.turnAway(f, CauseRefused, nil)
			return
		case take == 0 && !full, len(x.held) == 0 && !over:
			return
		}
	}
}

// addPreface puts b in front of what the upstream is sent first, behind what was added before.
func (s *streams) addPreface(fl *Flow, b []byte) error {
	f := s.of(fl)
	if !f.connected() {
		return f.stage("Preface", connectedOnly)
	}
	if len(b) == 0 {
		return nil
	}
	x := s.earlyOf(f)
	n := len(x.held)
	s.resize(x, n+len(b))
	x.held = x.held[:n+len(b)]
	copy(x.held[x.own+len(b):], x.held[x.own:n])
	copy(x.held[x.own:], b)
	x.own += len(b)
	return nil
}

// connectedOnly is what the methods are for that need connected.
const connectedOnly = "Hooks.Connected after an attempt that succeeded"
