package relay

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/tlsconn"
)

// handshakeGrace is how long a peer may let a handshake wait while others wait for it to be over.
const handshakeGrace = time.Second

var (
	errNoTLS     = fmt.Errorf("relay: TLS of a datagram flow: %w", errors.ErrUnsupported)
	errNoConfig  = errors.New("relay: no TLS configuration")
	errHandshake = errors.New("relay: TLS handshake")
	errCrowded   = errors.New("the peer did not go on while others waited")
)

// Terminate, called in Hooks.Sniff, which then returns SniffDone, makes the engine the server of the client's
// TLS connection, from those bytes on that the hook has not taken away. When the handshake is over,
// Hooks.Secured is called. The upstream gets what is in the client's records, and the client's close_notify is
// the end of that direction. *cfg must not change.
//
// A flow with TLS is not kept ([Config].Keep), unless cfg is from [hold.TLSInKernel].
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
// A flow with TLS is not kept ([Config].Keep), unless cfg is from [hold.TLSInKernel].
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
	f.state, f.since = streamSecuring, s.loop.Now
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
		f := s.slab.Find(r)
		if f == nil || f.state != streamSecuring || !f.tls.waits {
			continue
		}
		l.queued--
		f.tls.waits, f.tls.begun = false, true
		f.tls.since = s.loop.Now
		l.begun.push(lagRef{r, s.loop.Now})
		c := f.tls.conn[f.tls.side]
		l.under++
		share, on := s.share, s.loop
		share.running.Add(1)
		c.Start(&share.computing, func(over bool) {
			if !on.Post(loop.Request{To: s, Ref: r, Arg: c}) && !over {
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
		f := s.slab.Find(first.ref)
		over := f == nil || f.state != streamSecuring || !f.tls.begun || f.tls.since != first.at
		if !over && (wanted <= 0 || s.loop.Now < first.at+handshakeGrace) {
			return
		}
		l.begun.pop()
		switch {
		case over:
		case f.tls.ours:
			s.handshakeFailed(f, errCrowded)
			wanted--
		default: // it computes
			f.tls.since = s.loop.Now
			l.begun.push(lagRef{first.ref, s.loop.Now})
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
	f := s.slab.Find(r)
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
	side, took := t.side, s.loop.Now-f.since
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
	f.connect = s.loop.Now - f.start
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
		hook(&f.Flow, Side(side), nil, s.loop.Now-f.since, err)
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
