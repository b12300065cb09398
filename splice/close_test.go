package splice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/internal/testwait"
)

// A connection that cannot close one direction is not told of the end of the
// other, and what it still says arrives in full.
func TestNoHalfClose(t *testing.T) {
	for _, first := range []bool{true, false} {
		for _, k := range []kind{pipe, hidden} {
			t.Run(fmt.Sprintf("%s/first=%v", k.name, first), func(t *testing.T) { noHalfClose(t, tcp, k, first, func() {}) })
		}
		t.Run(fmt.Sprintf("memory/first=%v", first), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { noHalfClose(t, memory, pipe, first, synctest.Wait) })
		})
	}
}

// noHalfClose relays between a connection that has a CloseWrite, and one that has none and comes first or second. settled returns when
// nothing happens any more.
func noHalfClose(t *testing.T, with, without kind, first bool, settled func()) {
	const question, answer = 1000, 3 << 20
	d := newDuplex(t, with, without)
	if first {
		d = newDuplex(t, without, with)
		d.a, d.b, d.farA, d.farB = d.b, d.a, d.farB, d.farA
	}
	d.start(t)
	if err := runBoth(
		func() error { return errors.Join(send(d.farA, question), endWriting(d.farA)) },
		func() error { return expect(d.farB, question) }); err != nil {
		t.Fatal(err)
	}
	settled()
	select {
	case <-d.done:
		t.Fatalf("Relay = %+v, %v before the answer", d.res, d.err)
	default:
	}
	if err := runBoth(
		func() error { return errors.Join(send(d.farB, answer), d.farB.Close()) },
		func() error { return errors.Join(expect(d.farA, answer), expectEnd(d.farA)) }); err != nil {
		t.Error(err)
	}
	r, err := d.wait(t)
	if err != nil || r.Outcome != OutcomeEnd || r.Up.Written != question || r.Down.Written != answer {
		t.Errorf("Relay = %+v, %v", r, err)
	}
}

// stubborn is a connection without deadlines, such as a channel of
// golang.org/x/crypto/ssh. With quiet set it does not even say so.
type stubborn struct {
	net.Conn
	quiet bool
}

func (s stubborn) SetDeadline(time.Time) error {
	if s.quiet {
		return nil
	}
	return errors.New("deadlines are not supported")
}

// shell is a Wrapper around one.
type shell struct{ stubborn }

func (s shell) Unwrap() net.Conn { return s.Conn }
func (s shell) TakeRead() []byte { return nil }

// Relay ends after a reset although the other connection has no deadlines, and
// leaves it open.
func TestNoDeadlines(t *testing.T) {
	for _, byA := range []bool{true, false} {
		for name, wrap := range map[string]func(net.Conn) net.Conn{
			"refused": func(c net.Conn) net.Conn { return stubborn{Conn: c} },
			"ignored": func(c net.Conn) net.Conn { return stubborn{Conn: c, quiet: true} },
			"wrapper": func(c net.Conn) net.Conn { return shell{stubborn{Conn: c}} },
		} {
			t.Run(fmt.Sprintf("%s/a=%v", name, byA), func(t *testing.T) {
				d := newDuplex(t, tcp, tcp)
				guilty, near, far, want := d.farA, &d.b, d.farB, OutcomeAReset
				if !byA {
					guilty, near, far, want = d.farB, &d.a, d.farA, OutcomeBReset
				}
				*near = wrap(*near)
				d.start(t)
				if err := runBoth(func() error { return send(guilty, 10) }, func() error { return expect(far, 10) }); err != nil {
					t.Fatal(err)
				}
				reset(guilty)
				r, err := d.wait(t)
				if r.Outcome != want || class(err) != "reset" || r.Up.Written+r.Down.Written != 10 {
					t.Errorf("Relay = %+v, %v, want %v", r, err, want)
				}
				// It is open, and whatever Relay has left behind counts nothing.
				if _, err := (*near).Write([]byte{1}); name != "wrapper" && err != nil {
					t.Errorf("the other connection: %v", err)
				}
				far.Write(make([]byte, 100))
				far.Close()
				(*near).Close()
				testwait.Until(t, "all copiers have ended", func() bool { left, _ := testwait.Goroutines("splice.(*pair).carry("); return left == 0 })
				if d.live.Up() != r.Up || d.live.Down() != r.Down {
					t.Errorf("%+v, then Live says %+v, %+v", r, d.live.Up(), d.live.Down())
				}
			})
		}
	}
}

func TestHalfClosedTimeout(t *testing.T) {
	const limit = 100 * time.Millisecond
	for _, l := range []line{{tcp, unix}, {tcp, hidden}} {
		t.Run("silence/"+l.String(), func(t *testing.T) {
			d := newDuplex(t, l.src, l.dst)
			d.cfg.HalfClosed, d.counted = limit, nil
			d.start(t)
			if err := errors.Join(send(d.farA, 10), expect(d.farB, 10), send(d.farB, 10), expect(d.farA, 10)); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			endWriting(d.farA)
			r, err := d.wait(t)
			if r.Outcome != OutcomeHalfClosed || !errors.Is(err, os.ErrDeadlineExceeded) || r.Up.Written != 10 || r.Down.Written != 10 {
				t.Errorf("Relay = %+v, %v", r, err)
			}
			if took := time.Since(start); took < limit*9/10 {
				t.Errorf("ended after %v", took)
			}
		})
	}
	t.Run("a slow answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d := newDuplex(t, memory, memory)
			d.cfg.HalfClosed, d.counted = 200*time.Millisecond, nil
			d.start(t)
			time.Sleep(time.Second) // it counts from the half-close
			endWriting(d.farA)
			for range 12 {
				time.Sleep(199 * time.Millisecond)
				if err := errors.Join(send(d.farB, 1), expect(d.farA, 1)); err != nil {
					t.Fatal(err)
				}
			}
			endWriting(d.farB)
			if r, err := d.wait(t); r.Outcome != OutcomeEnd || err != nil || r.Down.Written != 12 {
				t.Errorf("Relay = %+v, %v", r, err)
			}
		})
	})
}

func TestRelayContext(t *testing.T) {
	reason := errors.New("enough")
	for _, l := range []line{{tcp, unix}, {pipe, tcp}} {
		t.Run(l.String(), func(t *testing.T) {
			d := newDuplex(t, l.src, l.dst)
			ctx, cancel := context.WithCancelCause(t.Context())
			var r Result
			var err error
			done := make(chan struct{})
			go func() {
				defer close(done)
				r, err = d.cfg.RelayLive(ctx, d.a, d.b, d.counted)
			}()
			if err := runBoth(func() error { return send(d.farA, 10) }, func() error { return expect(d.farB, 10) }); err != nil {
				t.Fatal(err)
			}
			testwait.Until(t, "all is counted", func() bool { return d.live.Up().Written == 10 })
			cancel(reason)
			<-done
			if r.Outcome != OutcomeCanceled || !errors.Is(err, context.Canceled) || !errors.Is(err, reason) || r.Up.Written != 10 {
				t.Errorf("RelayContext = %+v, %v", r, err)
			}
			// The connections live, without deadlines.
			if err := runBoth(func() error { return send(d.b, 10) }, func() error { return expect(d.farB, 10) }); err != nil {
				t.Error(err)
			}
			if r, err := RelayContext(ctx, d.a, d.b); r.Outcome != OutcomeCanceled || !errors.Is(err, reason) {
				t.Errorf("with a context that has ended: %+v, %v", r, err)
			}
		})
	}
	t.Run("ends first", func(t *testing.T) {
		d := newDuplex(t, tcp, tcp)
		endWriting(d.farA)
		endWriting(d.farB)
		if r, err := RelayContext(t.Context(), d.a, d.b); r.Outcome != OutcomeEnd || err != nil {
			t.Errorf("RelayContext = %+v, %v", r, err)
		}
	})
}

// While the other direction writes, which may be told of a reset first,
// a direction does not take what looks like an end for one.
func TestEndWaitsForOtherWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pair{cfg: new(Config)}
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		p.conn = [2]net.Conn{a, b}
		p.watcher[1].writes.Add(1)
		var told atomic.Bool
		go func() {
			time.Sleep(5 * time.Millisecond)
			told.Store(true)
			p.end(OutcomeAReset, io.ErrUnexpectedEOF)
		}()
		if !p.resetSeenBy(1) || !told.Load() {
			t.Error("it did not wait for the write that was told of the reset")
		}
		p = &pair{cfg: new(Config), conn: p.conn}
		p.watcher[1].writes.Add(1)
		go func() {
			time.Sleep(5 * time.Millisecond)
			p.watcher[1].writes.Add(1)
		}()
		if p.resetSeenBy(1) {
			t.Error("a write that goes well is taken for a reset")
		}
	})
}

// resetting is a connection that was reset by its peer: Write is told so, somewhat
// later than Read has found what looks like the end.
type resetting struct {
	net.Conn
	written, read chan bool
	later         func()
}

func (c resetting) Read([]byte) (int, error) {
	<-c.written
	close(c.read)
	return 0, io.EOF
}

func (c resetting) Write([]byte) (int, error) {
	close(c.written)
	<-c.read
	c.later()
	return 0, syscall.ECONNRESET
}

// closeTeller records calls of CloseWrite.
type closeTeller struct {
	net.Conn
	closed atomic.Bool
}

func (c *closeTeller) CloseWrite() error { c.closed.Store(true); return nil }

// A reset is not passed on as an end where bytes are copied by Read and Write either.
func TestResetIsNoEndByReadAndWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, far := net.Pipe()
		defer far.Close()
		defer inner.Close()
		a := resetting{inner, make(chan bool), make(chan bool), func() { time.Sleep(10 * time.Millisecond) }}
		nearB, farB := net.Pipe()
		defer nearB.Close()
		defer farB.Close()
		b := &closeTeller{Conn: nearB}
		go farB.Write([]byte("a question"))
		if r, err := Relay(a, b); r.Outcome != OutcomeAReset || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("Relay = %+v, %v", r, err)
		}
		if b.closed.Load() {
			t.Error("B was told of an end")
		}
	})
}

// noted is a connection that cannot be compared.
type noted struct {
	net.Conn
	_ []string
}

// Connections need not be comparable, by whatever the pair ends.
func TestConnsThatCannotBeCompared(t *testing.T) {
	d := newDuplex(t, tcp, unix)
	d.a, d.b = noted{Conn: d.a}, noted{Conn: d.b}
	d.start(t)
	if err := errors.Join(send(d.farA, 1000), expect(d.farB, 1000)); err != nil {
		t.Fatal(err)
	}
	reset(d.farA)
	if r, err := d.wait(t); r.Outcome != OutcomeAReset || r.Up.Written != 1000 {
		t.Errorf("Relay = %+v, %v", r, err)
	}
}

// A write that blocks for long holds up no end.
func TestEndPassesBlockedWrite(t *testing.T) {
	d := newDuplex(t, hidden, tcp)
	d.start(t)
	go d.farB.Write(make([]byte, 16<<20)) // A does not read
	if err := errors.Join(send(d.farA, 1000), endWriting(d.farA), expect(d.farB, 1000), expectEnd(d.farB)); err != nil {
		t.Error(err)
	}
}

func TestUndeliveredTimeout(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{os.ErrDeadlineExceeded, true},
		{&net.OpError{Op: "write", Err: os.ErrDeadlineExceeded}, true},
		{fmt.Errorf("wrapped: %w", os.ErrDeadlineExceeded), true},
		{net.ErrClosed, false},
		{io.ErrShortWrite, false},
	} {
		var err error = &UndeliveredError{1, c.err}
		if ne, ok := err.(net.Error); !ok || ne.Timeout() != c.want || err.(interface{ Temporary() bool }).Temporary() != c.want {
			t.Errorf("%v: Timeout is not %v", err, c.want)
		}
	}
}
