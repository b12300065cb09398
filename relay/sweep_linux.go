package relay

import (
	"slices"
	"sync"
)

// sweep is the end of many flows, which goes on for some turns: closing a socket
// takes microseconds, and the flows that stay have their turns meanwhile. Slots
// do not move, so that each flow which was there when it began is met.
type sweep struct {
	cause    Cause
	match    func(*Flow) bool // nil chooses all
	streams  uint32           // slots to look at, from the top
	sessions uint32
	port     *dgramPort // to let go of at the end; may be nil
	wg       *sync.WaitGroup
}

// sweep begins what a letter asks for.
func (l *loop) sweep(m *letter) {
	s := &sweep{cause: m.cause, match: m.match, wg: m.wg}
	s.streams = uint32(len(l.slab.chunks) * slabChunk)
	if l.dgrams != nil {
		s.sessions = uint32(len(l.dgrams.sessions.chunks) * slabChunk)
	}
	m.wg = nil
	l.sweeps = append(l.sweeps, s)
	if s.cause == CauseDrained {
		l.giveUp()
	}
}

// sweepPort ends the flows of a datagram port, which have no other socket to
// their clients, and then the port.
func (l *loop) sweepPort(m *letter) {
	p := m.dgram
	p.draining = true
	s := &sweep{cause: CauseClosed, match: func(f *Flow) bool { return f.session.port == p }, port: p, wg: m.wg}
	s.sessions = uint32(len(l.dgrams.sessions.chunks) * slabChunk)
	m.wg = nil
	l.sweeps = append(l.sweeps, s)
}

// turnSweeps takes the oldest sweep some slots further.
func (l *loop) turnSweeps() {
	if len(l.sweeps) == 0 {
		return
	}
	s := l.sweeps[0]
	for range sweepBurst {
		switch {
		case s.streams > 0:
			s.streams--
			if f := l.slab.at(s.streams); f.state != flowFree && (s.match == nil || s.match(f)) {
				l.end(f, s.cause, nil)
			}
		case s.sessions > 0:
			s.sessions--
			l.dgrams.sweep(s)
		default:
			l.sweeps = slices.Delete(l.sweeps, 0, 1)
			if s.port != nil {
				l.dgrams.unlisten(s.port)
			}
			s.wg.Done()
			return
		}
	}
}

func (d *dgrams) sweep(s *sweep) {
	if of := d.sessions.at(s.sessions); of.open && (s.match == nil || s.match(d.hookFlow(of))) {
		d.end(of, s.cause, nil)
	}
}

// endAll ends all flows.
func (l *loop) endAll(c Cause) {
	l.slab.each(func(f *Flow) { l.end(f, c, nil) })
	if l.dgrams != nil {
		l.dgrams.sessions.each(func(s *session) { l.dgrams.end(s, c, nil) })
	}
}
