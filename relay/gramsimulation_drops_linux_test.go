package relay

import (
	"slices"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/stats"
)

// gramDrops are the datagrams that a process had dropped at the last look, by reason.
type gramDrops struct {
	process int
	n       [64]int64
}

// lookAtDrops checks that what was dropped since the last look is explained.
func (s *gramSimulation) lookAtDrops() {
	last := s.drops
	s.drops = gramDrops{process: s.processes}
	for _, d := range s.core.datagrams.all {
		for why, n := range d.stats.Dropped {
			s.drops.n[why] += n
		}
	}
	if s.onlyUnreachable = false; last.process != s.processes { // what it has from the one before is not known
		return
	}
	s.onlyUnreachable = true
	for why, n := range s.drops.n {
		s.onlyUnreachable = s.onlyUnreachable && (n == last.n[why] || stats.Drop(why) == stats.DropUnreachable)
		if n > last.n[why] && !s.explainsDrop(stats.Drop(why)) {
			s.fail("%d datagrams were dropped as %v, which nothing explains\n%s", n-last.n[why], stats.Drop(why), s.describeGrams())
		}
	}
}

// explainsDrop reports whether there is a reason why datagrams may be dropped.
func (s *gramSimulation) explainsDrop(why stats.Drop) bool {
	unix, fails, c := s.kind.network == 3, s.process.Fault != nil, &s.kind.config
	sends := func(with ...sys.Errno) bool { return fails && slices.Contains(with, s.failsWith) }
	switch why {
	case stats.DropOverload:
		return s.over.NoDatagramFlows
	case stats.DropFull:
		return s.over.HoldLess || unix || fails || s.kind.bufferMax > 0 || s.kind.slow || s.kind.sniff > 0
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
		if !unix {
			return s.routes.count > 0 || s.routesMiss() || sends(sys.EINVAL) // to a client, as by a route of type blackhole
		}
		return s.refused || s.clientLeft // of Unix sockets the sender is told
	case stats.DropRefused:
		return s.routesMiss() || s.kind.sniff > 0 || s.refused || s.removedEver || fails
	case stats.DropLimited:
		return s.kind.rates > 0 || s.begins.full
	case stats.DropNoRoom:
		return fails || s.kind.maxFlows > 0 || s.kind.limit > 0
	case stats.DropDraining:
		// While one loop's port has closed and another loop's still closes, or a flow that its last datagrams begin gets a socket, a new client can
		// reach the socket that a flow is just being given.
		between := s.kind.network == 0 && (len(s.core.datagrams.all) > 1 || s.ownsLate())
		return s.relistens > 0 || s.drain.begun && (s.drain.over || (unix || s.faulted) && s.drain.done || between) // a port that could not be closed takes clients for as long
	case stats.DropAmplification:
		return c.Amplification > 0
	case stats.DropProxyHeader:
		return s.kind.named != gramNamedNone
	case stats.DropEnded:
		return true
	case stats.DropCrashed:
		return s.deaths+s.upgrades > 0
	}
	return false
}

// ownsLate reports whether a flow has a socket of its own that began when the listener's port was closing.
func (s *gramSimulation) ownsLate() bool {
	return slices.ContainsFunc(s.flows, func(f *gramLife) bool { return f.ownAt > 0 && f.began >= s.drain.at })
}
