package relay

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/tlsconn"
)

// A side whose TLS begins or ends here is a tlsconn.Conn around its socket. The halves do not know: for
// them it is a kernel whose sockets receive and send what is in the records.
//
//	client's socket ─▶ records ─▶ Half up ─▶ records or not ─▶ upstream's socket
//
// A handshake runs on a goroutine of its own, because it computes for up to a millisecond, and only ever
// touches memory. Whenever it needs more bytes it waits, and the loop moves what lies in that memory from and
// to the socket.

const (
	defaultHandshakes = 4096 // per loop
	mostHandshakes    = 1 << 16
	// handshakeGrace is how long a peer may let a handshake wait while others wait for it to be over.
	handshakeGrace = time.Second
)

var (
	errNoTLS     = fmt.Errorf("relay: TLS of a datagram flow: %w", errors.ErrUnsupported)
	errNoConfig  = errors.New("relay: no TLS configuration")
	errHandshake = errors.New("relay: TLS handshake")
	errCrowded   = errors.New("the peer did not go on while others waited")
)

// loopTLS is what the flows of a loop share that have TLS.
type loopTLS struct {
	under   int           // handshakes under way, with those that nobody waits for any more
	most    int           // of them
	leaving int           // of those under way, such as nobody waits for
	queued  int           // flows that wait for one of the others to be over
	later   queue[ref]    // they, and some that do not wait any more
	begun   queue[lagRef] // the others, in the order in which they began; some are over
	records tlsconn.Env
	env     pump.Env // see envOf
	scratch []byte
}

func (t *loopTLS) init(all *shared) {
	t.most = all.cfg.MaxHandshakes
	if t.most == 0 {
		t.most = defaultHandshakes
	}
	t.records = tlsconn.Env{Kernel: all.kernel, Buffers: &all.buffers}
}

// flowTLS is a flow's TLS, and the kernel that its halves have.
type flowTLS struct {
	sys.Kernel
	flow        *streamFlow
	records     *tlsconn.Env
	conn        [2]*tlsconn.Conn // nil: the side's bytes are passed on as they are
	took        [2]time.Duration // of the handshake
	side        int              // while the flow is securing: whose handshake it is
	waits       bool             // it has not begun
	begun       bool             // it has begun, and is not over
	since       time.Duration    // when it began
	ours        bool             // it waits for more bytes
	refused     bool             // the last attempt failed in its handshake
	undelivered int              // see streams.undelivered
	answered    bool             // the upstream has sent something after the client's last byte
	late        bool             // a side has sent something after it was told that nothing more comes
	closed      bool             // the client's connection ended without close_notify, with nothing on its way
}

// has reports whether the TLS of a side begins or ends here. t may be nil.
func (t *flowTLS) has(side int) bool { return t != nil && t.conn[side] != nil }

// tlsOf returns the flow's TLS, which it makes if there is none.
func (s *streams) tlsOf(f *streamFlow) *flowTLS {
	if f.tls == nil {
		f.straight = false
		f.tls = &flowTLS{Kernel: s.shared.kernel, flow: f, records: &s.tlsLoop.records}
	}
	return f.tls
}

// Terminate, called in Hooks.Sniff, which then returns SniffDone, makes the engine the server of the client's
// TLS connection, from those bytes on that the hook has not taken away. When the handshake is over,
// Hooks.Secured is called. The upstream gets what is in the client's records, and the client's close_notify is
// the end of that direction. *cfg must not change.
//
// A flow with TLS is not kept ([Config].Keep).
//
// Terminate returns [ErrStage] in another hook, and [errors.ErrUnsupported] for a datagram flow.
func (f *Flow) Terminate(cfg *tls.Config) error {
	s, ok := f.owner.(*streams)
	switch {
	case !ok:
		return errNoTLS
	case cfg == nil:
		return errNoConfig
	case s.of(f).state != streamSniffing || s.of(f).tls != nil:
		return s.of(f).stage("Terminate", "Hooks.Sniff, once")
	}
	s.tlsOf(s.of(f)).conn[sideClient] = tlsconn.Server(cfg)
	return nil
}

// Originate, called in Hooks.Connected of a stream that is connected, makes the engine the client of a TLS
// connection to the upstream. The handshake follows what [Flow.Preface] has added, and when it is over,
// Hooks.Secured is called. cfg needs a ServerName, or InsecureSkipVerify. *cfg must not change.
//
// A flow with TLS is not kept ([Config].Keep).
//
// Originate returns [ErrStage] in another hook and after a failed attempt, and [errors.ErrUnsupported] for a
// datagram flow.
func (f *Flow) Originate(cfg *tls.Config) error {
	s, ok := f.owner.(*streams)
	switch {
	case !ok:
		return errNoTLS
	case cfg == nil:
		return errNoConfig
	case !s.of(f).connected() || s.of(f).tls.has(sideUpstream):
		return s.of(f).stage("Originate", connectedOnly+", once")
	}
	s.tlsOf(s.of(f)).conn[sideUpstream] = tlsconn.Client(cfg)
	return nil
}

// secure begins the handshake with a side, or waits until it can.
func (s *streams) secure(f *streamFlow, side int) {
	t := f.tls
	f.state, f.since = streamSecuring, s.loop.now
	t.side, t.begun, t.ours = side, false, false
	if x := f.early; x != nil {
		if c := t.conn[side]; side == sideClient {
			c.Feed(x.held)
			s.putHeld(x)
		} else if x.own > 0 {
			c.Prepend(x.held[:x.own])
			x.held, x.own = x.held[:copy(x.held, x.held[x.own:])], 0
		}
	}
	s.rearm(f)
	t.waits = true
	s.tlsLoop.queued++
	s.tlsLoop.later.push(f.ref())
	s.beginHandshakes()
}

// beginHandshakes begins as many handshakes as there may be.
func (s *streams) beginHandshakes() {
	l := &s.tlsLoop
	for l.under < l.most && l.later.len() > 0 {
		r := l.later.pop()
		f := s.slab.find(r)
		if f == nil || f.state != streamSecuring || !f.tls.waits {
			continue
		}
		l.queued--
		f.tls.waits, f.tls.begun = false, true
		f.tls.since = s.loop.now
		l.begun.push(lagRef{r, s.loop.now})
		c := f.tls.conn[f.tls.side]
		l.under++
		share, loop := s.share, s.loop
		share.running.Add(1)
		c.Start(share.computing, func(over bool) {
			if !loop.post(request{to: s, ref: r, arg: c}) && !over {
				c.Abort() // the loop has ended
			}
			if over {
				share.running.Done()
			}
		})
	}
}

// turnHandshakes ends handshakes for whose peers others wait for too long, so that a few peers that do not go on cannot
// keep out all others.
func (s *streams) turnHandshakes() {
	l := &s.tlsLoop
	wanted := l.queued - l.leaving
	for l.begun.len() > 0 {
		first := *l.begun.first()
		f := s.slab.find(first.ref)
		over := f == nil || f.state != streamSecuring || !f.tls.begun || f.tls.since != first.at
		if !over && (wanted <= 0 || s.loop.now < first.at+handshakeGrace) {
			return
		}
		l.begun.pop()
		switch {
		case over:
		case f.tls.ours:
			s.handshakeFailed(f, errCrowded)
			wanted--
		default: // it computes
			f.tls.since = s.loop.now
			l.begun.push(lagRef{first.ref, s.loop.now})
		}
	}
}

// handshakesUntil returns when turnHandshakes has something to do.
func (s *streams) handshakesUntil() time.Duration {
	l := &s.tlsLoop
	if l.queued <= l.leaving || l.begun.len() == 0 {
		return never
	}
	return l.begun.first().at + handshakeGrace
}

// handshakeTurn goes on with a handshake that needs more bytes, or is over.
func (s *streams) handshakeTurn(r ref, c *tlsconn.Conn) {
	f := s.slab.find(r)
	gone := f == nil || f.state != streamSecuring || f.tls.conn[f.tls.side] != c
	switch {
	case !c.Over() && gone:
		c.Abort()
	case !c.Over():
		f.tls.ours = true
		s.exchange(f)
	default:
		s.tlsLoop.under--
		if gone {
			s.tlsLoop.leaving--
			c.Free(&s.tlsLoop.records)
		} else {
			f.tls.begun = false
			s.secured(f)
		}
		s.beginHandshakes()
	}
}

// exchange moves the bytes of a handshake that waits for some.
func (s *streams) exchange(f *streamFlow) {
	t := f.tls
	if !t.ours {
		return
	}
	c := t.conn[t.side]
	if c.Exchange(t.records, int(f.fd[t.side]), f.tcp[t.side] && f.odd[t.side]) == 0 {
		t.ours = false
		c.Resume()
	} else if c.More() {
		s.makeReady(f)
	}
}

// secured goes on with a flow whose handshake is over.
func (s *streams) secured(f *streamFlow) {
	t := f.tls
	c := t.conn[t.side]
	c.Flush(t.records, int(f.fd[t.side]))
	if c.Err != nil {
		s.handshakeFailed(f, c.Err)
		return
	}
	side, took := t.side, s.loop.now-f.since
	t.took[side], t.refused = took, false
	if hook := f.cfg.Hooks.Secured; hook != nil {
		state := c.State()
		if cause := hook(&f.Flow, Side(side), &state, took, nil); cause != CauseNone {
			s.turnAway(f, cause.or(CauseRefused), nil)
			return
		}
	}
	if side == sideClient {
		f.pending = true // it may have sent something right behind the handshake
		s.toUpstream(f)
		return
	}
	f.connect = s.loop.now - f.start
	s.start(f, true)
}

// handshakeFailed ends a flow whose client's handshake has failed, and goes on to the next upstream otherwise.
func (s *streams) handshakeFailed(f *streamFlow, err error) {
	t := f.tls
	side := t.side
	if side == sideClient && tlsconn.Gone(err) {
		s.end(f, CauseClientGone, err)
		return
	}
	err = fmt.Errorf("%w with the %v: %w", errHandshake, Side(side), err)
	if hook := f.cfg.Hooks.Secured; hook != nil {
		hook(&f.Flow, Side(side), nil, s.loop.now-f.since, err)
	}
	if side == sideClient {
		s.end(f, CauseClientTLS, err)
		return
	}
	if f.tcp[sideUpstream] {
		s.discard(f, sideUpstream) // or it might be reset before it sees the alert
	}
	s.startFailed(f, err)
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

// under reports whether the handshake of a side is under way, so that its goroutine may have the connection.
func (t *flowTLS) under(side int) bool {
	return t.flow.state == streamSecuring && side == t.side && t.begun
}

// endTLS drops all of a flow's TLS. Its record describes it before.
func (s *streams) endTLS(f *streamFlow) {
	for side := range f.tls.conn {
		s.forget(f.tls, side)
	}
}

// envOf returns what the flow's halves have in common with others. Bytes of TLS do not get into memory that
// outlives the process, and pipes cannot be used. turned must follow.
func (s *streams) envOf(f *streamFlow) *pump.Env {
	if f.tls == nil {
		return &s.env
	}
	l := &s.tlsLoop
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

// failed reports whether a side has sent what is not TLS, or its connection has ended too early. It is not reset,
// because that would destroy the alert, and whatever else is on its way there. t may be nil.
func (t *flowTLS) failed(side int) bool {
	return t.has(side) && !t.under(side) && t.conn[side].Failed()
}

// prepare tells the half that reads from a side what differs from a socket.
func (t *flowTLS) prepare(half *pump.Half, h int) {
	if t.conn[h] != nil {
		half.TCP, half.Exact = false, false // it asks a second time, which costs no system call
	}
	half.Enlarge = false
	half.Refuse(pump.WhyTLS)
}

// eventTLS notes that a side is readable, and sends what TLS itself has to send.
func (s *streams) eventTLS(f *streamFlow, side int, readable, writable bool) {
	c := f.tls.conn[side]
	if c == nil {
		return
	}
	if readable {
		c.Drained = false
	}
	if writable && !c.Offered() {
		c.Flush(f.tls.records, int(f.fd[side])) // a failure is found by the next turn
	}
}

// flushTLS goes on to send what a handshake that is over has left, while the flow does not relay yet.
func (s *streams) flushTLS(f *streamFlow, side int) {
	if c := f.tls.conn[side]; c != nil && (f.state != streamSecuring || f.tls.side != side) {
		c.Flush(f.tls.records, int(f.fd[side])) // a failure is found by the first turn
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
	side := f.dstSide(h)
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

// failure is the cause of a handshake that fails.
func (t *flowTLS) failure() Cause {
	if t.side == sideClient {
		return CauseClientTLS
	}
	return CauseUpstreamTLS
}

// explain sets the cause and error of a flow whose side has failed with an error of TLS.
func (t *flowTLS) explain(f *streamFlow, side int, e sys.Errno) {
	if t.conn[side] == nil {
		return
	}
	switch e {
	case tlsconn.Invalid:
		f.cause, f.err = CauseClientTLS+Cause(side), t.conn[side].Err
	case tlsconn.Truncated:
		f.cause, f.err = CauseClientTruncated+Cause(side), t.conn[side].Err
	}
}

// undelivered returns how much the sockets still have to send of what came before a failure of TLS. The flow waits
// for that: the side is about to be reset, because a mere end would look clean to many.
func (s *streams) undelivered(f *streamFlow) int {
	f.tls.undelivered = 0
	for h := range f.half {
		half, side := &f.half[h], f.dstSide(h)
		if f.wait[h] == pump.Failed && half.AtSrc && f.tls.has(h) && f.tcp[side] && (half.Err == tlsconn.Invalid || half.Err == tlsconn.Truncated) {
			n, _ := sys.WriteQueued(int(f.fd[side]))
			f.tls.undelivered += n
		}
	}
	return f.tls.undelivered
}

// delivering looks again at what was undelivered. The flow goes on for as long as some of it is taken.
func (s *streams) delivering(f *streamFlow, due bool) {
	before := f.tls.undelivered
	n := s.undelivered(f)
	if n == 0 || due && n >= before {
		s.end(f, f.cause, f.err)
		return
	}
	if n < before {
		f.active = s.loop.now
	}
	s.rearm(f)
}

// tls describes the TLS of a side.
func (s *streams) tls(f *Flow, side int) *TLS {
	t := s.of(f).tls
	if !t.has(side) {
		return nil
	}
	c := t.conn[side]
	d := &TLS{Handshake: t.took[side]}
	if t.under(side) {
		return d
	}
	d.Received, d.Sent = c.Received, c.Sent
	if state := c.State(); state.HandshakeComplete {
		d.Version, d.CipherSuite, d.ServerName, d.Protocol, d.Resumed = state.Version, state.CipherSuite, state.ServerName, state.NegotiatedProtocol, state.DidResume
	}
	return d
}

// memory returns the bytes of buffers, about.
func (t *flowTLS) memory() (n int64) {
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
	} else if n, e = c.Recv(t.records, fd, t.flow.tcp[side], t.flow.odd[side], p); e == tlsconn.Truncated && t.isEnd(side) {
		return 0, 0
	}
	if n > 0 {
		t.answered = side == sideUpstream
		t.late = t.late || t.flow.over(1-side)
	}
	return n, e
}

// Send implements sys.Kernel.
func (t *flowTLS) Send(fd int, p []byte) (int, sys.Errno) {
	c, _ := t.of(fd)
	if c == nil {
		return t.Kernel.Send(fd, p)
	}
	return c.Send(t.records, fd, p)
}

// Discard implements sys.Kernel.
func (t *flowTLS) Discard(fd int, p []byte, tcp bool) (int, sys.Errno) {
	if c, _ := t.of(fd); c == nil {
		return t.Kernel.Discard(fd, p, tcp)
	}
	return t.Recv(fd, p)
}
