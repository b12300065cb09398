// Package splice moves streams between connections, where possible without copying
// the data through user space. Its functions block; package relay does the same with
// event loops.
//
// [Copy] moves one direction and is a replacement for [io.Copy]. [Relay] moves both
// directions between two connections and passes the end of each on.
//
// Between TCP and Unix stream sockets, in any pairing, small messages are copied
// through a buffer and large amounts of data go through a pipe with splice(2),
// whichever is cheaper at the time. While nothing moves, no pipe and no buffer is in
// use. A file is sent to such a socket with sendfile(2). Between other readers and
// writers Copy calls WriteTo of the one or ReadFrom of the other, as io.Copy does, or
// copies through one buffer of 32 KiB.
//
// If a stream that is spliced to a Unix socket fills the socket's send buffer, the
// buffer is enlarged (SO_SNDBUF), unless it was set before.
//
// Deadlines and Close work on the connections as they do for Read and Write. Bytes that
// were read are delivered, or counted in an [UndeliveredError]; io.Copy, when it has
// spliced between two sockets up to a write deadline, forgets what is left in its pipe.
package splice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/pump"
)

// Config holds options of Copy and Relay. The functions of these names use the zero
// value. A Config may be used by several goroutines at once.
type Config struct {
	// Idle ends a Relay with [OutcomeIdle] when no byte has moved in either direction for
	// about this long; 0 and negative values mean never. Relay then uses the connections' deadlines, and
	// clears them before it returns. Copy does not use Idle; set a read deadline instead.
	Idle time.Duration

	// HalfClosed ends a Relay with [OutcomeHalfClosed] when one side has ended, and the
	// other has moved no byte for about this long since then; 0 and negative values mean never. It uses
	// deadlines as Idle does.
	HalfClosed time.Duration

	// NoSplice copies all data through user space, by Read and Write.
	NoSplice bool
}

// Transfer counts what one direction has moved, in bytes.
type Transfer struct {
	Read    int64         // taken from the source
	Written int64         // accepted by the destination
	Spliced int64         // of Written, those that never were in user space
	Path    datapath.Path // how the bytes moved
	Why     datapath.Why  // why they were not spliced
}

// Result is the result of a Relay between a and b.
type Result struct {
	Up      Transfer // from a to b
	Down    Transfer // from b to a
	Outcome Outcome  // what ended it
}

// UndeliveredError is returned when a Copy or Relay fails after it has read bytes from
// the source that the destination has not accepted.
type UndeliveredError struct {
	Bytes int64 // how many were read and not delivered
	Err   error // the error of the connection
}

// Error returns the text of Err with the number of bytes.
func (e *UndeliveredError) Error() string {
	return fmt.Sprintf("%v; %d bytes were read and not delivered", e.Err, e.Bytes)
}

// Unwrap returns Err.
func (e *UndeliveredError) Unwrap() error { return e.Err }

// Timeout reports whether Err is a timeout. With Temporary it makes
// UndeliveredError a [net.Error].
func (e *UndeliveredError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

// Temporary reports whether Err is temporary, which is not well-defined. See [net.Error].
func (e *UndeliveredError) Temporary() bool {
	var t interface{ Temporary() bool }
	return errors.As(e.Err, &t) && t.Temporary()
}

// Live counts what a Copy or Relay has moved while it runs; see [Config.CopyLive] and
// [Config.RelayLive]. Its methods may be called at any time by any goroutine. A Live
// must not be used by two calls that run at the same time.
type Live struct {
	dir [2]gauge
}

// Up returns what has moved from a to b, or from Copy's src to its dst.
func (l *Live) Up() Transfer { return l.dir[0].load() }

// Down returns what has moved from b to a.
func (l *Live) Down() Transfer { return l.dir[1].load() }

// reset sets all counters to zero.
func (l *Live) reset() {
	for d := range l.dir {
		g := &l.dir[d]
		g.how.Store(0)
		g.spliced.Store(0)
		g.written.Store(0)
		g.read.Store(0)
	}
}

// moved returns a number that changes whenever a byte has moved.
func (l *Live) moved() (n int64) {
	for d := range l.dir {
		n += l.dir[d].read.Load() + l.dir[d].written.Load()
	}
	return n
}

type gauge struct {
	read, written, spliced atomic.Int64
	how                    atomic.Uint32 // Path and Why
}

// load reads the smaller number of each pair first, and store writes it last, so that the
// result never has more bytes written than read, or more spliced than written.
func (g *gauge) load() (t Transfer) {
	how := g.how.Load()
	t.Path, t.Why = datapath.Path(how>>8), datapath.Why(how)
	t.Spliced = g.spliced.Load()
	t.Written = g.written.Load()
	t.Read = g.read.Load()
	return t
}

func (g *gauge) store(t Transfer) {
	g.read.Store(t.Read)
	g.written.Store(t.Written)
	g.spliced.Store(t.Spliced)
	g.how.Store(uint32(t.Path)<<8 | uint32(t.Why))
}

// Copy copies from src to dst until src ends or one of them fails. It returns the
// number of bytes that dst accepted. The end of src is not an error. Copy closes
// neither of them, and does not pass the end of src on.
//
// Like [io.Copy], it accepts any reader and writer. If src is an [io.LimitedReader], Copy
// takes at most N bytes from its R, and reduces N as Read does. How the bytes move, and
// what is known of them if dst fails, depends on the two:
//
//   - Between TCP and Unix stream sockets Copy splices, and from an [os.File] to one of
//     them it uses sendfile(2). The same is true of a socket in a [Wrapper], such as
//     [NewConn] makes of a [bufio.Reader]. If dst fails, the error is wrapped in an
//     [UndeliveredError] if bytes were read and not delivered; reading from src goes on
//     after those.
//   - Otherwise, if src is an [io.WriterTo], Copy calls its WriteTo, and if dst is an
//     [io.ReaderFrom], its ReadFrom, as io.Copy does, unless that is known to be no better
//     than a copy: a bufio.Reader may splice, a file copy itself to a file, a buffer
//     become one datagram. What they have read and not delivered when dst fails, they do
//     not say. Config.NoSplice and Config.CopyLive do not call them, and neither does Relay.
//   - Otherwise Copy reads up to 32 KiB and writes them. An UndeliveredError tells of those
//     that were not delivered. The error is [io.ErrNoProgress] if 100 calls of Read in a
//     row have returned neither a byte nor an error.
//
// Copy blocks. The read deadline of src and the write deadline of dst apply, and
// closing either from another goroutine ends it. Like io.Copy, it does not notice a
// deadline, Close or reset of dst while it waits for src. If src fails, the bytes read
// before that are delivered. The error is that of Read of src or of Write of dst, such as
// [os.ErrDeadlineExceeded], [net.ErrClosed] or a system call's; for connections of package
// net it is a [net.OpError] whose Op is "read" or "write".
func Copy(dst io.Writer, src io.Reader) (written int64, err error) {
	var cfg Config
	return cfg.Copy(dst, src)
}

// Relay moves bytes in both directions between a and b until both have ended or one has
// failed. It passes the end of a direction on after its last byte, with CloseWrite. To
// a connection without that method it cannot pass the end on: Relay continues with the
// other direction, and a peer that waits for the end sees it only when the caller
// closes the connection. Config.HalfClosed limits that time.
//
// Relay closes neither connection, and does not pass a reset on as an end. To pass a
// reset on, after [OutcomeAReset] or [OutcomeBReset], call SetLinger(0) on the other
// connection and close it.
//
// Relay blocks. Deadlines, and closing a connection from another goroutine, end it. When
// one direction fails, Relay sets deadlines to stop the other, and clears them before
// it returns. It starts one goroutine for TCP and Unix sockets and two for other
// connections, which have ended when it returns. Only if a deadline does not stop a
// connection within half a second, Relay returns before its goroutine has ended; the
// goroutine ends when the connection is closed, and the deadlines stay set.
func Relay(a, b net.Conn) (Result, error) {
	var cfg Config
	return cfg.Relay(a, b)
}

// RelayContext is like [Relay]. When ctx ends, it returns with [OutcomeCanceled] and an
// error that wraps ctx's. If ctx has already ended, nothing is read.
func RelayContext(ctx context.Context, a, b net.Conn) (Result, error) {
	var cfg Config
	return cfg.RelayContext(ctx, a, b)
}

// Copy is like the function [Copy], with options.
func (cfg *Config) Copy(dst io.Writer, src io.Reader) (written int64, err error) {
	return cfg.CopyLive(dst, src, nil)
}

// CopyLive is like [Config.Copy], and counts in live what it moves, for which it does not
// call WriteTo or ReadFrom. It sets live to zero first.
func (cfg *Config) CopyLive(dst io.Writer, src io.Reader, live *Live) (written int64, err error) {
	var w watcher
	if live != nil {
		w.gauge = &live.dir[0]
		live.reset()
	}
	var read []byte
	whole, limit := src, int64(noLimit)
	limited, _ := src.(*io.LimitedReader)
	if limited != nil {
		if src, limit = limited.R, limited.N; limit <= 0 {
			return 0, nil
		}
	} else if c, ok := src.(net.Conn); ok {
		if isNil(c) {
			return 0, errNilConn
		}
		// With a limit a wrapper is only read, because TakeRead might return too much.
		src, read = pump.Inner(c), pump.TakeRead(c)
		whole = src
	}
	if c, ok := dst.(net.Conn); ok {
		if isNil(c) {
			return 0, errNilConn
		}
		dst = pump.Inner(c)
	}
	if live == nil && !cfg.NoSplice && !moves(dst, src) {
		if rest := delegate(dst, whole); rest != nil {
			t, _, err := moveUser(dst, src, read, 0, &w, Transfer{})
			if err != nil {
				return t.Written, undelivered(t, err)
			}
			n, err := rest()
			return t.Written + n, err
		}
	}
	t, _, err := cfg.move(dst, src, read, limit, &w)
	w.tell(t)
	if limited != nil {
		limited.N -= t.Read
	}
	return t.Written, undelivered(t, err)
}

// noLimit stands for no limit.
const noLimit = math.MaxInt64

// watcher shows what a direction does to other goroutines.
type watcher struct {
	gauge *gauge // nil if nothing is counted

	// writes increases when a write begins, and again when it has succeeded. It is odd
	// during a write, and after one that has failed.
	writes atomic.Uint32
	// left is true when Relay has returned before the direction has ended. The direction
	// must then not count anything any more.
	left atomic.Bool
}

func (w *watcher) tell(t Transfer) {
	if w.gauge != nil && !w.left.Load() {
		w.gauge.store(t)
	}
}

// undelivered wraps err in an UndeliveredError if bytes were read and not written.
func undelivered(t Transfer, err error) error {
	if lost := t.Read - t.Written; err != nil && lost > 0 {
		return &UndeliveredError{lost, err}
	}
	return err
}

// outcomeOf returns the outcome for an error of side a or b.
func outcomeOf(err error, sideA bool) Outcome {
	reset := errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ENOTCONN)
	switch {
	case reset && sideA:
		return OutcomeAReset
	case reset:
		return OutcomeBReset
	case sideA:
		return OutcomeAFailed
	}
	return OutcomeBFailed
}
