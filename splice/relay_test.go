package splice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// duplex is a Relay with both its connections; farA and farB are the test's.
type duplex struct {
	a, b, farA, farB net.Conn
	cfg              Config
	live             Live
	counted          *Live // &live; nil: nothing is counted

	done chan struct{}
	res  Result
	err  error
}

func newDuplex(tb testing.TB, a, b kind) *duplex {
	d := new(duplex)
	d.a, d.farA = a.open(tb)
	d.b, d.farB = b.open(tb)
	for _, c := range []net.Conn{d.farA, d.farB} {
		c.SetDeadline(time.Now().Add(patience))
	}
	d.counted = &d.live
	return d
}

func (d *duplex) start(tb testing.TB) {
	d.done = make(chan struct{})
	go func() {
		defer close(d.done)
		d.res, d.err = d.cfg.RelayLive(context.Background(), d.a, d.b, d.counted)
	}()
	tb.Cleanup(func() {
		for _, c := range []net.Conn{d.a, d.b, d.farA, d.farB} {
			c.Close()
		}
		<-d.done
	})
}

func (d *duplex) wait(tb testing.TB) (Result, error) {
	tb.Helper()
	select {
	case <-d.done:
	case <-time.After(patience):
		tb.Fatalf("Relay does not end: %+v, %+v", d.live.Up(), d.live.Down())
	}
	return d.res, d.err
}

// send writes n bytes of the pattern, without the end.
func send(c net.Conn, n int) error {
	for at := 0; at < n; {
		m, err := c.Write(pattern().At(int64(at), min(200_000, n-at)))
		if at += m; err != nil {
			return fmt.Errorf("write at %d: %w", at, err)
		}
	}
	return nil
}

// expect reads n bytes of the pattern.
func expect(c net.Conn, n int) error {
	buf := make([]byte, n)
	m, err := io.ReadFull(c, buf)
	if cerr := pattern().Check(0, buf[:m]); cerr != nil {
		return cerr
	}
	if err != nil {
		return fmt.Errorf("read at %d of %d: %w", m, n, err)
	}
	return nil
}

// expectEnd reads the end of a stream.
func expectEnd(c net.Conn) error {
	n, err := c.Read(make([]byte, 1))
	if n != 0 || err != io.EOF {
		return fmt.Errorf("%d bytes and %w, want the end", n, err)
	}
	return nil
}

// runBoth runs both and returns their errors.
func runBoth(f, g func() error) error {
	second := make(chan error, 1)
	go func() { second <- g() }()
	return errors.Join(f(), <-second)
}

// eachPair runs test on connections that can close one direction.
func eachPair(t *testing.T, test func(t *testing.T, d *duplex, l line)) {
	for _, l := range append(lines[:4:4], line{wrapped, unix}, line{hidden, tcp}, line{tcp, secure}) {
		t.Run(l.String(), func(t *testing.T) {
			if l.src.name == hidden.name {
				l.src.open = halfClosable
			}
			t.Cleanup(func() { noneLeased(t) })
			test(t, newDuplex(t, l.src, l.dst), l)
		})
	}
}

// halfClosable hides all of a connection but its CloseWrite.
func halfClosable(tb testing.TB) (near, far net.Conn) {
	type closer interface{ CloseWrite() error }
	near, far = hidden.open(tb)
	return struct {
		net.Conn
		closer
	}{near, near.(struct{ net.Conn }).Conn.(closer)}, far
}

func TestRelayBulkInBothDirections(t *testing.T) {
	eachPair(t, func(t *testing.T, d *duplex, l line) {
		const total = 5 << 20
		d.start(t)
		full := func(c net.Conn) func() error {
			return func() error {
				return runBoth(
					func() error { return errors.Join(send(c, total), endWriting(c)) },
					func() error { return errors.Join(expect(c, total), expectEnd(c)) })
			}
		}
		if err := runBoth(full(d.farA), full(d.farB)); err != nil {
			t.Error(err)
		}
		r, err := d.wait(t)
		if err != nil || r.Outcome != OutcomeEnd {
			t.Errorf("Relay = %+v, %v", r, err)
		}
		for _, got := range []Transfer{r.Up, r.Down} {
			if got.Read != total || got.Written != total {
				t.Errorf("%+v", got)
			}
			l.path(t, got)
		}
		if d.live.Up() != r.Up || d.live.Down() != r.Down {
			t.Errorf("Live says %+v, %+v", d.live.Up(), d.live.Down())
		}
	})
}

// TestHalfClose: after one side's end the other still speaks.
func TestHalfClose(t *testing.T) {
	for _, aFirst := range []bool{true, false} {
		t.Run(fmt.Sprintf("a-first=%v", aFirst), func(t *testing.T) {
			eachPair(t, func(t *testing.T, d *duplex, l line) {
				d.start(t)
				early, late := d.farA, d.farB
				if !aFirst {
					early, late = late, early
				}
				const question, answer = 1000, 1 << 20
				err := errors.Join(send(early, question), endWriting(early), expect(late, question), expectEnd(late))
				if err != nil {
					t.Fatal(err)
				}
				select {
				case <-d.done:
					t.Fatal("Relay ended with one direction open")
				default:
				}
				if err := runBoth(
					func() error { return errors.Join(send(late, answer), endWriting(late)) },
					func() error { return errors.Join(expect(early, answer), expectEnd(early)) }); err != nil {
					t.Fatal(err)
				}
				r, err := d.wait(t)
				if !aFirst {
					r.Up, r.Down = r.Down, r.Up
				}
				if err != nil || r.Outcome != OutcomeEnd || r.Up.Written != question || r.Down.Written != answer {
					t.Errorf("Relay = %+v, %v", r, err)
				}
			})
		})
	}
}

// TestRelayReset: a reset is an outcome, with its side, and the other side is not
// told that the stream ended well.
func TestRelayReset(t *testing.T) {
	for _, side := range []string{"a", "b"} {
		for _, busy := range []bool{false, true} {
			t.Run(fmt.Sprintf("by=%s/busy=%v", side, busy), func(t *testing.T) {
				for _, l := range lines[:4] {
					t.Run(l.String(), func(t *testing.T) {
						for range 15 {
							relayReset(t, l, side == "a", busy)
						}
					})
				}
			})
		}
	}
}

func relayReset(t *testing.T, l line, byA, busy bool) {
	t.Helper()
	d := newDuplex(t, l.src, l.dst)
	unread(t, d.a)
	unread(t, d.b)
	d.start(t)
	guilty, other, near, want := d.farA, d.farB, d.b, OutcomeAReset
	if !byA {
		guilty, other, near, want = other, guilty, d.a, OutcomeBReset
	}
	moved := func() int64 { return d.live.Up().Written + d.live.Down().Written }
	var wg sync.WaitGroup
	if busy {
		wg.Go(func() { send(guilty, 1<<30) })
		wg.Go(func() { send(other, 1<<30) })
		testwait.Until(t, "bytes move", func() bool { return moved() > 100_000 })
	}
	reset(guilty)
	r, err := d.wait(t)
	if r.Outcome != want || class(err) != "reset" {
		t.Errorf("Relay = %+v, %v, want %v", r, err, want)
	}
	near.SetWriteDeadline(time.Now().Add(time.Millisecond))
	if _, err := near.Write([]byte{1}); errors.Is(err, syscall.EPIPE) {
		t.Errorf("the other side was told of an end")
	}
	near.Close()
	other.Close()
	wg.Wait()
}

func TestRelayDeadline(t *testing.T) {
	d := newDuplex(t, tcp, unix)
	d.b.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	d.start(t)
	r, err := d.wait(t)
	if r.Outcome != OutcomeBFailed || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Relay = %+v, %v", r, err)
	}
	// The connections live, without deadlines.
	if err := runBoth(
		func() error { return send(d.b, 10) },
		func() error { return expect(d.farB, 10) }); err != nil {
		t.Error(err)
	}
}

func TestRelayClose(t *testing.T) {
	for _, busy := range []bool{false, true} {
		for _, first := range []bool{true, false} {
			t.Run(fmt.Sprintf("busy=%v/a=%v", busy, first), func(t *testing.T) {
				eachPair(t, func(t *testing.T, d *duplex, l line) {
					d.start(t)
					var wg sync.WaitGroup
					if busy {
						wg.Go(func() { send(d.farA, 1<<30) })
						wg.Go(func() { send(d.farB, 1<<30) })
						wg.Go(func() { io.Copy(io.Discard, d.farB) })
						testwait.Until(t, "bytes move", func() bool { return d.live.Up().Written > 100_000 })
					}
					near, want := d.a, OutcomeAFailed
					if !first {
						near, want = d.b, OutcomeBFailed
					}
					near.Close()
					r, err := d.wait(t)
					if r.Outcome != want || class(err) != "closed" {
						t.Errorf("Relay = %+v, %v, want %v", r, err, want)
					}
					d.farA.Close()
					d.farB.Close()
					wg.Wait()
				})
			})
		}
	}
}

func TestIdle(t *testing.T) {
	const idle = 60 * time.Millisecond
	t.Run("nothing moves", func(t *testing.T) {
		eachPair(t, func(t *testing.T, d *duplex, l line) {
			d.cfg.Idle = idle
			start := time.Now()
			d.start(t)
			r, err := d.wait(t)
			if r.Outcome != OutcomeIdle || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("Relay = %+v, %v", r, err)
			}
			if took := time.Since(start); took < idle*9/10 {
				t.Errorf("idle after %v", took)
			}
			if err := runBoth(
				func() error { return send(d.a, 10) },
				func() error { return expect(d.farA, 10) }); err != nil {
				t.Errorf("after an idle relay: %v", err)
			}
		})
	})
	t.Run("bytes move slowly", func(t *testing.T) {
		for _, back := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				d := newDuplex(t, memory, memory)
				d.cfg.Idle, d.counted = 200*time.Millisecond, nil
				d.start(t)
				from, to := d.farA, d.farB
				if back {
					from, to = to, from
				}
				for range 12 {
					time.Sleep(150 * time.Millisecond)
					if err := errors.Join(send(from, 1), expect(to, 1)); err != nil {
						t.Fatal(err)
					}
				}
				select {
				case <-d.done:
					t.Fatalf("Relay = %+v, %v while bytes move", d.res, d.err)
				default:
				}
				endWriting(d.farA)
				endWriting(d.farB)
				if r, err := d.wait(t); r.Outcome != OutcomeEnd || err != nil {
					t.Errorf("Relay = %+v, %v", r, err)
				}
			})
		}
	})
	t.Run("reader stops", func(t *testing.T) {
		d := newDuplex(t, tcp, tcp)
		d.cfg.Idle = idle
		d.start(t)
		sent := make(chan error)
		go func() { sent <- send(d.farA, 1<<30) }()
		r, err := d.wait(t)
		if r.Outcome != OutcomeIdle || lost(err) != 0 && lost(err) != r.Up.Read-r.Up.Written {
			t.Errorf("Relay = %+v, %v", r, err)
		}
		d.a.Close()
		<-sent
	})
}

// TestManyRelays runs relays of all kinds at once, and looks for what they leave.
func TestManyRelays(t *testing.T) {
	testnet.CheckLeaks(t)
	const each, total = 8, 300_000
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	for _, l := range lines[:4] {
		for range each {
			d := newDuplex(t, l.src, l.dst)
			d.start(t)
			wg.Go(func() {
				for _, c := range []net.Conn{d.farA, d.farB} {
					wg.Go(func() {
						if err := errors.Join(send(c, total), endWriting(c)); err != nil {
							t.Error(err)
						}
					})
					wg.Go(func() {
						if err := errors.Join(expect(c, total), expectEnd(c)); err != nil {
							t.Error(err)
						}
					})
				}
				<-d.done
				if d.err != nil || d.res.Up.Written != total || d.res.Down.Written != total {
					t.Errorf("Relay = %+v, %v", d.res, d.err)
				}
			})
		}
	}
	wg.Wait()
	testwait.Until(t, "the goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
	noneLeased(t)
}

func TestOutcomeNames(t *testing.T) {
	seen := make(map[string]bool)
	for c := OutcomeEnd; c <= OutcomeCanceled; c++ {
		if name := c.String(); name == "unknown" || seen[name] {
			t.Errorf("outcome %d is called %q", c, name)
		} else {
			seen[name] = true
		}
	}
	if name := (OutcomeCanceled + 1).String(); name != "unknown" {
		t.Errorf("no outcome is called %q", name)
	}
}
