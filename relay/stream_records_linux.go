package relay

import (
	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/tlsconn"
)

// envOf returns what the flow's halves have in common with others. Bytes of TLS do not get into memory that
// outlives the process, and pipes cannot be used. turned must follow.
func (s *streams) envOf(f *streamFlow) *pump.Env {
	if f.tls == nil {
		return &s.env
	}
	l := &s.tlsLoop
	if f.tls.kernel() {
		l.env = s.env
		l.env.Kernel = f.tls
		return &l.env
	}
	if l.scratch == nil {
		l.scratch = make([]byte, pump.ScratchSize)
	}
	l.env = s.env
	l.env.Kernel, l.env.Buffers, l.env.Scratch, l.env.Pipes = f.tls, &s.shared.buffers, l.scratch, nil
	return &l.env
}

// turned notes what has changed in what envOf has returned.
func (s *streams) turned(f *streamFlow) {
	if f.tls != nil {
		s.env.Held = s.tlsLoop.env.Held
	}
}

// turn begins the turn of the half that reads from a side. t may be nil.
func (t *flowTLS) turn(h int) {
	if t.has(h) {
		t.conn[h].Turn()
	}
}

// endTurnTLS ends the turn of a half.
func (s *streams) endTurnTLS(f *streamFlow, h int) {
	if f.tls != nil {
		s.leaveTLS(f, h)
	}
}

func (s *streams) leaveTLS(f *streamFlow, h int) {
	s.turned(f)
	f.tls.leaves(f, h)
	s.finish(f, h)
	if f.tls.tries > 0 {
		s.tryGiveTLS(f)
	}
}

// prepare tells the half that reads from a side what differs from a socket. t may be nil.
func (t *flowTLS) prepare(half *pump.Half, h int) {
	if t == nil {
		return
	}
	if t.conn[h] != nil {
		half.TCP, half.Exact = false, false // it asks a second time, which costs no system call
	}
	half.Enlarge = false
	if !t.kernel() {
		half.Refuse(datapath.WhyTLS)
	}
}

// eventTLS notes that a side is readable, and sends what TLS itself has to send.
func (s *streams) eventTLS(f *streamFlow, side int, readable, writable bool) {
	if f.tls.has(side) {
		s.eventConn(f, side, readable, writable)
	}
}

func (s *streams) eventConn(f *streamFlow, side int, readable, writable bool) {
	c := f.tls.conn[side]
	if readable {
		c.Drained = false
	}
	if writable && !c.Offered() {
		c.Flush(f.tls.records, int(f.fd[side]))
		if c.Unsent() != 0 && f.wait[side] == pump.WantRead {
			f.wait[side] = pump.Again // Recv tells of it
			s.makeReady(f)
		}
	}
}

// flushTLS goes on to send what a handshake that is over has left, while the flow does not relay yet.
func (s *streams) flushTLS(f *streamFlow, side int) {
	if f.tls.has(side) && (f.state != streamSecuring || f.tls.side != side) {
		f.tls.conn[side].Flush(f.tls.records, int(f.fd[side])) // a failure is found by the first turn
	}
}

// leaves makes a half go on soon that has left something in records.
func (t *flowTLS) leaves(f *streamFlow, h int) {
	if f.wait[h] == pump.WantRead && t.has(h) && t.conn[h].More() {
		f.wait[h] = pump.Again
	}
}

// finish tells a peer that a direction has ended before that is passed on.
func (s *streams) finish(f *streamFlow, h int) {
	side := f.endSide(h)
	c := f.tls.conn[side]
	if c == nil || f.wait[h] != pump.End || f.cause != CauseNone {
		return
	}
	switch e := c.Finish(f.tls.records, int(f.fd[side])); e {
	case 0:
	case sys.EAGAIN:
		f.wait[h] = pump.WantWrite
	default:
		f.half[h].Err, f.half[h].AtSrc = e, false
		f.wait[h] = pump.Failed
	}
}

// explain sets the cause and error of a flow whose side has failed with an error of TLS. t may be nil.
func (t *flowTLS) explain(f *streamFlow, side int, e sys.Errno) {
	if !t.has(side) {
		return
	}
	switch e {
	case tlsconn.Invalid:
		f.cause = CauseClientTLS + Cause(side)
	case tlsconn.Truncated:
		f.cause = CauseClientTruncated + Cause(side)
	default:
		return
	}
	if err := t.conn[side].Err; err != nil { // an earlier process had it
		f.err = err
	}
}

// undelivered returns how much the sockets still have to send of what came before a failure of TLS. The flow waits
// for that: the side is about to be reset, because a mere end would look clean to many.
func (s *streams) undelivered(f *streamFlow) int {
	left := s.undeliveredOf(f)
	if left == nil {
		return 0
	}
	*left = 0
	for h := range f.half {
		half, side := &f.half[h], f.dstSide(h)
		if f.wait[h] == pump.Failed && half.AtSrc && f.tcp[side] && (f.tls.has(h) && (half.Err == tlsconn.Invalid || half.Err == tlsconn.Truncated) || f.inner(h) && f.cause.ofTLS()) {
			n, _ := s.env.Kernel.WriteQueued(int(f.fd[side]))
			*left += n
		}
	}
	return *left
}

// undeliveredOf returns where a flow has what undelivered has found last; nil: nowhere, because there is no TLS.
func (s *streams) undeliveredOf(f *streamFlow) *int {
	switch {
	case f.tls != nil:
		return &f.tls.undelivered
	case f.hasInner():
		return &s.innerFlows[f.slot].undelivered
	}
	return nil
}

// delivers reports whether a flow waits for what was undelivered.
func (s *streams) delivers(f *streamFlow) bool {
	return f.cause != CauseNone && (f.tls != nil || f.hasInner()) && *s.undeliveredOf(f) > 0
}

// delivering looks again at what was undelivered. The flow goes on for as long as some of it is taken.
func (s *streams) delivering(f *streamFlow, due bool) {
	before := *s.undeliveredOf(f)
	n := s.undelivered(f)
	if n == 0 || due && n >= before {
		s.end(f, f.cause, f.err)
		return
	}
	if n < before {
		f.active = s.loop.Now
	}
	s.rearm(f)
}

// forget drops a side's TLS. A handshake that is under way ends soon.
func (s *streams) forget(t *flowTLS, side int) {
	c := t.conn[side]
	t.conn[side] = nil
	if c == nil {
		return
	}
	if t.waits && side == t.side {
		t.waits = false
		s.tlsLoop.queued--
	}
	if !t.under(side) {
		c.Free(t.records)
		return
	}
	s.tlsLoop.leaving++
	if t.ours {
		t.ours = false
		c.Abort()
	}
}

// endTLS drops all of a flow's TLS. Its record describes it before.
func (s *streams) endTLS(f *streamFlow) {
	if f.tls == nil {
		return
	}
	for side := range f.tls.conn {
		s.forget(f.tls, side)
	}
}

// memory returns the bytes of buffers, about. t may be nil.
func (t *flowTLS) memory() (n int64) {
	if t == nil {
		return 0
	}
	for side, c := range t.conn {
		switch {
		case c == nil:
		case t.under(side):
			n += c.Received // which it may have to put together
		default:
			n += int64(c.Memory())
		}
	}
	return n
}

// of returns the TLS of a socket, which may be nil, and its side.
func (t *flowTLS) of(fd int) (*tlsconn.Conn, int) {
	side := sideClient
	if int(t.flow.fd[sideUpstream]) == fd {
		side = sideUpstream
	}
	return t.conn[side], side
}

// Recv implements sys.Kernel.
func (t *flowTLS) Recv(fd int, p []byte) (n int, e sys.Errno) {
	c, side := t.of(fd)
	if c == nil {
		n, e = t.Kernel.Recv(fd, p)
	} else {
		n, e = c.Recv(t.records, fd, t.flow.tcp[side], t.flow.odd[side], p)
	}
	return t.received(c, side, n, e)
}

// received says what a side's read amounts to for its half. c may be nil.
func (t *flowTLS) received(c *tlsconn.Conn, side, n int, e sys.Errno) (int, sys.Errno) {
	switch {
	case n > 0:
		t.hears(side)
	case c == nil:
	case e == tlsconn.Truncated && c.Unsent() == 0 && t.isEnd(side): // a send takes the error of a reset, and what is read then is an end
		return 0, 0
	case e == sys.EAGAIN && t.flow.cause == CauseNone && c.Unsent() != 0:
		return 0, c.Unsent() // the peer may wait for it for ever, such as for the end of the handshake
	}
	return n, e
}

// hears notes that a side has sent something.
func (t *flowTLS) hears(side int) {
	t.answered = side == sideUpstream
	t.late = t.late || t.flow.over(1-side)
}

// Send implements sys.Kernel.
func (t *flowTLS) Send(fd int, p []byte) (int, sys.Errno) {
	c, _ := t.of(fd)
	if c == nil {
		return t.Kernel.Send(fd, p)
	}
	return c.Send(t.records, fd, p)
}

// RecvOne implements sys.Kernel. It is called for flows that are kept only, which have no TLS but the kernel's.
func (t *flowTLS) RecvOne(fd int, m *sys.Message, p []byte) (int, sys.Errno) {
	c, side := t.of(fd)
	if c == nil {
		return t.Kernel.RecvOne(fd, m, p)
	}
	n, e := c.RecvOne(t.records, fd, m, p)
	return t.received(c, side, n, e)
}

// SendOne implements sys.Kernel.
func (t *flowTLS) SendOne(fd int, m *sys.Message, p []byte) (int, sys.Errno) {
	c, _ := t.of(fd)
	if c == nil {
		return t.Kernel.SendOne(fd, m, p)
	}
	return c.SendOne(t.records, fd, m, p)
}

// Splice implements sys.Kernel. It is called if the kernel has all TLS of the flow.
func (t *flowTLS) Splice(rfd, wfd, n int) (int, sys.Errno) {
	n, e := t.Kernel.Splice(rfd, wfd, n)
	c, side := t.source(rfd)
	switch {
	case c == nil && (e == sys.EBADMSG || e == sys.EMSGSIZE): // out of a pipe: after EINVAL, it is copied
		if dst, _ := t.of(wfd); dst != nil {
			return 0, dst.Told(e)
		}
	case c == nil:
	case e == sys.EINVAL: // what comes next is no data
		over, ctl := c.Control(t.records, rfd)
		switch {
		case over:
			return 0, 0
		case ctl == 0:
			return 0, sys.EINTR
		case ctl != sys.EAGAIN:
			return 0, ctl
		case !c.More():
			return 0, c.Broken(t.records, rfd, e) // it was the error of what is no record, which is told once
		}
	case e == sys.EBADMSG, e == sys.EMSGSIZE:
		return 0, c.Broken(t.records, rfd, e)
	case n > 0:
		t.hears(side)
	}
	return n, e
}

// source returns the TLS of a socket that is read from, which may be nil, and its side; nil: it is a pipe.
func (t *flowTLS) source(fd int) (*tlsconn.Conn, int) {
	for side, own := range t.flow.fd {
		if int(own) == fd {
			return t.conn[side], side
		}
	}
	return nil, 0
}

// Discard implements sys.Kernel.
func (t *flowTLS) Discard(fd int, p []byte, tcp bool) (int, sys.Errno) {
	if c, _ := t.of(fd); c == nil {
		return t.Kernel.Discard(fd, p, tcp)
	}
	return t.Recv(fd, p)
}
