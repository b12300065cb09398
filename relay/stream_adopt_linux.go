package relay

import (
	"time"

	"github.com/penstock/penstock/internal/pump"
)

// adopt begins the flow of a pair given to Relay.
func (s *streams) adopt(x *adoption) {
	f := s.newFlow(streamRelaying, x.fd[sideClient], x.fd[sideUpstream])
	f.timeouts, f.value = s.shareTimeouts(&x.config.Timeouts), x.config.Value
	f.tcp = x.tcp
	f.reserved = flowDescriptors
	s.descriptors.takeOpen(flowDescriptors)
	s.notePair(f, &x.config)
	s.loopStats.Adopted++
	for side := range f.fd {
		if f.tcp[side] {
			// The caller's SO_LINGER no longer counts: a reset would destroy what
			// was delivered, and a wait in close(2) would stop the loop.
			if s.keep != nil && lingerUnsettled {
				s.env.Kernel.CloseResets(int(f.fd[side]), true) // until the flow ends well
			} else {
				s.env.Kernel.CloseResets(int(f.fd[side]), false)
			}
		}
		f.half[side].Preload(&s.env, x.read[side])
		s.loopStats.BytesRead += int64(len(x.read[side]))
	}
	if s.done(f) != nil || s.named(f) {
		s.notePeers(f)
	}
	for side := range f.fd {
		if e := s.watch(f, side); e != 0 {
			s.end(f, CauseNoDescriptors, e)
			return
		}
	}
	s.relay(f)
	for h := range f.half {
		if f.half[h].Held() > 0 && f.state == streamRelaying {
			s.carry(f, h)
		}
	}
}

// notePeers notes the addresses of an adopted pair's TCP peers, for its record.
func (s *streams) notePeers(f *streamFlow) {
	if f.tcp[sideClient] && s.env.Kernel.PeerAddr(int(f.fd[sideClient]), &s.address) == 0 {
		f.peer = s.address.AddrPort()
	}
	if f.tcp[sideUpstream] && s.env.Kernel.PeerAddr(int(f.fd[sideUpstream]), &s.address) == 0 {
		if n := len(s.addrs); n > 0 {
			f.to, s.addrs = s.addrs[n-1], s.addrs[:n-1]
		} else {
			f.to = new(Addr)
		}
		*f.to = Addr{Network: TCP, AddrPort: s.address.AddrPort()}
	}
}

// noTimeout is longer than any flow lasts.
const noTimeout = 1 << 16 * time.Hour

// adoptLeg begins the flow of a leg, which lasts until one of its two sockets ends: whoever has the flow that was split knows its
// timeouts.
func (s *streams) adoptLeg(x *leg) {
	inner := 1 - x.side
	f := s.newFlow(streamRelaying, x.fd[sideClient], x.fd[sideUpstream])
	f.timeouts = s.shareTimeouts(&Timeouts{HalfClosed: noTimeout})
	f.tcp[x.side], f.odd[x.side] = x.tcp, x.odd
	f.one = oneInner << inner
	f.reserved = flowDescriptors
	s.descriptors.takeOpen(flowDescriptors)
	s.noteInner(f, x.info)
	t := s.tlsOf(f)
	t.conn[x.side], t.answered, t.late, t.closed = x.conn, x.tls.answered, x.tls.late, x.tls.closed
	t.spoke = x.spoke
	t.conn[x.side].Drained = false
	for h, held := range x.held {
		f.half[h].Preload(s.envOf(f), held)
		s.turned(f)
		s.loopStats.BytesRead += int64(len(held))
	}
	s.loopStats.Adopted++
	for side := range f.fd {
		if e := s.watch(f, side); e != 0 {
			s.end(f, CauseNoDescriptors, e)
			return
		}
	}
	s.relay(f)
	for h, over := range x.over {
		if over {
			f.wait[h] = pump.End
		}
	}
	s.rearm(f)
	if f.over(x.side) {
		s.nameEnd(f, inner, s.goodEnd(f, x.side))
		s.env.Kernel.ShutdownWrite(int(f.fd[inner]))
	}
	for gen, h := f.gen, 0; h < len(f.half); h++ {
		if f.alive(gen) && !f.over(h) {
			s.carry(f, h)
		}
	}
}
