package relay

// goneFlows is how many of the flows are examined that begin after one whose client was gone.
const goneFlows = 64

// kill ends a flow at the request of others.
func (s *streams) kill(f *Flow, c Cause) { s.end(s.of(f), c, nil) }

// end closes a flow, gives back what it held, and hands out its record.
func (s *streams) end(f *streamFlow, c Cause, err error) {
	switch f.state {
	case streamQueued:
		f.queued += s.loop.Now - f.since
	case streamShort:
		s.share.short.flows.Add(-1) // FlowEnded ends pauses
	}
	s.freeEarly(f)
	s.noteFinal(f, c, err)
	var dropped int64
	for h := range f.half {
		dropped += f.half[h].Close(s.envOf(f))
		s.turned(f)
	}
	done := s.done(f)
	if done != nil {
		s.fill(&f.Flow, c, err)
	}
	for side, fd := range f.fd {
		if fd >= 0 {
			s.descriptors.closing(1)
			s.nameLast(f, side, c)
			s.closeSide(f, side, f.tcp[side] && s.resets(f, side, c))
		}
	}
	s.endTLS(f)
	s.endInner(f)
	s.noteEnded(f)
	s.loopStats.Ended[c]++
	if c == CauseClientGone {
		s.gone = goneFlows
	}
	s.loopStats.BytesDropped += dropped
	s.loop.Disarm(f.slot)
	s.descriptors.give(int64(f.reserved))
	if f.listener == nil {
		delete(s.pairs, f.slot)
	}
	if f.listener == nil && f.to != nil {
		s.addrs = append(s.addrs, f.to) // notePeers took it
	}
	s.slab.Put(f.slot)
	if done != nil {
		s.handOut(done)
	}
	s.load.Add(-1) // after its record: Drain returns when none is left
	s.loop.FlowEnded()
}

// discard reads what a side's socket has received: close(2) with unread data sends a reset,
// which would destroy what a TCP socket still has to send, and tells a Unix peer ECONNRESET
// after what it has got. A peer that goes on sending is reset by the kernel all the same.
func (s *streams) discard(f *streamFlow, side int) {
	const most = 8 // of 1 MiB; a receive buffer has 6 MiB at most, net.ipv4.tcp_rmem
	if c := f.tls.inKernel(side); c != nil {
		c.Drop(f.tls.records, int(f.fd[side]))
		return
	}
	for range most {
		if n, _ := s.env.Kernel.Discard(int(f.fd[side]), s.envOf(f).Scratch, f.tcp[side]); n <= 0 {
			return
		}
	}
}

// closeSide closes a side.
func (s *streams) closeSide(f *streamFlow, side int, reset bool) {
	fd := int(f.fd[side])
	switch {
	case f.kept:
		s.closeKept(f, side, reset)
		return
	case !f.tcp[side]:
		if f.complete(side) && !f.over(side) {
			s.discard(f, side)
		}
	case reset:
		s.env.Kernel.CloseResets(fd, true)
	default:
		if (s.keep != nil || f.hasInner()) && lingerUnsettled || f.listener != nil && f.listener.lingers {
			s.env.Kernel.CloseResets(fd, false)
		}
		if !f.over(side) || f.tls.has(side) { // an end of TLS may have something behind it
			s.discard(f, side)
		}
	}
	s.env.Kernel.Close(fd)
}

// closeKept closes a side of a flow that is kept. The holder has the socket too, so that close(2) alone
// would not end the connection.
func (s *streams) closeKept(f *streamFlow, side int, reset bool) {
	fd := int(f.fd[side])
	s.loop.Unwatch(fd)
	switch {
	case reset:
		resetSocket(s.env.Kernel, fd)
	case f.tcp[side]:
		s.env.Kernel.CloseResets(fd, false)
		if !f.over(side) || f.tls.has(side) {
			s.discard(f, side)
		}
		s.env.Kernel.ShutdownBoth(fd)
	default:
		if f.complete(side) && !f.over(side) {
			s.discard(f, side)
		}
		s.env.Kernel.ShutdownBoth(fd)
	}
	s.env.Kernel.Close(fd)
}
