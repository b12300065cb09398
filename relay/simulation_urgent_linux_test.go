package relay

import (
	"bytes"
	"slices"

	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/sys"
)

// Urgent data in a simulation: it stops nothing and ends nothing. The urgent byte is skipped, unless a later one has come before that: then it is
// part of the stream. It differs from the byte that comes next.
//
// Of TCP: if it comes between an event and the read that this causes, the kernel's counter says from then on a byte more than was read, and nothing tells so.
// If a process dies in a read after that, another byte is delivered in its place, behind what was read. See docs/kernel.md.

// costUnixUrgent is an urgent byte of a Unix socket.
const costUnixUrgent = "urgent data of Unix sockets"

// urgentByte is one that is sent in front of byte n of a direction of a flow.
func urgentByte(id byte, side int, n int64) byte { return ^simByte(id, side, n) }

// sendUrgent lets a peer send an urgent byte.
func (s *simulation) sendUrgent(f *simFlow, side int) bool {
	h := &f.half[side]
	if f.fd[side] < 0 || h.ended || h.sent == 0 || f.builtin != 0 {
		return false
	}
	if p := f.peerOf(side); p != nil {
		return s.sendUrgentTLS(p)
	}
	e := s.peers.SendUrgent(f.fd[side], urgentByte(f.id, side, h.sent))
	switch {
	case e == 0:
		h.urgent = append(h.urgent, h.sent)
		if f.unix[side] {
			s.seen.costs[costUnixUrgent]++
		}
	case e != sys.EAGAIN:
		s.broken(f, side, e)
	}
	return e == 0
}

// sendUrgentTLS lets a peer send an urgent byte beside its TLS, also within a record. It is skipped, and nothing shows it. One more could overtake the
// first, which would then be a part of the stream, and that no TLS any more; and where the kernel has the TLS, its reading ends in front of the byte.
func (s *simulation) sendUrgentTLS(p *simPeer) bool {
	if !p.over || p.fin || p.urgent || s.kernelTLS {
		return false
	}
	e := s.peers.SendUrgent(p.fd(), 0xff)
	switch {
	case e == 0:
		p.urgent = true
		s.seen.costs[Side(p.side).String()+": urgent data beside TLS"]++
	case e != sys.EAGAIN:
		s.brokenTLS(p, e)
	}
	return e == 0
}

// miscounted reports whether a process that died in a read may have left a count with an urgent byte in it, which can be more than a read takes.
func (h *simHalf) miscounted() bool { return h.doubts > 0 && len(h.urgent) > 0 }

// most is how many bytes can arrive at most.
func (h *simHalf) most() int64 { return h.sent + int64(len(h.urgent)) }

// takes reports whether b is what can arrive next, and goes on behind it.
func (h *simHalf) takes(id byte, side int, b []byte) bool {
	for len(b) > 0 {
		here, next := 0, h.sent // urgent bytes at this place, and the place of the next one
		for _, at := range h.urgent {
			switch {
			case at == h.got:
				here++
			case at > h.got:
				next = min(next, at)
			}
		}
		if here > h.late && b[0] == urgentByte(id, side, h.got) {
			h.late++
			h.overtaken++
			b = b[1:]
			continue
		}
		n := int(min(int64(len(b)), next-h.got))
		if n = matching(b[:n], simBytes(id, side, h.got, n)); n > 0 {
			h.got, h.late = h.got+int64(n), 0
			b = b[n:]
			continue
		}
		if !h.stray() {
			return false
		}
		h.overtaken++
		b = b[1:]
	}
	return true
}

// matching returns how many of the first bytes of a and b, which are equally long, are the same.
func matching(a, b []byte) int {
	if bytes.Equal(a, b) {
		return len(a)
	}
	n := 0
	for a[n] == b[n] {
		n++
	}
	return n
}

// stray reports whether a byte that nobody has sent may arrive here, which it then has.
func (h *simHalf) stray() bool {
	passed := slices.ContainsFunc(h.urgent, func(at int64) bool { return at <= h.got })
	if !h.miscounted() || !passed || h.got < h.doubtAt || h.got > h.doubtAt+pump.ScratchSize {
		return false
	}
	h.doubts--
	return true
}
