package relay

import (
	"slices"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/stats"
)

// gramDrops are the datagrams that a process had dropped at the last look, by reason, and what there was then that may explain drops until the next one.
type gramDrops struct {
	process  int
	n        [64]int64
	noRoom   []int64               // of those, for want of a place, by loop
	answered []bool                // flows with an answer have half of the places, by loop
	causes   [64]int64             // of the records until then
	messages int64                 // of ICMP until then
	stopping bool                  // a port took no new clients, or something went from loop to loop, whose port may go meanwhile
	patience map[int]time.Duration // of ports, by socket
	full     bool                  // a port or an upstream's socket took nothing more for a while, and hardly more could be held
}

// endedSince reports whether a flow has ended since then with one of these causes, or with any if there are none.
func (s *gramSimulation) endedSince(last *gramDrops, with ...Cause) bool {
	for c, n := range s.seen.causes {
		if int64(n) > last.causes[c] && (len(with) == 0 || slices.Contains(with, c)) {
			return true
		}
	}
	return false
}

// lookAtDrops checks that what was dropped since the last look is explained.
func (s *gramSimulation) lookAtDrops() {
	last := s.drops
	s.drops = gramDrops{process: s.processes, messages: s.routes.count, noRoom: make([]int64, len(s.core.datagrams.all)), stopping: s.core.datagrams.strays.Load() > 0, patience: make(map[int]time.Duration)}
	now := &s.drops
	for c, n := range s.seen.causes {
		now.causes[c] = int64(n)
	}
	for i, d := range s.core.datagrams.all {
		for why, n := range d.stats.Dropped {
			now.n[why] += n
		}
		now.noRoom[i] = d.stats.Dropped[stats.DropNoRoom]
		now.answered = append(now.answered, d.answered.n+d.verified.n >= d.undecided.n+d.silent.n)
		for _, p := range d.ports {
			now.stopping = now.stopping || p.state != portOpen || p.draining || p.drains
			now.full = now.full || p.out.blocked
			now.patience[p.fd] = p.answers.patience(d.loop.Now)
		}
		d.slab.Each(func(f *datagramFlow) { now.full = now.full || len(f.held) > holdMost-holdHeader-1<<16 })
	}
	if s.onlyUnreachable = false; last.process != s.processes { // what it has from the one before is not known
		return
	}
	s.onlyUnreachable = true
	for why, n := range now.n {
		s.onlyUnreachable = s.onlyUnreachable && (n == last.n[why] || stats.Drop(why) == stats.DropUnreachable)
		if n > last.n[why] && !s.explainsDrop(stats.Drop(why), &last) {
			s.fail("%d datagrams were dropped as %v, which nothing explains\n%s", n-last.n[why], stats.Drop(why), s.describeGrams())
		}
	}
	for i, n := range now.noRoom {
		if n > last.noRoom[i] {
			s.lookAtPlaces(i, &last)
		}
	}
}

// explainsDrop reports whether there is a reason why datagrams may have been dropped since the last look.
func (s *gramSimulation) explainsDrop(why stats.Drop, last *gramDrops) bool {
	unix, fails, c := s.kind.network == 3, s.process.Fault != nil, &s.kind.config
	sends := func(with ...sys.Errno) bool { return fails && slices.Contains(with, s.failsWith) }
	switch why {
	case stats.DropOverload:
		return s.over.NoDatagramFlows
	case stats.DropFull:
		return s.over.HoldLess || unix || fails || s.kind.sniff > 0 || s.kind.builtins > 0 || last.full || s.drops.full
	case stats.DropTooBig:
		return sends(sys.EMSGSIZE) || unix && s.kind.bufferMax > 0
	case stats.DropTooBigWithPreface:
		return (sends(sys.EMSGSIZE) || unix && s.kind.bufferMax > 0) && (s.kind.preface != gramPrefaceNone || s.kind.named == gramNamedReplies)
	case stats.DropFailed:
		return sends(sys.EIO, sys.EINVAL) || fails && (slices.Contains(s.routes.none[:], sys.EINVAL) || slices.Contains(s.routes.none[:], sys.EACCES)) // and the question for the route failed
	case stats.DropFiltered:
		return sends(sys.EPERM) && !unix
	case stats.DropNotPermitted:
		return sends(sys.EPERM) && unix
	case stats.DropNoBuffers:
		return sends(sys.ENOBUFS)
	case stats.DropUnreachable:
		if !unix { // of an ICMP message one attempt is told, and the next one does, unless it fails, or is told of another message that came between two calls
			told := s.kind.busy > 0 && s.routes.count > last.messages || fails && s.failsWith != 0 && s.routes.count > 0
			return s.routesMiss() || sends(sys.EINVAL) || s.endedSince(last, CauseUpstreamRefused) || told // to a client, as by a route of type blackhole
		}
		return s.refused || s.clientLeft // of Unix sockets the sender is told
	case stats.DropRefused: // what the hook has taken is dropped, too
		return s.kind.sniff > 0 || s.endedSince(last, CauseNoUpstream, CauseRefused)
	case stats.DropLimited:
		return s.kind.rates > 0 || s.begins.full
	case stats.DropNoRoom:
		return fails || s.kind.maxFlows > 0 || s.kind.limit > 0
	case stats.DropDraining:
		// While one loop's port has closed and another loop's still closes, or a flow that its last datagrams begin gets a socket, a new client can
		// reach the socket that a flow is just being given.
		between := s.kind.network == 0 && (len(s.core.datagrams.all) > 1 || s.ownsLate())
		return s.relistens > 0 && (last.stopping || s.drops.stopping) || s.drain.begun && (s.drain.over || (unix || s.faulted) && s.drain.done || between) // a port that could not be closed takes clients for as long
	case stats.DropAmplification:
		return c.Amplification > 0
	case stats.DropProxyHeader:
		return s.kind.named != gramNamedNone
	case stats.DropEnded:
		return s.endedSince(last) || s.core.state == closed
	}
	return false // what a process has dropped that died is known when the next one has restored
}

// ownsLate reports whether a flow has a socket of its own that began when the listener's port was closing.
func (s *gramSimulation) ownsLate() bool {
	return slices.ContainsFunc(s.flows, func(f *gramLife) bool { return f.ownAt > 0 && f.began >= s.drain.at })
}
