package relay

import (
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/tlsconn"
	"github.com/penstock/penstock/relay/stats"
)

// Nobody can have the keys of a TLS connection but the process that has made its handshake. When that hands over, a flow with
// TLS is split where its records end: the process that hands over keeps the connection, and the next one has the flow. Between
// them is a pair of Unix sockets, the inner ones:
//
//	client's socket ═ records ═ [process before] ─ inner sockets ─ [flow, in the next process] ─ upstream's socket
//
// Both ends of a pair are sides of stream flows like others. There is only one difference. The end of what a Unix socket
// receives does not tell whether its peer has ended the stream, has given up, or has died. So whoever ends a stream well towards
// an inner socket gives its own socket a name before, which the other process can read (getpeername(2)) for as long as it
// has the pair, also after a crash. A stream that ends without it was cut, and a name can say why. A socket gets a name only once;
// once a stream has ended well, nothing more is to be said.
//
// A client that closes without close_notify is a case of its own, because what tells it from one that was cut is that nothing is
// on its way (stream_tls_close_linux.go), and no process sees all of the way. So the word for its end is another one, and each process that
// is told of it looks at what it has itself.

func (s *streams) noteInner(f *streamFlow, tls [2]*stats.TLS) {
	if s.innerFlows == nil {
		s.innerFlows = make(map[uint32]*innerFlow)
	}
	s.innerFlows[f.slot] = &innerFlow{tls: tls}
}

// endInner forgets what was to be known.
func (s *streams) endInner(f *streamFlow) {
	if f.hasInner() {
		delete(s.innerFlows, f.slot)
	}
}

// nameEnd tells the process behind an inner socket why the stream towards it ends now. Nothing can go wrong but that there is no
// name: then the other process takes the end for a cut.
func (s *streams) nameEnd(f *streamFlow, side int, c Cause) {
	if !f.inner(side) {
		return
	}
	name := "@" + strconv.FormatUint(rand.Uint64(), 36) + "." + c.String() // which nobody else has
	if s.address.SetUnix(name) == nil {
		s.env.Kernel.Bind(int(f.fd[side]), &s.address)
	}
}

// nameLast is nameEnd for a flow that ends, before a side is closed. The end is a good one where a connection of TCP would not be reset: what
// is read from a connection after its error was taken looks like an end, too.
func (s *streams) nameLast(f *streamFlow, side int, c Cause) {
	switch {
	case !f.inner(side):
		return
	case !s.resets(f, side, c):
		c = s.goodEnd(f, 1-side)
	case c == CauseEnd || c == CauseNone:
		c = CauseCrashed
	}
	s.nameEnd(f, side, c)
	s.discard(f, side) // the peer would be told of a reset before it has read everything
}

// innerEnd returns why the stream from an inner socket has ended; CauseCrashed: nobody has said.
func (s *streams) innerEnd(f *streamFlow, side int) Cause {
	c := CauseCrashed
	if s.env.Kernel.PeerAddr(int(f.fd[side]), &s.address) == 0 {
		_, text, _ := strings.Cut(s.address.UnixPath(), ".")
		if c.UnmarshalText([]byte(text)) != nil {
			c = CauseCrashed
		}
	}
	return c
}

// goodEnd returns how the stream from a side has ended that has ended well.
func (s *streams) goodEnd(f *streamFlow, side int) Cause {
	switch {
	case side != sideClient:
	case f.inner(side) && s.innerEnd(f, side) == CauseClientClosed, f.tls.has(side) && f.tls.closed:
		return CauseClientClosed
	}
	return CauseEnd
}

// endTurnInner ends the turn of a half: an end that was not named is none, and one of a client that has just closed is none if
// something is on its way here.
func (s *streams) endTurnInner(f *streamFlow, h int) {
	if !f.hasInner() || !f.inner(h) || f.wait[h] != pump.End {
		return
	}
	e := sys.ECONNRESET
	switch c := s.innerEnd(f, h); {
	case c == CauseEnd, c == CauseClientClosed && h == up && s.still(f):
		return
	case c == CauseClientClosed:
		e = tlsconn.Truncated
	}
	f.half[h].Err, f.half[h].AtSrc = e, true
	f.wait[h] = pump.Failed
}

// still reports whether nothing of a flow is on its way here, whose client has closed; see flowTLS.isEnd. The process that has the client's TLS
// knows more.
func (s *streams) still(f *streamFlow) bool {
	if f.wait[down] != pump.WantRead || f.half[down].Held() > 0 || f.tls.has(sideUpstream) && f.tls.conn[sideUpstream].Within() {
		return false
	}
	empty := func(queued func(int) (int, sys.Errno), side int) bool {
		n, e := queued(int(f.fd[side]))
		return n == 0 && e == 0
	}
	k := s.env.Kernel
	return f.allRead(k, sideUpstream) && empty(k.WriteQueued, sideClient) && (s.between(f) || empty(k.WriteQueued, sideUpstream))
}

// between is what flowTLS.upstreamsTurn says of a client's protocol.
func (s *streams) between(f *streamFlow) bool {
	t := s.innerFlows[f.slot].tls[sideClient]
	return t != nil && (t.Protocol == "h2" || t.Protocol == "http/1.1" && f.half[up].In == 0 && (f.tls == nil || !f.tls.spoke))
}

// explainInner sets the cause of a flow whose side has failed: what the process behind an inner socket says, if that is about a
// connection. What fails here, for want of memory, is not its end.
func (s *streams) explainInner(f *streamFlow, side int, e sys.Errno) {
	if !f.inner(side) || e != sys.ECONNRESET && e != sys.EPIPE && e != tlsconn.Truncated {
		return
	}
	switch c := s.innerEnd(f, side); {
	case c == CauseClientClosed && e == tlsconn.Truncated:
		f.cause, f.err = CauseClientTruncated, sys.ECONNRESET
	case c == CauseClientClosed:
	case c.broken() || c.ofTLS():
		f.cause = c
	case c != CauseEnd:
		f.cause = CauseCrashed
	}
}
