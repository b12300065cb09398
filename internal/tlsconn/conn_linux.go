package tlsconn

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/pool"
)

const (
	recordSize = 16 << 10             // of what is in one record, RFC 8446, 5.1
	recordMost = recordSize + 5 + 256 // of the record itself
	// burst is what is encrypted, or received, at a time.
	burst = 4 * recordSize
	// headroom is what is received besides what is wanted, so that little is left: for the records themselves.
	headroom = 512
	// outMost bounds the bytes that wait to be sent: one burst, and messages of TLS itself that the
	// peer asks for and does not take.
	outMost = 4*recordMost + 16<<10
	// workMost is how many records Recv reads in a turn, however little is in them. One that has nothing for
	// the reader, such as one that changes keys, costs as much as idleWork others.
	workMost = 512
	idleWork = 16
	// flightMost bounds what the handshake sends before it waits, which is mostly certificates.
	flightMost = 256 << 10
)

// Errors of [Conn.Recv], besides those of the socket.
const (
	// Invalid says that the peer broke the protocol, or sent an alert; see Conn.Err.
	Invalid = sys.EPROTO
	// Truncated says that the peer ended the connection without saying so in a record, so that bytes
	// may be missing (RFC 8446, 6.1).
	Truncated = sys.ENODATA
)

var (
	errAborted = errors.New("tls: handshake aborted")
	errOutput  = errors.New("tls: the peer asks for more than it takes")
	errShort   = errors.New("tls: connection ended without close_notify")
	errCut     = errors.New("tls: connection ended within a record, without close_notify")
	errEarly   = errors.New("tls: connection ended during the handshake")
)

// Env is what the connections of one event loop share, which run one after the other.
type Env struct {
	Kernel  sys.Kernel
	Buffers *pool.Buffers // where bytes lie between turns
	in, out []byte        // buffers that hold nothing between turns
}

// scratch makes the buffers when the first connection needs them.
func (env *Env) scratch() {
	if env.in == nil {
		env.in, env.out = make([]byte, 4*recordMost), make([]byte, 0, outMost)
	}
}

// Conn is one end of a TLS connection.
//
//	Start ─▶ handshaking ─▶ waiting ─▶ Resume ─▶ handshaking ─▶ over: Recv, Send, Finish
//	                           │                                        │
//	                           └─▶ Abort                                └─▶ Free
//
// Once it is over, Recv and Send have the contracts of [sys.Kernel], with one more condition: after Send
// has returned EAGAIN, the next Send must begin with the same bytes, because they are encrypted already.
type Conn struct {
	// Received and Sent are bytes of the socket.
	Received, Sent int64
	// Drained says that the socket had nothing more to read. The owner clears it when there is an event.
	Drained bool
	// Err is the error behind Invalid, Truncated, or a failed handshake.
	Err error

	tls     *tls.Conn   // nil: the kernel has the connection
	kernel  *kernelConn // nil: it has not
	give    *giving     // nil: it never will
	env     *Env        // while a call of the loop lasts
	fd      int
	tcp     bool
	odd     bool
	want    int    // bytes that the present read is for
	work    int    // what the turn has cost; see workMost
	idle    int    // records that were read since one had something for the reader
	quiet   int    // bytes that were read since then
	most    int    // the maximum of quiet
	more    bool   // the last Recv has left something
	in      []byte // received and not read; it lies in env.in during a call, else in inBuf
	inBuf   []byte // from env.Buffers
	record  record // that crypto/tls is reading
	out     []byte // to be sent; it lies in env.out during a call, else in outBuf
	outBuf  []byte // from env.Buffers
	offered int    // bytes of the last Send that out is the rest of
	ended   bool   // the socket has
	errno   sys.Errno
	failed  sys.Errno // what Recv returns from now on
	unsent  sys.Errno // why out cannot be sent any more
	closed  bool      // close_notify has been received
	closing bool      // close_notify has been written

	// While the handshake lasts.
	handshaking bool
	limit       chan struct{} // holds one value for each handshake that computes
	yield       func(over bool)
	resume      chan struct{}
	pause       func() // see Computing
	aborted     bool
}

// Server returns the server's end. The configuration must not change.
func Server(cfg *tls.Config) *Conn {
	c := new(Conn)
	if _, marked := cfg.KeyLogWriter.(Marked); marked {
		c.give = &giving{}
		cfg = c.give.server(cfg)
	}
	c.tls = tls.Server((*wire)(c), cfg)
	return c
}

// Client returns the client's end. The configuration must not change.
func Client(cfg *tls.Config) *Conn {
	c := new(Conn)
	if _, marked := cfg.KeyLogWriter.(Marked); marked {
		c.give = &giving{client: true}
		cfg = c.give.forClient(cfg)
	}
	c.tls = tls.Client((*wire)(c), cfg)
	return c
}

// State describes the connection once the handshake is over.
func (c *Conn) State() tls.ConnectionState {
	if c.kernel != nil {
		return c.kernel.about
	}
	return c.tls.ConnectionState()
}

// Recv reads what the peer has sent into p, until p is full or there is no more. A peer that has said
// that it sends no more has ended: (0, 0). tcp says that a short read means that the socket is empty, unless it is
// odd: it has hung up, or has urgent data.
//
// Recv stops when a peer has sent so many records in a turn that others should have theirs. More reports that.
func (c *Conn) Recv(env *Env, fd int, tcp, odd bool, p []byte) (n int, e sys.Errno) {
	if c.failed != 0 {
		return 0, c.failed
	}
	if c.closed {
		return 0, 0
	}
	if c.kernel != nil {
		return c.recvKernel(env, fd, nil, p)
	}
	env.scratch()
	c.env, c.fd, c.tcp, c.odd, c.more = env, fd, tcp, odd, false
	for n < len(p) {
		c.want = len(p) - n
		m, err := c.tls.Read(p[n:])
		if g := c.give; g != nil {
			g.took(m, len(p)-n)
		}
		n += m
		if m > 0 && c.idle > 0 {
			c.work += 1 - idleWork
			c.idle, c.quiet = 0, 0
		}
		if err == nil {
			if c.give != nil && c.give.careful {
				break // where nothing is left in here
			}
			continue
		}
		if err != error(again) {
			c.ends(err)
		}
		break
	}
	c.saveIn()
	if c.offered == 0 {
		c.flush() // what TLS itself had to answer
	}
	c.saveOut()
	c.env = nil
	switch {
	case n > 0:
		return n, 0
	case c.failed != 0:
		return 0, c.failed
	case c.closed:
		return 0, 0
	}
	return 0, sys.EAGAIN
}

// Turn begins a turn of the owner.
func (c *Conn) Turn() {
	c.work, c.idle = 0, 0
	if c.kernel != nil {
		c.more = false // a splice may have set it, and clears nothing
	}
}

// More reports whether the last Recv has left something for which there may be no event.
func (c *Conn) More() bool { return c.more }

// ends notes that nothing more can be read, and why.
func (c *Conn) ends(err error) {
	switch {
	case err == io.EOF && !c.ended:
		c.closed = true
	case c.errno != 0:
		c.failed = c.errno
	case c.ended && err == io.EOF:
		c.failed, c.Err = Truncated, errShort
	case c.ended && err == io.ErrUnexpectedEOF:
		c.failed, c.Err = Truncated, errCut
	default:
		c.failed, c.Err = Invalid, err
	}
}

// Send encrypts p, or its first bytes, and sends that. It returns the number of bytes of p whose records
// the socket has taken; EAGAIN may mean that p is encrypted, but not sent completely.
func (c *Conn) Send(env *Env, fd int, p []byte) (int, sys.Errno) {
	if c.kernel != nil {
		return c.sendKernel(env, fd, nil, p)
	}
	c.env, c.fd = env, fd
	defer func() {
		c.saveOut()
		c.env = nil
	}()
	if e := c.flush(); e != 0 {
		return 0, e
	}
	if n := c.offered; n > 0 {
		c.offered = 0
		return n, 0
	}
	env.scratch()
	p = p[:min(len(p), burst)]
	if _, err := c.tls.Write(p); err != nil {
		c.fail(err)
		return 0, Invalid
	}
	switch e := c.flush(); e {
	case 0:
		return len(p), 0
	case sys.EAGAIN:
		c.offered = len(p)
		return 0, e
	default:
		return 0, e
	}
}

// fail notes the first error.
func (c *Conn) fail(err error) {
	if c.Err == nil {
		c.Err = err
	}
}

// Finish tells the peer that nothing more comes. EAGAIN says that it must be called again when the socket
// is writable.
func (c *Conn) Finish(env *Env, fd int) sys.Errno {
	if c.kernel != nil {
		return c.finishKernel(env, fd)
	}
	c.env, c.fd = env, fd
	defer func() {
		c.saveOut()
		c.env = nil
	}()
	if !c.closing {
		c.closing = true
		if err := c.tls.CloseWrite(); err != nil {
			c.fail(err)
			return Invalid
		}
	}
	return c.flush()
}

// Flush sends what is left to send.
func (c *Conn) Flush(env *Env, fd int) sys.Errno {
	if len(c.out) == 0 {
		return 0
	}
	c.env, c.fd = env, fd
	e := c.flush()
	c.saveOut()
	c.env = nil
	return e
}

// Unsent returns the error because of which something was not sent and never will be; 0: there is none. Recv does not return it.
func (c *Conn) Unsent() sys.Errno { return c.unsent }

// Pending reports whether something waits to be sent.
func (c *Conn) Pending() bool { return len(c.out) > 0 }

// Offered reports whether the last Send has encrypted more than the socket took.
func (c *Conn) Offered() bool { return c.offered > 0 }

// Failed reports whether the peer has broken the protocol, in the handshake or afterwards, or ended the connection
// too early.
func (c *Conn) Failed() bool { return c.Err != nil }

// Cut reports whether the connection ended within a record, so that bytes are missing.
func (c *Conn) Cut() bool { return c.Err == errCut }

// Within reports whether the last Recv has read the beginning of a record, and not its end.
func (c *Conn) Within() bool { return c.record.head > 0 }

// Memory returns the bytes of its buffers: of those of crypto/tls, which keep their size, what they had to hold at least.
func (c *Conn) Memory() int {
	n := cap(c.inBuf) + cap(c.outBuf) + c.most
	if c.inBuf == nil {
		n += cap(c.in) // from the handshake
	}
	if c.outBuf == nil {
		n += cap(c.out)
	}
	return n
}

// Free gives back the buffers. The connection is not used any more.
func (c *Conn) Free(env *Env) {
	c.in, c.out, c.most = nil, nil, 0
	c.Keep()
	c.put(env, &c.inBuf)
	c.put(env, &c.outBuf)
}

func (c *Conn) put(env *Env, b *[]byte) {
	if *b != nil {
		env.Buffers.Put(*b)
		*b = nil
	}
}

// flush sends what is left to send. Once that has failed nothing more is sent, so that nothing arrives that Send has not counted.
func (c *Conn) flush() sys.Errno {
	for len(c.out) > 0 {
		if c.unsent != 0 {
			return c.unsent
		}
		n, e := c.env.Kernel.Send(c.fd, c.out)
		switch {
		case e == sys.EINTR:
			continue
		case e == sys.EAGAIN:
			return e
		case e != 0:
			c.unsent = e
			return e
		}
		c.Sent += int64(n)
		c.out = c.out[n:]
	}
	return 0
}

// saveIn keeps what was received and not read yet.
func (c *Conn) saveIn() { c.save(&c.in, &c.inBuf) }

// saveOut keeps what could not be sent yet.
func (c *Conn) saveOut() { c.save(&c.out, &c.outBuf) }

// save moves b into a buffer of its own, unless it is the end of one already.
func (c *Conn) save(b, buf *[]byte) {
	switch {
	case len(*b) == 0:
		*b = nil
		c.put(c.env, buf)
	case !within(*b, *buf):
		own := c.env.Buffers.Get(len(*b))
		copy(own, *b)
		c.put(c.env, buf)
		*b, *buf = own, own
	}
}

// within reports whether b, which is not empty, is the end of buf.
func within(b, buf []byte) bool {
	return len(buf) >= len(b) && &b[len(b)-1] == &buf[len(buf)-1]
}

// wire is the connection as crypto/tls sees it: a socket that is never waited for.
type wire Conn

// again is the error of a read for which there is nothing; crypto/tls tries again after it because it is
// temporary, and keeps the part of a record that it has.
var again = temporary{}

type temporary struct{}

func (temporary) Error() string   { return "tls: nothing to read" }
func (temporary) Timeout() bool   { return true }
func (temporary) Temporary() bool { return true }

func (w *wire) Read(p []byte) (int, error) {
	if w.work >= workMost && !w.handshaking {
		w.more = true
		return 0, again
	}
	g := w.give
	if g != nil && w.record.head == 0 && !w.handshaking {
		g.reading()
	}
	if len(w.in) == 0 {
		if err := w.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, w.in[:w.record.rest(w.in[:min(len(w.in), len(p))])])
	w.in = w.in[n:]
	w.quiet += n
	w.most = max(w.most, w.quiet)
	if w.record.head == 0 {
		w.work += idleWork
		w.idle++
		if g != nil && !w.handshaking {
			g.ends(w.record.kind)
		}
	}
	return n, nil
}

// record is how far the reading of a record has come. crypto/tls gets no byte of the next one with its end:
// it would keep that in front of the next one, and need a buffer of twice the size, which it never returns.
type record struct {
	head int  // bytes of the header that were read, of 5; RFC 8446, 5.1
	body int  // bytes of the body that were not
	kind byte // its type
}

// left returns how many bytes it has left, as far as is known.
func (r *record) left() int {
	if r.head < 5 {
		return 5 - r.head
	}
	return r.body
}

// rest returns how many bytes of b, which follow what it was called with before, belong to the present record.
func (r *record) rest(b []byte) int {
	n := 0
	for ; r.head < 5 && n < len(b); n++ {
		if r.head == 0 {
			r.kind = b[n]
		}
		if r.head++; r.head > 3 {
			r.body = r.body<<8 | int(b[n])
		}
	}
	body := min(r.body, len(b)-n)
	if r.body -= body; r.body == 0 && r.head == 5 {
		r.head = 0
	}
	return n + body
}

// fill makes sure that there is something in w.in.
func (w *wire) fill() error {
	if w.handshaking {
		return (*Conn)(w).wait()
	}
	switch {
	case w.errno != 0:
		return w.errno
	case w.ended:
		return io.EOF
	case w.Drained:
		return again
	}
	into := w.env.in[:min(len(w.env.in), w.want+w.want/16+headroom)]
	if w.give != nil && w.give.careful {
		into = into[:min(len(into), w.record.left())]
	}
	for {
		n, e := w.env.Kernel.Recv(w.fd, into)
		switch {
		case e == sys.EINTR:
			continue
		case e == sys.EAGAIN:
			w.more = w.tcp && w.odd && disturbed(w.env, w.fd)
			w.Drained = !w.more
			return again
		case e != 0:
			w.errno = e
			return e
		case n == 0:
			w.ended = true
			return io.EOF
		}
		w.Drained = w.tcp && !w.odd && n < len(into)
		w.Received += int64(n)
		w.in = into[:n]
		return nil
	}
}

// disturbed reports whether a read has stopped at an urgent byte because a signal was pending, though there is more
// behind it, and no event would follow; see package pump.
func disturbed(env *Env, fd int) bool { return env.Kernel.AtMark(fd) && sys.Readable(env.Kernel, fd) }

// Write takes all of p, because crypto/tls does not try again after an error.
func (w *wire) Write(p []byte) (int, error) {
	most := outMost
	if w.handshaking {
		most = flightMost
	}
	if len(w.out)+len(p) > most {
		return 0, errOutput
	}
	if len(w.out) == 0 && !w.handshaking && w.env.out != nil {
		w.out = w.env.out[:0]
	}
	w.out = append(w.out, p...)
	if w.give != nil && !w.handshaking {
		w.give.wrote(p)
	}
	return len(p), nil
}

func (w *wire) Close() error                     { return nil }
func (w *wire) LocalAddr() net.Addr              { return nowhere{} }
func (w *wire) RemoteAddr() net.Addr             { return nowhere{} }
func (w *wire) SetDeadline(time.Time) error      { return nil }
func (w *wire) SetReadDeadline(time.Time) error  { return nil }
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

// nowhere is the address of an end that has no socket of its own.
type nowhere struct{}

func (nowhere) Network() string { return "tls" }
func (nowhere) String() string  { return "" }
