package relay

import (
	"github.com/penstock/penstock/internal/sys"
)

// A drain of an engine with a listener of datagrams, in a simulation; somebody else who has the address meanwhile; and upstreams that are removed.

// gramSuccessor is another process that has the relay's address, too. It reads, and no more.
type gramSuccessor struct {
	end  *gramEnd
	ever bool
}

// beginDrain begins a drain. The listener's clients who have flows go on, each by a socket of its own if that is possible.
func (s *gramSimulation) beginDrain() bool {
	d := &s.drain
	if d.begun || s.listener == nil {
		return false
	}
	d.begun, d.ever, d.at = true, true, s.world.Elapsed()
	s.call(func() {
		if err := s.core.beginDrain(); err != nil {
			s.fail("drain: %v", err)
		}
		s.waitForDrain()
	})
	return true
}

// endDrain is its deadline.
func (s *gramSimulation) endDrain() bool {
	if !s.drainEnds() {
		return false
	}
	s.call(s.endDrainOfCore)
	s.mark2(markDrainEnded, true)
	return true
}

// lookAtDrain goes on with a drain.
func (s *gramSimulation) lookAtDrain() {
	if s.drainWoken() {
		s.call(s.waitForDrain)
	}
	s.mark2(markDrained, s.drain.done && len(s.flows) > 0)
}

// successorComes has another process listen where the relay does, as one that is started before this one ends, or stop.
func (s *gramSimulation) successorComes() bool {
	x := &s.successor
	if s.kind.network == 3 {
		return false // nobody else can have the name
	}
	x.ever = true
	for i := range s.groups.exempt { // the kernel gives clients to others, and later back to perhaps another loop
		s.groups.exempt[i] = true
	}
	if x.end != nil {
		s.peers.Close(x.end.fd)
		x.end = nil
		return true
	}
	fd, e := s.peers.Datagram(s.family())
	var sa sys.Sockaddr
	sockaddr(&sa, s.listen)
	if e = max(e, sys.BindShared(s.peers, fd, &sa)); e != 0 {
		s.fail("somebody else cannot have the relay's address: %v", e)
	}
	x.end = &gramEnd{fd: fd}
	return true
}

// successorReads has it read up to n messages. It gets nothing of clients who had a socket of their own when they sent it.
func (s *gramSimulation) successorReads(n int) (some bool) {
	for range n {
		if s.successor.end == nil {
			break
		}
		m, e := s.peers.RecvBatch(s.successor.end.fd, s.family(), s.in, 0, 1)
		if m == 0 {
			if e == sys.EAGAIN {
				break
			}
			continue
		}
		some = true
		size, _, _, _ := s.in.Received(0)
		b := s.in.Buf(0)[:size]
		x := s.sent[idOf(b)]
		switch {
		case x == nil || x.dir != up:
			s.fail("whoever else has the address has got %x", b[:gramHead])
			return true
		case x.got:
			s.fail("datagram %v has arrived twice", x.gramID)
		case s.ownsSince(x):
			s.fail("datagram %v has reached somebody else who has the address, and its client had a flow with a socket of its own\n%s", x.gramID, s.describeGrams())
		}
		x.got = true
		s.received++
		s.mark2(markSucceeded, s.drain.begun)
		s.in.Rearm(0, 1)
	}
	return some
}

// ownsSince reports whether the client of a datagram had a flow with a socket of its own when it sent that.
func (s *gramSimulation) ownsSince(x *gramSent) (owns bool) {
	for _, d := range s.core.datagrams.all {
		d.slab.Each(func(f *datagramFlow) {
			life := s.lifeOf(f.Value())
			owns = owns || f.own >= 0 && life.client == x.from && life.ownAt > 0 && life.ownAt < x.at && (s.kind.network != 1 || f.localAddr == s.relayAddr(int(x.client)).Addr())
		})
	}
	return owns
}

// lookAtOwn notes since when a flow has a socket of its own.
func (s *gramSimulation) lookAtOwn(f *datagramFlow, life *gramLife) {
	switch {
	case f.own < 0:
		life.ownAt = 0
	case life.ownAt == 0:
		life.ownAt, s.regroupedAt = s.ticks, s.ticks
	}
}

// removeUpstream has the operator remove an upstream, or add it again. Its flows end, and what their clients send next goes to the other one.
func (s *gramSimulation) removeUpstream(i int) bool {
	if s.removed[i] > 0 {
		s.removed[i] = 0
		return true
	}
	all := make(map[uint64]*gramLife)
	var ids []uint64
	for _, d := range s.core.datagrams.all {
		d.slab.Each(func(f *datagramFlow) {
			if f.to != nil && *f.to == s.to[i] {
				life := s.lifeOf(f.Value())
				all[f.ID()], life.killed = life, true
				ids = append(ids, f.ID())
			}
		})
	}
	s.removedEver, s.removed[i] = true, s.ticks
	s.ticks++
	deaths := s.deaths
	s.call(func() {
		e := &Engine{s.core}
		for _, id := range ids {
			if all[id].records > 0 { // it has made room for one whose datagram was on its way between loops
				continue
			}
			info, ok := e.Flow(id)
			if !ok && all[id].records > 0 || ok && info.Upstream != s.to[i] && (s.refused || s.kind.routes > 0) { // or does now, before the question, or goes on to another upstream
				continue
			}
			if !ok || info.ID != id || info.Upstream != s.to[i] {
				s.fail("flow %d is known: %v, as %+v, and its upstream is %v", id, ok, info, s.to[i])
			}
			if !e.Kill(id, CauseKilled) && all[id].records == 0 { // or it has just made room
				s.fail("flow %d cannot be ended", id)
			}
			if _, ok := e.Flow(id); ok || e.Kill(id, CauseKilled) {
				s.fail("flow %d was ended, and is still there", id)
			}
		}
	})
	s.mark2(markRemoved, len(all) > 0)
	if s.deaths > deaths {
		s.removed[i] = 0
	}
	return true
}

// lookAtRemoved checks that an upstream has got nothing that was sent after it was removed.
func (s *gramSimulation) lookAtRemoved(x *gramSent, i int) {
	if at := s.removed[i]; x.dir == up && at > 0 && x.at > at {
		s.fail("datagram %v has arrived at upstream %d, which was removed before it was sent", x.gramID, i)
	}
}
