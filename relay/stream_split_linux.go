package relay

import (
	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/relay/stats"
)

// splitFlow is a flow that was split, and is not held yet.
type splitFlow struct {
	ref
	legs []*leg
}

// earlyTLS returns how many flows with TLS do not relay yet.
func (s *streams) earlyTLS() (n int64) {
	s.slab.Each(func(f *streamFlow) {
		if f.tls != nil && f.state != streamRelaying {
			n++
		}
	})
	return n
}

// splitAll splits the flows whose TLS ends or begins here, and has them settled.
func (s *streams) splitAll() (all []splitFlow) {
	s.slab.Each(func(f *streamFlow) {
		switch {
		case f.state != streamRelaying || f.tls == nil:
		case s.giveTLS(f):
			s.keepSoon(f)
		case f.cause != CauseNone:
			s.end(f, f.cause, f.err) // it has waited for what is delivered
		default:
			t := f.tls
			if legs, ok := s.split(f); ok {
				all = append(all, splitFlow{f.ref(), legs})
				if !t.settles {
					s.keep.unsettled.push(unsettledRef{f.ref(), s.loop.Now})
				}
			}
		}
	})
	return all
}

// split makes a flow one without TLS, and returns the legs that have it. It reports false, and has changed nothing, if there
// are no sockets.
func (s *streams) split(f *streamFlow) (legs []*leg, ok bool) {
	t := f.tls
	info := [2]*stats.TLS{s.tls(&f.Flow, sideClient), s.tls(&f.Flow, sideUpstream)}
	var of [2]*leg
	for side := range f.fd {
		if !t.has(side) {
			continue
		}
		ours, theirs, e := s.env.Kernel.StreamPair()
		if e != 0 {
			for _, x := range legs {
				s.env.Kernel.Close(x.fd[1-x.side])
				s.env.Kernel.Close(x.theirs)
			}
			return nil, false
		}
		t.conn[side].Keep() // nobody settles the leg
		x := &leg{side: side, tcp: f.tcp[side], odd: f.odd[side], conn: t.conn[side], tls: t, theirs: theirs, info: info, spoke: f.half[up].In > 0}
		x.fd[side], x.fd[1-side] = int(f.fd[side]), ours
		if !f.echo && f.fd[sideUpstream] >= 0 {
			x.over = [2]bool{f.wait[up] == pump.End, f.wait[down] == pump.End}
		}
		of[side], legs = x, append(legs, x)
	}
	env := s.envOf(f)
	for h := range f.half {
		half, dst := &f.half[h], f.dstSide(h)
		if f.echo && h == down {
			continue
		}
		if x := of[dst]; x != nil {
			n := half.In - half.Out
			s.loopStats.BytesWritten += n
			if f.echo { // see carry
				s.loopStats.BytesRead += n
				s.loopStats.BytesWritten += n
			}
			x.held[1-dst] = half.Take(env)
		} else {
			half.Move(env, &s.env)
		}
	}
	f.tls = nil
	for _, x := range legs {
		f.fd[x.side], f.tcp[x.side], f.odd[x.side] = int32(x.theirs), false, false
		f.one |= oneInner << x.side
	}
	if len(legs) > 0 {
		s.noteInner(f, info)
	}
	return legs, true
}

// leave gives the legs of a flow that is held to the engine that goes on with them. Those of one that is not end.
func (s *streams) leave(x splitFlow, to *streams) {
	f := s.slab.Find(x.ref)
	for _, l := range x.legs {
		if f != nil && f.kept {
			to.load.Add(1)
			to.loop.Post(loop.Request{To: to, Arg: l})
			continue
		}
		l.conn.Free(l.tls.records)
		s.env.Kernel.CloseResets(l.fd[l.side], true)
		s.env.Kernel.Close(l.fd[l.side])
		s.env.Kernel.Close(l.fd[1-l.side])
	}
}
