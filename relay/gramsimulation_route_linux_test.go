package relay

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// Routes that this host does not have for a while, and ICMP messages that say the same of another one, in a simulation of datagrams. A flow without a
// route has its socket as long as nothing else is there for it; one that was told of an ICMP message does what its policy says.

// gramRoutes are the missing routes of a simulation.
type gramRoutes struct {
	none    [2]sys.Errno                // to upstreams: why; 0: there is one
	told    map[netip.AddrPort]gramTold // flows' sockets that were told of an ICMP message
	looks   int64                       // between turns
	unasked *gramLife                   // has not asked for another upstream lately, and has lost something since the last look
	unheard *gramLife                   // so of the hook, which has not heard of that
	count   int64                       // of messages
}

// gramTold is a message that a socket was told of.
type gramTold struct {
	e         sys.Errno
	at        time.Duration
	processes int
	look      int64 // gramRoutes.looks
	tick      int64
}

// gramRoute is what a flow has of it.
type gramRoute struct {
	from    netip.AddrPort // its socket at the last look
	to      Addr
	dropped int64
	away    bool // its upstream had no route at the last look

	process  int           // of the rest
	asked    time.Duration // when it asked for another upstream because of its route, by its loop's clock; 0: never
	times    int           // how often then
	nobody   int64         // when the hook had none for it, by gramSimulation.ticks
	heard    time.Duration // when the hook has heard of its missing route
	hearings int
	failed   int64 // when the hook has heard last that an upstream cannot be reached, by gramSimulation.ticks
}

// What Hooks.Upstream returns to a flow that has an upstream, in a schedule with routes that go.
const (
	gramRouteByAttempt = iota // the other one and its own in turns, and none after a few
	gramRouteOwn              // its own
	gramRouteOther            // the other one, and then its own
	gramRouteModes
)

// gramNoRoutes are the errors of a missing route, and gramUnreachables those of ICMP messages.
var (
	gramNoRoutes     = [...]sys.Errno{sys.ENETUNREACH, sys.EHOSTUNREACH, sys.EACCES, sys.EINVAL}
	gramUnreachables = [...]sys.Errno{sys.EHOSTUNREACH, sys.ENETUNREACH, sys.ECONNREFUSED, syscall.ENOPROTOOPT}
)

// routesStart is called when the world is made.
func (s *gramSimulation) routesStart() {
	s.routes.told = make(map[netip.AddrPort]gramTold)
	s.world.Told = func(local netip.AddrPort, e sys.Errno) {
		s.routes.count++
		s.routes.told[local] = gramTold{e, s.world.Elapsed(), s.processes, s.routes.looks, s.ticks}
	}
	if s.kind.routes == 0 {
		return
	}
	s.world.NoRoute = func(to netip.AddrPort) sys.Errno {
		for i, e := range s.routes.none {
			if e != 0 && to == s.to[i].AddrPort {
				return e
			}
		}
		return 0
	}
}

// noRouteTo returns why this host has no route to an upstream.
func (s *gramSimulation) noRouteTo(to Addr) sys.Errno {
	for i, e := range s.routes.none {
		if to == s.to[i] {
			return e
		}
	}
	return 0
}

func (s *gramSimulation) routesMiss() bool { return s.routes.none != [2]sys.Errno{} }

// routeGoes takes the route to an upstream away, or to both.
func (s *gramSimulation) routeGoes(a, b int) bool {
	if s.kind.routes == 0 {
		return false
	}
	for i := range s.routes.none {
		if i == a%2 || b%3 == 0 {
			s.routes.none[i] = gramNoRoutes[b>>2%len(gramNoRoutes)]
		}
	}
	return true
}

// routeComes brings it back.
func (s *gramSimulation) routeComes(a, b int) bool {
	was := s.routes.none
	for i := range s.routes.none {
		if i == a%2 || b%3 == 0 {
			s.routes.none[i] = 0
		}
	}
	return was != s.routes.none
}

// filters has an ICMP message arrive about what a flow has sent.
func (s *gramSimulation) filters(a, b int) bool {
	if s.kind.network == 3 || s.kind.routes == 0 {
		return false
	}
	var all []*gramLife
	for _, x := range s.flows {
		if x.records == 0 && !x.lost && x.route.from.IsValid() {
			all = append(all, x)
		}
	}
	if len(all) == 0 {
		return false
	}
	x := all[a%len(all)]
	return s.world.Unreachable(x.route.from, x.route.to.AddrPort, gramUnreachables[b%len(gramUnreachables)])
}

// begins forgets what an earlier process did.
func (r *gramRoute) begins(process int) {
	if r.process != process {
		r.process, r.asked, r.times, r.heard, r.hearings = process, 0, 0, 0, 0
	}
}

// lookAtAsking checks that a flow that has a socket asks for another upstream only for want of a route, and how often.
func (s *gramSimulation) lookAtAsking(f *Flow, x *gramLife) {
	r, d := &x.route, f.owner.(*datagrams)
	flow := d.of(f)
	if flow.fd < 0 || s.kind.network == 3 {
		return
	}
	if s.noRouteTo(*flow.to) == 0 {
		s.fail("flow %d asks for another upstream, and this host has a route to its own, %v", x.number, flow.to)
	}
	if s.kind.config.OnUnreachable != UnreachableNext {
		s.fail("flow %d asks for another upstream, and its policy is %d", x.number, s.kind.config.OnUnreachable)
	}
	r.begins(s.processes)
	now := d.loop.Now
	if now != r.asked || r.times == 0 {
		if r.times > 0 && now-r.asked < time.Second {
			s.fail("flow %d asks for another upstream %v after it has", x.number, now-r.asked)
		}
		r.asked, r.times = now, 0
	}
	r.times++
	most := [gramRouteModes]int{attemptsAtOnce, 1, 2}[s.kind.routes%gramRouteModes]
	if r.times > most && s.removed == [2]int64{} {
		s.fail("flow %d asks for another upstream %d times at once", x.number, r.times)
	}
}

// chooses returns which upstream a flow gets in a schedule with routes that go; the one before comes next if that was removed.
func (s *gramSimulation) chooses(f *Flow, x *gramLife, attempt int) int {
	flow, mode, own := f.owner.(*datagrams).of(f), s.kind.routes%gramRouteModes, 0
	if mode == gramRouteByAttempt || flow.fd < 0 && mode == gramRouteOther {
		return (x.number + attempt) % 2
	}
	if flow.fd < 0 {
		return x.number % 2
	}
	if *flow.to == s.to[1] {
		own = 1
	}
	if mode == gramRouteOther {
		return (own + x.route.times) % 2
	}
	return own
}

// connected is Hooks.Connected: it hears of a missing route as often as the flow asks.
func (s *gramSimulation) connected(f *Flow, _ *Addr, _ time.Duration, err error) {
	var call *os.SyscallError
	x := s.lifeOf(f.Value())
	if x != nil && err != nil {
		x.route.failed = s.ticks
	}
	if x == nil || !errors.As(err, &call) {
		return
	}
	r, now := &x.route, f.owner.(*datagrams).loop.Now
	r.begins(s.processes)
	if r.hearings > 0 && now-r.heard < time.Second {
		s.fail("the hook hears of the missing route of flow %d %v after it has", x.number, now-r.heard)
	}
	r.heard, r.hearings = now, r.hearings+1
	if !s.routesMiss() {
		s.fail("the hook hears of flow %d: %v, and there are all routes", x.number, err)
	}
}

// lookAtRoute checks between two turns that a flow has the socket that it had, unless something has happened that takes it away.
func (s *gramSimulation) lookAtRoute(d *datagrams, f *datagramFlow, x *gramLife) {
	if s.kind.network == 3 || s.core.state == closed {
		return
	}
	r := &x.route
	if f.fd < 0 || f.to == nil || f.builtin() {
		return
	}
	from, to := s.process.Name(int(f.fd)), *f.to
	var peer sys.Sockaddr
	if e := s.process.PeerAddr(int(f.fd), &peer); e != 0 || peer.AddrPort() != to.AddrPort {
		s.fail("the socket of flow %d is connected to %v, %v, and its upstream is %v", x.number, peer.AddrPort(), e, to)
	}
	if from != r.from && r.from.IsValid() && !s.mayMove(r) {
		s.fail("flow %d has the socket %v to %v, and had %v to %v, which nothing explains\n%s", x.number, from, to, r.from, r.to, s.describeGrams())
	}
	if from == r.from && to != r.to {
		s.fail("flow %d has the upstream %v by the same socket, and had %v", x.number, to, r.to)
	}
	if from != r.from {
		s.mark2(markElsewhere, r.from.IsValid() && r.away)
		delete(s.routes.told, r.from)
		if m, told := s.routes.told[from]; told && m.look < s.routes.looks { // of who had the port before
			delete(s.routes.told, from)
		}
	}
	dropped := f.moved[up].dropped - r.dropped
	away := s.noRouteTo(to) != 0
	s.mark2(markAway, away && dropped > 0 && from == r.from)
	s.mark2(markBack, r.away && !away)
	if away && from == r.from && dropped > 0 && s.kind.config.OnUnreachable == UnreachableNext && (r.process != s.processes || r.times == 0 || d.loop.Now-r.asked >= time.Second) {
		s.routes.unasked = x
	}
	if away && from == r.from && dropped > 0 && s.kind.config.OnUnreachable != UnreachableEnd && (r.process != s.processes || r.hearings == 0 || d.loop.Now-r.heard >= time.Second) {
		s.routes.unheard = x
	}
	r.from, r.to, r.dropped, r.away = from, to, f.moved[up].dropped, away
}

// lookAtUnasked checks that no flow has lost something for want of a route, and has not asked for another upstream within a second, or told its hook.
func (s *gramSimulation) lookAtUnasked() {
	if !s.onlyUnreachable || s.process.Fault != nil { // a run may have been refused, and gone one by one
		return
	}
	if x := s.routes.unasked; x != nil {
		s.fail("flow %d has no route to %v, has lost something, and has not asked for another upstream: %+v", x.number, x.route.to, x.route)
	}
	if x := s.routes.unheard; x != nil {
		s.fail("flow %d has no route to %v, has lost something, and its hook has not heard of that: %+v", x.number, x.route.to, x.route)
	}
}

// checkHeard checks that the hook of a flow that ends because its upstream cannot be reached has just heard so.
func (s *gramSimulation) checkHeard(x *gramLife, r *Record) {
	if r.Cause == CauseUpstreamRefused && !s.restoring && x.route.failed != s.ticks {
		s.fail("flow %d ends, since its upstream cannot be reached, and its hook has not heard so", x.number)
	}
}

// mayMove reports whether a flow may have left the socket that it had at the last look.
func (s *gramSimulation) mayMove(r *gramRoute) bool {
	if s.kind.config.OnUnreachable != UnreachableNext {
		return false
	}
	if _, told := s.routes.told[r.from]; told {
		return true
	}
	return s.noRouteTo(r.to) != 0 && (s.kind.routes%gramRouteModes != gramRouteOwn || s.isRemoved(r.to)) && s.oneRoute()
}

// isRemoved reports whether an upstream was removed, so that the hook has only the other one.
func (s *gramSimulation) isRemoved(to Addr) bool {
	i := slices.Index(s.to[:], to)
	return i >= 0 && s.removed[i] > 0
}

// oneRoute reports whether there is a route to one of the upstreams.
func (s *gramSimulation) oneRoute() bool { return s.routes.none[0] == 0 || s.routes.none[1] == 0 }

// explainsRefusal reports whether a flow may end because its upstream cannot be reached.
func (s *gramSimulation) explainsRefusal(x *gramLife) bool {
	if s.kind.network == 3 {
		return s.refused
	}
	r, policy := &x.route, s.kind.config.OnUnreachable
	if policy == UnreachableIgnore {
		return false
	}
	if !r.from.IsValid() { // it has begun since the last look
		return s.routesMiss() || s.routes.count > 0
	}
	if _, told := s.routes.told[r.from]; told {
		return true
	}
	scarce := s.process.Fault != nil || s.kind.limit > 0 // it has gone on to another one, and there was no descriptor
	return s.routesMiss() && (policy == UnreachableEnd || r.nobody == s.ticks || s.isRemoved(r.to) || scarce && s.mayMove(r))
}

// lookAtTolds checks, when nothing is under way any more, that a flow which was told of an ICMP message has done what its policy says. One that has
// just had no route takes the message for the end of that.
func (s *gramSimulation) lookAtTolds() {
	if s.kind.config.OnUnreachable == UnreachableIgnore {
		return
	}
	for _, x := range s.flows {
		r := &x.route
		if x.records > 0 || x.lost || !r.from.IsValid() {
			continue
		}
		if m, told := s.routes.told[r.from]; told && m.processes == s.processes && s.faultedAt < m.tick && !(saysNoRoute(m.e) && r.process == s.processes && r.times+r.hearings > 0) {
			s.fail("flow %d was told %v at %v, and goes on by the same socket\n%s", x.number, m.e, m.at, s.describeGrams())
		}
	}
}
