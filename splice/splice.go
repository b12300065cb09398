// Package splice moves a stream from one connection to another without copying
// it through user space, for code that blocks.
//
// [Copy] carries one direction, and takes what io.Copy takes; [Relay] both, and passes each
// end on. Between TCP and Unix stream sockets in any pairing, small messages go
// through a buffer and big ones through a pipe, splice(2), whichever is cheaper
// at the time, and while nothing moves nothing is held: no pipe and no buffer.
// A file goes to such a socket by sendfile(2). Anything else is copied by Read and
// Write, through one buffer of 32 KiB.
//
// When much that is spliced to a Unix socket has to wait, its send buffer is
// enlarged (SO_SNDBUF), unless it has been set before: so its reader need not wait
// for each part.
//
// Deadlines and Close work on the connections as they do for Read and Write.
// What was read is delivered, or counted in an [UndeliveredError].
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

	"github.com/penstock/penstock/internal/pump"
)

// Config holds the options of [Config.Copy] and [Config.Relay]. Its zero value
// is what the functions of the same names use. A Config may be used by many
// goroutines at once if Live is nil.
type Config struct {
	// Idle ends a Relay that has moved no byte either way for about so long,
	// with [CauseIdle]; 0 means never. Relay then uses the connections'
	// deadlines, and leaves them cleared. Copy does not look at it: there a
	// read deadline does the same.
	Idle time.Duration

	// HalfClosed ends a Relay of which one side has ended, and the other has
	// moved no byte since for about so long, with [CauseHalfClosed]; 0 means
	// never. It uses deadlines as Idle does.
	HalfClosed time.Duration

	// NoSplice makes every byte go through user space.
	NoSplice bool

	// Live, if not nil, can be read from elsewhere while the bytes move.
	Live *Live
}

// Transfer is what one direction has moved, in bytes.
type Transfer struct {
	Read    int64 // taken from the source
	Written int64 // accepted by the destination
	Spliced int64 // of Written, what never was in user-space memory
	Path    Path
	Why     Why // why not spliced
}

// Result is the account of a Relay.
type Result struct {
	Up, Down Transfer
	Cause    Cause
}

// UndeliveredError is returned when Copy or Relay ends by an error while it
// held bytes that it had read from the source and the destination had not taken.
type UndeliveredError struct {
	Bytes int64
	Err   error
}

func (e *UndeliveredError) Error() string {
	return fmt.Sprintf("%v; %d bytes were read and not delivered", e.Err, e.Bytes)
}

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

// Live is what a running Copy or Relay has moved so far. Its methods may be
// called at any time and from anywhere; a Live must not be shared by two that
// run at once. Copy's direction is AB.
type Live struct {
	dir [2]gauge
}

// Up tells what has moved from A to B, or from Copy's src to its dst.
func (l *Live) Up() Transfer { return l.dir[0].load() }

// Down tells what has moved from B to A.
func (l *Live) Down() Transfer { return l.dir[1].load() }

// reset forgets an earlier Copy or Relay.
func (l *Live) reset() {
	for d := range l.dir {
		g := &l.dir[d]
		g.how.Store(0)
		g.spliced.Store(0)
		g.written.Store(0)
		g.read.Store(0)
	}
}

// moved changes whenever a byte has moved.
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

// load reads the smaller number of each pair first, and store writes it last, so
// that nobody sees more written than read, or more spliced than written.
func (g *gauge) load() (t Transfer) {
	how := g.how.Load()
	t.Path, t.Why = Path(how>>8), Why(how)
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

// Copy copies from src to dst until src ends, which is not an error, or one of
// them fails. It returns the number of bytes that dst accepted. Neither is
// closed, and dst is not told of the end.
//
// Like io.Copy it takes any reader and writer. Between TCP and Unix sockets it
// splices; from an [os.File] to one of them it uses sendfile(2). If src is an
// [io.LimitedReader], Copy ends after N bytes, no more than those are taken from
// its R, which may be a socket or a file, and N is reduced as Read would reduce it.
//
// It blocks; deadlines of src for reading and of dst for writing count, and so
// does a Close of either from elsewhere. While it waits for src it does not look
// at dst, so that it learns of dst's deadline, Close or reset when src has
// something, as io.Copy does. What it has read before src fails is delivered.
// The error is the connection's (os.ErrDeadlineExceeded, net.ErrClosed, a system
// call's), in an [UndeliveredError] if bytes were lost by it; src can then be
// read on from right after those.
func Copy(dst io.Writer, src io.Reader) (written int64, err error) {
	var cfg Config
	return cfg.Copy(dst, src)
}

// Relay moves bytes both ways between a and b until both have ended, or one has
// failed. The end of one direction is passed on (CloseWrite) after its last
// byte. A connection without CloseWrite cannot be told: Relay then goes on with
// the other direction, and a peer that waits for the end learns of it only from
// Close; Config.HalfClosed bounds that. A reset is not passed on as an end.
//
// Neither connection is closed. To pass a reset on, after [CauseAReset] or
// [CauseBReset], call SetLinger(0) on the other connection and close it.
//
// Relay blocks. Deadlines and Close from elsewhere end it. To stop the second
// direction when the first has failed, Relay sets deadlines, and clears them
// before it returns. Between TCP and Unix sockets it runs one more goroutine,
// and with other connections two, which have ended when it returns. Where a
// connection is not stopped by its deadline within half a second, Relay returns
// all the same: its goroutine ends when that connection's Read or Write returns,
// which Close makes them do, and the deadlines stay set.
func Relay(a, b net.Conn) (Result, error) {
	var cfg Config
	return cfg.Relay(a, b)
}

// RelayContext is like [Relay], and ends with [CauseCanceled] and an error that
// wraps ctx's when ctx ends. If ctx has ended already, nothing is read.
func RelayContext(ctx context.Context, a, b net.Conn) (Result, error) {
	var cfg Config
	return cfg.RelayContext(ctx, a, b)
}

// Copy is as the function [Copy], with options.
func (cfg *Config) Copy(dst io.Writer, src io.Reader) (written int64, err error) {
	var w watcher
	if cfg.Live != nil {
		w.gauge = &cfg.Live.dir[0]
		cfg.Live.reset()
	}
	var read []byte
	limit := int64(noLimit)
	limited, _ := src.(*io.LimitedReader)
	if limited != nil {
		if src, limit = limited.R, limited.N; limit <= 0 {
			return 0, nil
		}
	} else if c, ok := src.(net.Conn); ok {
		// Under a limit a wrapper is only read: TakeRead might give too much.
		src, read = pump.Inner(c), pump.TakeRead(c)
	}
	if c, ok := dst.(net.Conn); ok {
		dst = pump.Inner(c)
	}
	t, _, err := cfg.move(dst, src, read, limit, &w)
	w.tell(t)
	if limited != nil {
		limited.N -= t.Read
	}
	return t.Written, undelivered(t, err)
}

// noLimit is the limit of a direction that has none.
const noLimit = math.MaxInt64

// watcher is where a direction shows what it does. The zero value has nobody who looks.
type watcher struct {
	gauge *gauge // nil: nobody counts

	// writes counts a direction's writes twice, when they begin and when they have
	// gone well. It is odd while one is under way, and after one that has failed.
	writes atomic.Uint32
	// left says that Relay has returned without the direction, which must touch
	// nothing any more.
	left atomic.Bool
}

func (w *watcher) tell(t Transfer) {
	if w.gauge != nil && !w.left.Load() {
		w.gauge.store(t)
	}
}

// undelivered adds to an error what was lost by it.
func undelivered(t Transfer, err error) error {
	if lost := t.Read - t.Written; err != nil && lost > 0 {
		return &UndeliveredError{lost, err}
	}
	return err
}

// causeOf says whose fault an error is.
func causeOf(err error, sideA bool) Cause {
	reset := errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ENOTCONN)
	switch {
	case reset && sideA:
		return CauseAReset
	case reset:
		return CauseBReset
	case sideA:
		return CauseAFailed
	}
	return CauseBFailed
}
