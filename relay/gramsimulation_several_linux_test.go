package relay

import (
	"net/netip"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

// Several flows of one address: in a part of the schedules, all clients share two sockets, and Hooks.Choose tells their flows apart by the first byte of
// a datagram, as it does by the connection IDs of QUIC. Of which client a flow is, the first datagram says that its hook is shown.

// gramSeveral is what a flow has of it.
type gramSeveral struct {
	known  bool
	client byte
	from   netip.AddrPort // the address that its upstream knows
	to     Addr
	at     int64 // since when, by gramSimulation.ticks
}

// chooser returns Hooks.Choose.
func (s *gramSimulation) chooser() func([]*Flow, []byte) *Flow {
	if !s.kind.several {
		return nil
	}
	return func(flows []*Flow, b []byte) *Flow {
		if len(flows) > 1 {
			s.seen.marks[markSeveral]++
		}
		sent := s.sent[idOf(b)]
		if sent.chosen {
			s.fail("Choose has said whose datagram %v is, and is asked again", sent.gramID)
		}
		for _, f := range flows {
			x := &s.lifeOf(f.Value()).several
			if !x.known {
				s.fail("flow %v has a neighbour, and has not been shown its first datagram", f.Value())
			}
			if x.client == b[0] {
				sent.chosen = true
				return f
			}
		}
		return nil
	}
}

// clientIs returns the number of a flow's client.
func (s *gramSimulation) clientIs(life *gramLife) byte {
	switch {
	case life == nil:
		return gramNobody
	case !s.kind.several:
		return s.groups.clients[life.client]
	case !life.several.known:
		return gramNobody
	}
	return life.several.client
}

// gramNobody is the number of no client.
const gramNobody = 255

// isOf reports whether a flow is that of a client. Which one it is, the first datagram says.
func (s *gramSimulation) isOf(life *gramLife, client byte) bool {
	if x := &life.several; s.kind.several && !x.known {
		x.known, x.client = true, client
	}
	return s.clientIs(life) == client
}

// lookAtListeners notes that a client may have two flows at one listener: it has one at a listener that was removed, and one at the listener that has its
// address now. The next process has one listener instead of the two, and where a client may have several flows, none of them is older; see findOlder.
func (s *gramSimulation) lookAtListeners(f *datagramFlow) {
	client := s.clientOf(f)
	switch at := &s.groups.at[client]; {
	case client == gramNobody:
	case *at == nil:
		*at = f.port.listener
	case *at != f.port.listener:
		s.groups.exempt[client] = true
	}
}

// lookAtTogether checks that the flows of an address that a loop has restored are at one of its sockets, which can tell apart what comes from there.
func (s *gramSimulation) lookAtTogether() {
	type at struct {
		name     string
		local    netip.Addr
		listener *Listener
	}
	for _, d := range s.core.datagrams.all {
		ports := make(map[at]*datagramPort)
		d.slab.Each(func(f *datagramFlow) {
			if !f.divided() {
				return
			}
			k := at{string(f.clientName()), f.localAddr, f.port.listener}
			if p := ports[k]; p != nil && p != f.port {
				s.fail("two flows of one address are restored at two sockets of loop %d", d.loop.Index)
			}
			ports[k] = f.port
		})
	}
}

// lookAtSplit checks that all flows of an address that has several are at one socket, unless what its clients have sent was in queues when the sockets changed.
func (s *gramSimulation) lookAtSplit() {
	type at struct {
		name     string
		local    netip.Addr
		listener *Listener
	}
	if !s.kind.several || s.core.state == closed {
		return
	}
	ports := make(map[at]*datagramPort)
	exempt := make(map[at]bool)
	for pass := range 2 {
		for _, d := range s.core.datagrams.all {
			d.slab.Each(func(f *datagramFlow) {
				k := at{string(f.clientName()), f.localAddr, f.port.listener}
				if pass == 0 {
					c := s.clientOf(f)
					exempt[k] = exempt[k] || c == gramNobody || s.groups.exempt[c]
					return
				}
				if p := ports[k]; p != nil && p != f.port && !exempt[k] {
					s.fail("the flows of one address are at two sockets\n%s", s.describeGrams())
				}
				ports[k] = f.port
			})
		}
	}
}

// lookAtSeveral notes by which address an upstream knows a flow.
func (s *gramSimulation) lookAtSeveral(f *datagramFlow) {
	life := s.lifeOf(f.Value())
	if life == nil {
		return
	}
	x, from, to := &life.several, netip.AddrPort{}, Addr{}
	if f.fd >= 0 && f.to != nil {
		from, to = s.process.Name(int(f.fd)), *f.to
	}
	if from != x.from || to != x.to {
		x.from, x.to, x.at = from, to, s.ticks
	}
}

// lookAtOwner checks that a datagram which an upstream has got came from no flow of another client, if it was sent while that flow had this address.
func (s *gramSimulation) lookAtOwner(x *gramSent, upstream int, from string) {
	if !s.kind.several || s.kind.busy > 0 {
		return
	}
	var at sys.Sockaddr
	at.SetRaw([]byte(from))
	for _, life := range s.flows {
		if life.records > 0 || life.lost || life.several.at >= x.at || s.clientIs(life) == x.client || life.several.to != s.to[upstream] {
			continue
		}
		if at.AddrPort() == life.several.from {
			s.fail("datagram %v has come from flow %d, which is of client %d", x.gramID, life.number, s.clientIs(life))
		}
	}
}

// A socket that the holder closes late leaves those of its address late: clients of the listener that is there by then have one flow each, though the
// kernel gives them to other loops from then on.
func TestSimulateLateHolder(t *testing.T) {
	for _, beside := range []bool{true, false} { // the closed port is still there when the other listener is made
		s := newGramSimulation(gramWorld{loops: 3})
		for range gramPeersMax {
			s.connect()
		}
		s.keeper.lazy = true
		s.closeListener()
		if beside {
			s.turnLoop(0)
		} else {
			for i := range s.core.loops {
				s.call(func() { s.stepper.Turn(s.core.loops[i]) })
			}
		}
		for range 6 {
			s.turn()
		}
		for closed := range 2 {
			for i := range s.clients {
				s.clientSends(i, 100, 1, 0, false, 0)
			}
			for range 6 { // from loop to loop
				s.turn()
			}
			if closed == 0 {
				s.keeper.closeDropped()
			}
		}
		s.settleGrams()
		if s.checkGrams(); s.wrong != nil {
			t.Errorf("beside the closed port %v: %v", beside, s.wrong)
		}
		if len(s.flows) != len(s.clients) {
			t.Errorf("beside the closed port %v: %d clients have had %d flows", beside, len(s.clients), len(s.flows))
		}
		s.finish()
	}
}

// listenAnew has two connections of each of two addresses, closes their listener and makes another one, changed as the test likes, whose loops lead what comes for
// them to one another when the keeper has closed the sockets of the first.
func (s *gramSimulation) listenAnew(change func()) {
	for range 4 {
		s.connect()
	}
	s.keeper.lazy = true
	s.closeListener()
	s.turn()
	if change != nil {
		change()
	}
	for range 4 {
		s.allSend(1, false)
	}
}

// allSend has each client send, and what it has sent go from loop to loop.
func (s *gramSimulation) allSend(count int, joined bool) {
	for i := range s.clients {
		s.clientSends(i, 100, count, 0, joined, 0)
	}
	s.allTurns()
}

// allTurns has as many turns as a datagram may need to go from loop to loop.
func (s *gramSimulation) allTurns() {
	for range 8 {
		s.turn()
	}
}

// A listener whose new configuration has no Hooks.Choose goes on with the flows that addresses have: each gets what comes for it, also if the kernel gives it to
// another loop, and no connection begins beside them.
func TestSimulateChooseNoMore(t *testing.T) {
	for _, joined := range []bool{false, true} {
		s := newGramSimulation(gramWorld{loops: 3, several: true, sniff: 1})
		s.listenAnew(nil)
		cfg := *s.listener.cfg.Load()
		cfg.Hooks.Choose = nil
		s.call(func() {
			if err := s.listener.Update(cfg); err != nil {
				t.Error(err)
			}
		})
		flows := len(s.flows)
		s.strayedAt = 0
		s.keeper.closeDropped()
		s.allSend(3, joined)
		s.settleGrams()
		if s.checkGrams(); s.wrong != nil {
			t.Errorf("joined %v: %v", joined, s.wrong)
		}
		if len(s.flows) != flows || s.strayedAt == 0 {
			t.Errorf("joined %v: there were %d flows, and are %d; datagrams went astray: %v", joined, flows, len(s.flows), s.strayedAt > 0)
		}
		s.finish()
	}
}

// sendMixed has clients that share a socket send one datagram each in turn, count times, as one run.
func (s *gramSimulation) sendMixed(count int, clients ...int) {
	var all []byte
	const size = 100
	for range count {
		for _, i := range clients {
			p := s.clients[i]
			id := gramID{byte(i), up, p.next[up]}
			p.next[up]++
			x := &gramSent{gramID: id, size: size, at: s.ticks, from: p.name}
			s.sent[id], s.unresolved = x, append(s.unresolved, x)
			b := make([]byte, size)
			id.fill(b, 0)
			all = append(all, b...)
		}
	}
	if e := s.sendOne(s.clients[clients[0]], s.relayName(clients[0]), all, size, 0); e != 0 {
		s.fail("send: %v", e)
	}
}

// Where an address has several flows and the kernel gives what comes from it to another loop, as after an upgrade, a burst of joined datagrams goes to
// the flows that they are of, and in their order: what the kernel has joined is one question to other loops.
func TestSimulateStrayBurst(t *testing.T) {
	s := newGramSimulation(gramWorld{loops: 3, several: true, sniff: 1})
	s.listenAnew(nil)
	flows := len(s.flows)
	s.keeper.closeDropped()
	strayed := false
	read := func() {
		s.allTurns()
		strayed, s.strayedAt = strayed || s.strayedAt > 0, 0 // from now on, their order is asked for
		for i := range s.upstreams {
			s.upstreamReads(i, 3000)
		}
	}
	for range 20 {
		for i := range s.clients {
			s.clientSends(i, 100, 50, 0, true, 0)
		}
	}
	read()
	s.sendMixed(10, 0, 2)
	s.sendMixed(10, 1, 3)
	read()
	if len(s.flows) != flows || !strayed {
		t.Errorf("there were %d flows, and are %d; datagrams went astray: %v", flows, len(s.flows), strayed)
	}
	s.connect()
	s.connect()
	s.sendMixed(10, 0, 2, 4) // and a new connection
	s.sendMixed(10, 5, 1, 3)
	read()
	s.settleGrams()
	if s.checkGrams(); s.wrong != nil {
		t.Error(s.wrong)
	}
	for _, x := range s.flows[flows:] { // the hook may refuse those that are new
		if c := s.clientIs(x); c < 4 {
			t.Errorf("connection %d has another flow", c)
		}
	}
	s.finish()
}

// An empty datagram is of no connection, so that Hooks.Choose has another one begin. One that goes from loop to loop is not lost at a loop that knows others of
// its address.
func TestSimulateStrayEmpty(t *testing.T) {
	s := newGramSimulation(gramWorld{loops: 3, several: true, sniff: 1})
	shown := 0
	change := func() {
		cfg := *s.listener.cfg.Load()
		choose, sniff := cfg.Hooks.Choose, cfg.Hooks.Sniff
		cfg.Hooks.Choose = func(flows []*Flow, b []byte) *Flow {
			if len(b) == 0 {
				return nil
			}
			return choose(flows, b)
		}
		cfg.Hooks.Sniff = func(f *Flow, b []byte, last bool) (int, SniffNext) {
			if b == nil || len(b) > 0 {
				return sniff(f, b, last)
			}
			shown++
			x := &s.lifeOf(f.Value()).sniff
			x.refuses, x.ended = true, true
			s.counted++ // it is dropped, and none of those that are asked for
			return 0, SniffRefuse
		}
		s.call(func() {
			if err := s.listener.Update(cfg); err != nil {
				t.Error(err)
			}
		})
	}
	change()
	s.listenAnew(change)
	s.keeper.closeDropped()
	s.strayedAt = 0
	for i := range 2 { // of each address
		if e := s.sendOne(s.clients[i], s.relayName(i), nil, 0, 0); e != 0 {
			t.Fatal(e)
		}
	}
	s.allTurns()
	if shown != 2 || s.strayedAt == 0 {
		t.Errorf("of 2 empty datagrams, %d have begun a connection; some went astray: %v", shown, s.strayedAt > 0)
	}
	s.settleGrams()
	if s.checkGrams(); s.wrong != nil {
		t.Error(s.wrong)
	}
	s.finish()
}
