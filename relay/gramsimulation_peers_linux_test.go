package relay

import (
	"encoding/binary"
	"net/netip"

	"github.com/penstock/penstock/internal/sys"
)

// What the clients and upstreams of a simulation of datagrams send and read. Each datagram has a name.

func idOf(b []byte) gramID {
	b = withoutPreface(withoutHeader(b))
	return gramID{b[0], b[1], binary.LittleEndian.Uint32(b[4:])}
}

// fill writes datagram id.
func (id gramID) fill(b []byte, tos uint8) {
	b[0], b[1], b[2], b[3] = id.client, id.dir, tos, 0
	binary.LittleEndian.PutUint32(b[4:], id.n)
	binary.LittleEndian.PutUint32(b[8:], uint32(len(b)))
	copy(b[gramHead:], simBytes(id.client, int(id.dir), int64(id.n)<<16, len(b)-gramHead))
}

// send has a peer send count datagrams of one size, the last one shorter by less, to an address; as one run if run is set.
func (s *gramSimulation) sendGrams(p *gramEnd, client, dir byte, name []byte, size, count, less int, run bool, tos uint8) {
	less = min(less, size-gramHead)
	var all []byte
	var ids []gramID
	seg := size
	for i := range count {
		run = run && (dir == down || len(s.kind.frontOf(client, p.next[up]+uint32(i))) == len(s.kind.frontOf(client, p.next[up])))
	}
	for i := range count {
		n := size
		if i == count-1 {
			n -= less
		}
		id := gramID{client, dir, p.next[dir]}
		if dir == down {
			c := s.clients[client]
			id.n = c.next[down]
			c.next[down]++
		} else {
			p.next[up]++
		}
		var front []byte
		if dir == up {
			front = s.kind.frontOf(client, id.n)
		}
		b := append(front, make([]byte, n)...)
		id.fill(b[len(front):], tos)
		x := &gramSent{gramID: id, size: n, tos: tos, at: s.ticks, from: p.name}
		if dir == down {
			x.via = string(name)
		}
		s.sent[id] = x
		s.unresolved = append(s.unresolved, x)
		if run && count > 1 && s.kind.network != 3 {
			seg = size + len(front)
			all, ids = append(all, b...), append(ids, id)
			continue
		}
		if s.sendOne(p, name, b, 0, tos) != 0 {
			s.unsend(id)
		}
	}
	if len(ids) > 0 && s.sendOne(p, name, all, seg, tos) != 0 {
		for _, id := range ids {
			s.unsend(id)
		}
	}
}

// unsend forgets a datagram that could not be sent.
func (s *gramSimulation) unsend(id gramID) { s.sent[id].lost = true }

func (s *gramSimulation) sendOne(p *gramEnd, name, b []byte, seg int, tos uint8) sys.Errno {
	v := s.out
	v.Release()
	v.Open()
	v.SetNameLen(0, copy(v.Name(0), name))
	v.Add(b)
	var c []byte
	if s.kind.network != 3 {
		c = sys.AppendTOS(v.Control(0), s.kind.network == 2, tos)
		if seg > 0 {
			c = sys.AppendSegment(c, uint16(seg))
		}
	}
	v.SetControlLen(0, len(c))
	_, e := s.peers.SendBatch(p.fd, v, 0, 1)
	return e
}

// relayName is the address of the listener, as a client writes to it.
func (s *gramSimulation) relayName(client int) []byte {
	at := s.listen
	at.AddrPort = s.relayAddr(client)
	var sa sys.Sockaddr
	sockaddr(&sa, at)
	return append([]byte(nil), sa.Raw()...)
}

func (s *gramSimulation) relayAddr(client int) netip.AddrPort {
	if s.kind.network == 1 {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(1 + client%2)}), s.listen.AddrPort.Port())
	}
	return s.listen.AddrPort
}

// clientSends and upstreamAnswers have a peer send something; clientReads and upstreamReads have it read up to n messages.
func (s *gramSimulation) clientSends(i, size, count, less int, run bool, tos uint8) {
	s.sendGrams(s.clients[i], byte(i), up, s.relayName(i), size, count, less, run, tos)
}

func (s *gramSimulation) upstreamAnswers(i, size, count, less int, run bool, tos uint8) bool {
	h := s.heard[i%len(s.heard)]
	p := s.upstreams[h.upstream]
	if p != nil {
		s.sendGrams(p, h.client, down, []byte(h.name), size, count, less, run, tos)
	}
	return p != nil
}

func (s *gramSimulation) clientReads(i, n int) bool {
	before := s.received
	for range n {
		if !s.readGram(s.clients[i], i, down) {
			break
		}
	}
	return s.received > before
}

func (s *gramSimulation) upstreamReads(i, n int) bool {
	before := s.received
	for range n {
		if p := s.upstreams[i]; p == nil || !s.readGram(p, i, up) {
			break
		}
	}
	return s.received > before
}

// readGram has a peer read one message, and checks it. i is the number of the client or upstream.
func (s *gramSimulation) readGram(p *gramEnd, i int, dir byte) bool {
	n, e := s.peers.RecvBatch(p.fd, s.family(), s.in, 0, 1)
	if n == 0 {
		return e != sys.EAGAIN
	}
	size, _, name, control := s.in.Received(0)
	s.arrived(s.in.Buf(0)[:size], i, dir, string(name), sys.ParseControl(control).TOS)
	s.in.Rearm(0, 1)
	return true
}

// tick counts a step or a turn.
func (s *gramSimulation) tick() {
	s.ticks++
	if s.process.Fault != nil {
		s.faultedAt = s.ticks
	}
}

// mayOvertake reports whether a datagram may arrive after a later one of its client. Since it was sent, there was something that went from loop to loop; or it
// is an echo, which comes from the listener, be it by one flow or another; or it was what a port has received while the flow got a socket of its own, or before if
// it could not be read, as the own one may be read first; or it was in the queue of one loop when the sockets changed, so that the next one came to another.
func (s *gramSimulation) mayOvertake(x *gramSent, dir byte) bool {
	closing := s.relistens > 0 || s.drain.ever || s.drain.begun || s.successor.ever
	switch {
	case x.dir != up:
		return false
	case s.strayedAt >= x.at, closing && dir != x.dir:
		return true
	}
	return s.regroupedAt >= x.at && (s.groups.exempt[x.client] && s.kind.loops > 1 || s.kind.busy > 0 || s.faultedAt >= x.at)
}

// arrived checks a datagram that a peer has got.
func (s *gramSimulation) arrived(b []byte, i int, dir byte, from string, tos uint8) {
	b = s.lookAtHeader(b, dir)
	all := b
	b = withoutPreface(b)
	if len(b) < gramHead {
		s.fail("a datagram of %d bytes has arrived, which nobody has sent", len(b))
		return
	}
	x := s.sent[idOf(b)]
	if x == nil {
		s.fail("datagram %v has arrived, which nobody has sent", idOf(b))
		return
	}
	want := make([]byte, x.size)
	x.fill(want, x.tos)
	switch {
	case string(b) != string(want):
		s.fail("datagram %v has arrived with %d bytes, and is not the one that was sent, of %d", x.gramID, len(b), x.size)
	case x.got:
		s.fail("datagram %v has arrived twice", x.gramID)
	case x.dir != dir && !(dir == down && s.builtinOf(x.client) == Echo):
		s.fail("datagram %v has come back", x.gramID)
	case s.kind.nameless(x.gramID):
		s.fail("datagram %v has arrived, and no header says whose it is", x.gramID)
	case dir == down && s.clients[x.client].fd != s.clients[i].fd:
		s.fail("datagram %v has arrived at client %d", x.gramID, i)
	}
	x.got = true
	s.lookAtFront(all, x)
	s.received++
	if x.dir == up {
		s.lookAtArrival(x)
	}
	if dir == up {
		s.lookAtRemoved(x, i)
		s.lookAtOwner(x, i, from)
	}
	via := gramVia{x.client, x.dir, from}
	if dir == down {
		via.via = x.via
		if want := string(s.relayName(i)); from != want {
			s.fail("client %d has got a reply from %x, and writes to %x", i, from, want)
		}
	}
	if last, ok := s.order[via]; ok && x.n <= last && !s.mayOvertake(x, dir) {
		s.fail("datagram %v has arrived after number %d", x.gramID, last)
	}
	s.order[via] = x.n
	if s.kind.network != 3 {
		keeps, own := s.kind.config.TOS, s.kind.dscpOf(dir)<<2
		if want := [...]uint8{TOSNone: own, TOSECN: own | x.tos&ecnBits, TOSCopy: x.tos}[keeps]; tos != want {
			s.fail("datagram %v has arrived with TOS %#x, was sent with %#x by a socket with %#x, and what is kept is %d", x.gramID, tos, x.tos, own, keeps)
		}
	}
	if dir == up {
		h := gramHeard{x.client, i, from}
		for _, other := range s.heard {
			if other == h {
				return
			}
		}
		s.heard = append(s.heard, h)
	}
}
