package relay

import "github.com/penstock/penstock/internal/pump"

// limit returns the bound on the flow's bandwidth, or nil if it is connected.
func (s *streams) limit(f *Flow) *pace {
	sf := s.of(f)
	if sf.state == streamRelaying {
		return nil
	}
	return &s.earlyOf(sf).pace
}

func (s *streams) rate(f *Flow) int64 {
	if x := s.of(f).early; x != nil {
		return x.pace.rate
	}
	return 0
}

// prefaceOf is for datagrams: what streams send first is sent before they are kept, or lost.
func (s *streams) prefaceOf(*Flow) *preface { return nil }

func (s *streams) nameOf(*Flow) *flowName { return nil }

// paced is the budget of a turn for a flow with a bound on its bandwidth.
func (s *streams) paced(f *streamFlow, h int) int {
	s.env.Hard = true
	return f.early.pace.left(h, s.loop.Now)
}

// throttle makes a half that has used up its share of the bandwidth wait for the next tick.
func (s *streams) throttle(f *streamFlow) {
	f.throttled = true
	s.rearm(f)
}

// unthrottle gives the halves that waited for the next tick a turn.
func (s *streams) unthrottle(f *streamFlow) {
	f.throttled = false
	gen := f.gen
	for h := range f.half {
		if f.alive(gen) && f.wait[h] == pump.Again {
			s.carry(f, h)
		}
	}
}
