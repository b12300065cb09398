package relay

import (
	"bytes"
	"net/netip"

	"github.com/penstock/penstock/relay/origin"
)

// Proxies in front of a simulation: none, ones of which each datagram names its client, also in replies, or only some datagrams of each
// client, as one that begins its flows anew does. Where each names it, clients share two sockets.
const (
	gramNamedNone = iota
	gramNamedEach
	gramNamedReplies
	gramNamedFirst
	gramNameds
)

// shared reports whether clients share sockets.
func (x *gramWorld) shared() bool { return x.named == gramNamedEach || x.named == gramNamedReplies }

// shares reports whether clients share sockets, by headers or by Hooks.Choose.
func (x *gramWorld) shares() bool { return x.shared() || x.several }

// origin returns how the relay reads the headers.
func (x *gramWorld) origin() *origin.Config {
	if x.named == gramNamedNone {
		return nil
	}
	return &origin.Config{First: x.named == gramNamedFirst, Trusts: func(netip.Addr) bool { return true }, Read: readTestHeader}
}

// gramHeader is the header of a client.
func (x *gramWorld) gramHeader(client byte) []byte {
	front := headerOf(1 + int(client))
	if x.named == gramNamedReplies {
		front = append([]byte{0x56, 0xEC}, front...)
	}
	return front
}

// frontOf is what is in front of datagram n of a client. Some have none, or half of one.
func (x *gramWorld) frontOf(client byte, n uint32) []byte {
	switch {
	case x.named == gramNamedNone, x.named == gramNamedFirst && n%5 != 0, n%23 == 22:
		return nil
	case n%23 == 21 && x.named != gramNamedFirst:
		return x.gramHeader(client)[:15]
	}
	return x.gramHeader(client)
}

// nameless reports whether no flow may get a datagram.
func (x *gramWorld) nameless(id gramID) bool {
	return x.shared() && id.dir == up && id.n%23 >= 21
}

// withoutHeader returns a datagram of a proxy as its client has sent it, also if it is half a header.
func withoutHeader(b []byte) []byte {
	if h, ok := readTestHeader(b); ok {
		return b[h.Len:]
	}
	if len(b) > 15 && (b[0] == 0x56 && b[1] == 0xEC || bytes.HasPrefix(b, []byte(proxySignature))) {
		return b[15:]
	}
	return b
}

// nameOf is the name by which a client is known.
func (s *gramSimulation) nameOf(client int, at *gramEnd) string {
	if s.kind.named == gramNamedNone {
		return at.name
	}
	return clientNumber(1 + client).String()
}

// shares has a client use the socket of an earlier one.
func (s *gramSimulation) shares(i int) *gramEnd {
	if i < 2 || !s.kind.shares() {
		return s.peer(nil)
	}
	return &gramEnd{fd: s.clients[i%2].fd, name: s.clients[i%2].name}
}

// lookAtHeader checks what is in front of a reply, and returns what follows.
func (s *gramSimulation) lookAtHeader(b []byte, dir byte) []byte {
	rest := withoutHeader(b)
	front := b[:len(b)-len(rest)]
	switch {
	case dir == up || s.kind.named != gramNamedReplies:
		if len(front) > 0 {
			s.fail("%x is in front of a datagram", front)
		}
	case len(rest) == 0 || !bytes.Equal(front, s.kind.gramHeader(rest[0])):
		s.fail("%x is in front of a reply: %x", front, rest)
	}
	return rest
}

// gramNamedMarks are the marks of each kind of proxies, and gramProxied is what clients have sent to, as their proxies say.
var (
	gramNamedMarks = [...]string{markNamed + "0", markNamed + "1", markNamed + "2", markNamed + "3"}
	gramProxied    = netip.MustParsePrefix("192.0.2.1/32")
)

// lookAtName checks that a flow has the name of its client and a place in the table.
func (s *gramSimulation) lookAtName(f *datagramFlow) {
	if f.named() != (s.kind.named != gramNamedNone) || f.shares() != s.kind.shared() {
		s.fail("the flow in slot %d is named %v, and shares its address: %v", f.slot, f.named(), f.shares())
		return
	}
	if !f.named() {
		return
	}
	s.seen.marks[gramNamedMarks[s.kind.named]]++
	n := &f.settings.name
	if want := clientNumber(1 + int(s.clientOf(f))); n.client != want || f.Client().AddrPort != want || !gramProxied.Contains(n.to.Addr().Unmap()) {
		s.fail("the flow in slot %d is that of %v, which has sent to %v, and its client is %v", f.slot, n.client, n.to, f.Client())
	}
	if got := f.port.get(f); got == nil {
		s.fail("the flow in slot %d is not in the table of its port", f.slot)
	}
	if s.kind.named == gramNamedReplies != (len(n.reply.b) > 0) {
		s.fail("in front of replies of the flow in slot %d is %x", f.slot, n.reply.b)
	}
}
