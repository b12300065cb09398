package relay

import "bytes"

// What is in front of datagrams to upstreams in a simulation: of none, of the first that was sent to an upstream, or of each.
const (
	gramPrefaceNone = iota
	gramPrefaceFirst
	gramPrefaceEach
	gramPrefaces
)

const (
	gramPrefaceSize  = 28
	gramPrefaceBegin = 0xff // no datagram of a peer begins with it
)

// gramPreface is what is in front of the datagrams of a client.
func gramPreface(client byte) []byte {
	return bytes.Repeat([]byte{gramPrefaceBegin, client}, gramPrefaceSize/2)
}

// withoutPreface returns a datagram as its peer has sent it.
func withoutPreface(b []byte) []byte {
	if len(b) >= gramPrefaceSize && b[0] == gramPrefaceBegin {
		return b[gramPrefaceSize:]
	}
	return b
}

// prefaceGrams has a flow's datagrams to the upstream that is chosen begin with its client's preface.
func (s *gramSimulation) prefaceGrams(f *Flow) {
	if s.kind.preface == gramPrefaceNone {
		return
	}
	if err := f.Preface(gramPreface(s.clientOf(f.owner.(*datagrams).of(f)))); err != nil {
		s.fail("Preface: %v", err)
	}
}

// lookAtPreface checks what is in front of the next datagram of a flow. A process that dies between the first datagram and the note
// that it has left sends the preface once more; only then is none in front of a flow that has sent nothing, by what was noted.
func (s *gramSimulation) lookAtPreface(f *datagramFlow) {
	first := s.kind.preface == gramPrefaceFirst
	switch {
	case f.builtin(), f.sniffed:
	case s.kind.preface == gramPrefaceNone, first && f.requests > 0:
		if f.prefaced() {
			s.fail("something is in front of the next datagram of the flow in slot %d, which has sent %d to its upstream", f.slot, f.requests)
		}
	case !f.prefaced() && !(first && s.deaths > 0):
		s.fail("nothing is in front of the next datagram of the flow in slot %d, which has sent %d to its upstream", f.slot, f.requests)
	}
	if f.prefaced() {
		s.seen.marks[markPreface]++
		if p := f.settings.preface; !bytes.Equal(p.b, gramPreface(s.clientOf(f))) || p.each == first {
			s.fail("in front of the datagrams of the flow in slot %d is %x; of each: %v", f.slot, p.b, p.each)
		}
	}
}

// lookAtFront checks what is in front of a datagram of a client that has arrived at an upstream.
func (s *gramSimulation) lookAtFront(b []byte, x *gramSent) {
	front := b[:len(b)-len(withoutPreface(b))]
	switch {
	case len(front) == 0 && x.dir == up && s.kind.preface == gramPrefaceEach:
		s.fail("nothing is in front of datagram %v", x.gramID)
	case len(front) > 0 && (x.dir == down || s.kind.preface == gramPrefaceNone || !bytes.Equal(front, gramPreface(x.client))):
		s.fail("in front of datagram %v is %x", x.gramID, front)
	}
}
