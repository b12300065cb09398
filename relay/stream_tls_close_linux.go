package relay

import (
	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/sys"
)

// A connection that ends without close_notify may have been cut by somebody in between, and the other side is reset. But browsers
// end their connections so. What follows tells a client that has closed its connection from one that may have been cut:
// all that was sent has arrived, and it was not the client's turn to say more. Whoever cuts a connection there has cut nothing off.

// isEnd reports whether a side whose connection has ended without close_notify has just ended: it has been told that
// nothing more comes, and has said nothing since; or it is a client that has closed its connection.
func (t *flowTLS) isEnd(side int) bool {
	switch f := t.flow; {
	case t.conn[side].Cut(), f.fd[sideUpstream] < 0: // nobody was told anything if the upstream is built in
		return false
	case t.conn[side].InKernel(): // which does not tell whether there was a part of a record
		return false
	case f.over(1 - side):
		return !t.late || t.framed(side)
	case side == sideUpstream:
		return false
	}
	t.closed = t.allDown() && t.upstreamsTurn()
	return t.closed
}

// allDown reports whether the client has received everything that the upstream has sent.
func (t *flowTLS) allDown() bool {
	f := t.flow
	if f.wait[down] != pump.WantRead || t.has(sideUpstream) && t.conn[sideUpstream].Within() {
		return false
	}
	return f.allRead(t.Kernel, sideUpstream) && t.taken(sideClient)
}

// allRead reports whether nothing can be read from a side. Of a Unix socket, the kernel counts an urgent byte for ever that reads have
// skipped; then poll(2) tells, which for TCP would say nothing of less than the low-water mark. Of a TCP socket whose next byte is urgent, it does not count
// what is behind that (tcp_inq); then a peek tells, the second one if the first has stopped at the byte because a signal was pending, see pump.Half.disturbed.
func (f *streamFlow) allRead(k sys.Kernel, side int) bool {
	fd := int(f.fd[side])
	n, e := k.ReadQueued(fd)
	switch {
	case e != 0:
		return false
	case n > 0:
		return !f.tcp[side] && !sys.Readable(k, fd)
	case f.tcp[side] && k.AtMark(fd):
		unread, e := k.HasUnread(fd)
		if e == 0 && !unread && sys.Readable(k, fd) { // by the end of the stream, too
			unread, e = k.HasUnread(fd)
		}
		return e == 0 && !unread
	}
	return true
}

// upstreamsTurn reports whether the client does not owe the upstream anything: the upstream has spoken last, after it
// had received everything; or the client's protocol says itself where its messages end, and none has begun.
func (t *flowTLS) upstreamsTurn() bool {
	switch {
	case t.framed(sideClient):
		return true
	case t.conn[sideClient].State().NegotiatedProtocol == "http/1.1" && t.flow.half[up].In == 0 && !t.spoke: // browsers connect before they have a request
		return true
	}
	return t.answered && t.taken(sideUpstream)
}

// framed reports whether a side's protocol is HTTP/2, whose frames say their length, and where a message ends: RFC 9113, 4.1
// and 8.1.
func (t *flowTLS) framed(side int) bool {
	return t.conn[side].State().NegotiatedProtocol == "h2"
}

// taken reports whether a side has received everything that was sent to it.
func (t *flowTLS) taken(side int) bool {
	n, e := t.Kernel.WriteQueued(int(t.flow.fd[side]))
	return n == 0 && e == 0
}

// endCause returns the cause of a flow both of whose sides have ended.
func (s *streams) endCause(f *streamFlow) (c Cause, err error) {
	if c = s.goodEnd(f, sideClient); c == CauseClientClosed && f.tls.has(sideClient) {
		err = f.tls.conn[sideClient].Err
	}
	return c, err
}
