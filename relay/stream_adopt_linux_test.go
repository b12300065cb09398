package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// adopted hands the inner ends of two connections over, and returns the outer ones.
func (r *rig) adopted(one, two string, opt PairConfig) (a, b net.Conn) {
	r.t.Helper()
	a, innerA := testnet.Pair(r.t, one)
	innerB, b := testnet.Pair(r.t, two)
	if opt.Done == nil {
		opt.Done = r.done
	}
	if err := r.e.Relay(innerA, innerB, opt); err != nil {
		r.t.Fatal(err)
	}
	for _, c := range []net.Conn{innerA, innerB} {
		if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			r.t.Errorf("a connection that was handed over: %v", err)
		}
	}
	return a, b
}

func TestAdopt(t *testing.T) {
	for _, n := range []int64{0, 1, 100_000, 5 << 20} {
		for _, p := range pairs {
			t.Run(fmt.Sprintf("bytes=%d/a=%s/b=%s", n, p[0], p[1]), func(t *testing.T) {
				r := newRig(t, Config{})
				a, b := r.adopted(p[0], p[1], PairConfig{Value: "mine"})
				play(t, a, b, testnet.Script{Send: n, SendSeed: 1, Recv: n + 1, RecvSeed: 2}, testnet.Script{Send: n + 1, SendSeed: 2, Recv: n, RecvSeed: 1})
				rec := r.expect(CauseEnd)
				if rec.Up.Written != n || rec.Down.Written != n+1 || rec.Value != "mine" || rec.Listener != nil {
					t.Errorf("%+v", rec)
				}
				// A TCP socket whose connection is over has forgotten its peer;
				// the record has not.
				if p[0] == "tcp4" && rec.Client != *fromNet(a.LocalAddr()) {
					t.Errorf("from %v, want %v", rec.Client, a.LocalAddr())
				}
				if p[1] == "tcp4" && rec.Upstream != *fromNet(b.LocalAddr()) {
					t.Errorf("to %v, want %v", rec.Upstream, b.LocalAddr())
				}
			})
		}
	}
}

// What was sent, ended or reset before the engine took over is passed on too.
func TestAdoptLate(t *testing.T) {
	for _, p := range pairs {
		t.Run("a="+p[0]+"/b="+p[1], func(t *testing.T) {
			r := newRig(t, Config{})
			a, innerA := testnet.Pair(t, p[0])
			innerB, b := testnet.Pair(t, p[1])
			io.WriteString(a, "early")
			closeWrite(t, a)
			io.WriteString(b, "birds")
			b.Close()
			arrived(t, innerA, len("early"))
			arrived(t, innerB, len("birds"))
			if err := r.e.Relay(innerA, innerB, PairConfig{Done: r.done}); err != nil {
				t.Fatal(err)
			}
			hear(t, a, "birds")
			readToEnd(t, a)
			r.record()
		})
	}
	t.Run("reset", func(t *testing.T) {
		r := newRig(t, Config{})
		a, innerA := testnet.Pair(t, "tcp4")
		innerB, b := testnet.Pair(t, "tcp4")
		reset(t, a)
		raw, err := innerA.(syscall.Conn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		testwait.Until(t, "the reset has come", func() (came bool) {
			raw.Control(func(fd uintptr) { came = sys.HasError(sys.Linux{}, int(fd)) })
			return came
		})
		if err := r.e.Relay(innerA, innerB, PairConfig{Done: r.done}); err != nil {
			t.Fatal(err)
		}
		wantReset(t, b)
		r.expect(CauseClientReset)
	})
}

func TestAdoptTimeouts(t *testing.T) {
	r := newRig(t, Config{})
	a, b := r.adopted("tcp4", "unix", PairConfig{Timeouts: Timeouts{Idle: 100 * time.Millisecond}})
	say(t, a, b, "hello")
	r.expect(CauseIdle)
	a, b = r.adopted("unix", "tcp4", PairConfig{Timeouts: Timeouts{HalfClosed: 100 * time.Millisecond}})
	closeWrite(t, b)
	wantEnd(t, a)
	r.expect(CauseHalfClosed)
	// Without Done nobody is told, and nothing is left behind.
	x, y := testnet.Pair(t, "tcp4")
	if err := r.e.Relay(x, y, PairConfig{}); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the pair, which is its own client, rests", func() bool { s := r.e.Stats(); return s.Flows() == 1 })
	r.e.Close()
	r.all = append(r.all, Record{ID: 1 << 63, Cause: CauseClosed})
}

// wrapped is a connection whose wrapper has read something from it.
type wrapped struct {
	net.Conn
	read  string
	taken int // how often somebody took that
}

func (w *wrapped) Unwrap() net.Conn { return w.Conn }

func (w *wrapped) TakeRead() []byte {
	read := w.read
	w.read = ""
	w.taken++
	return []byte(read)
}

// A wrapper that offers its inner connection is no obstacle, and what it has
// read comes first: an outer wrapper's before an inner one's.
func TestAdoptWrapped(t *testing.T) {
	for _, p := range pairs {
		t.Run("a="+p[0]+"/b="+p[1], func(t *testing.T) {
			r := newRig(t, Config{})
			a, innerA := testnet.Pair(t, p[0])
			innerB, b := testnet.Pair(t, p[1])
			long := strings.Repeat("0123456789", 300_000)
			if err := r.e.Relay(&wrapped{Conn: &wrapped{Conn: innerA, read: "second "}, read: "first "}, &wrapped{Conn: innerB, read: long}, PairConfig{Done: r.done}); err != nil {
				t.Fatal(err)
			}
			hear(t, b, "first second ")
			say(t, a, b, "third")
			hear(t, a, long)
			say(t, b, a, "and more")
			a.Close()
			b.Close()
			if rec := r.record(); rec.Up.Read != int64(len("first second third")) || rec.Down.Written != int64(len(long)+len("and more")) {
				t.Errorf("AB %+v, BA %+v", rec.Up, rec.Down)
			}
		})
	}
}

// On an error both connections still belong to the caller.
func TestAdoptErrors(t *testing.T) {
	r := newRig(t, Config{})
	a, b := testnet.Pair(t, "tcp4")
	p, q := net.Pipe()
	defer p.Close()
	defer q.Close()
	udp, err := net.Dial("udp", "127.0.0.1:9")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	datagrams, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: socketPath(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer datagrams.Close()
	w := &wrapped{Conn: a, read: "kept"}
	if err := r.e.Relay(w, p, PairConfig{}); !errors.Is(err, errors.ErrUnsupported) || w.taken != 0 {
		t.Errorf("a wrapper whose partner is refused: %v, its bytes taken %d times", err, w.taken)
	}
	for _, odd := range []net.Conn{p, udp, datagrams, tlsLike{a}} {
		for _, pair := range [][2]net.Conn{{a, odd}, {odd, a}} {
			if err := r.e.Relay(pair[0], pair[1], PairConfig{Done: r.done}); !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("%T: %v", odd, err)
			}
			say(t, a, b, "still mine")
		}
	}
	gone, _ := testnet.Pair(t, "unix")
	gone.Close()
	for _, pair := range [][2]net.Conn{{a, gone}, {gone, a}} {
		if err := r.e.Relay(pair[0], pair[1], PairConfig{Done: r.done}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a closed connection: %v", err)
		}
		say(t, b, a, "still mine")
	}
}

// tlsLike changes the bytes, so that it offers nothing inside.
type tlsLike struct{ net.Conn }

// A pair from a Go program may carry deadlines; they no longer count.
func TestAdoptForgetsDeadlines(t *testing.T) {
	r := newRig(t, Config{})
	a, innerA := testnet.Pair(t, "tcp4")
	innerB, b := testnet.Pair(t, "tcp4")
	innerA.SetDeadline(time.Unix(1, 0))
	if err := r.e.Relay(innerA, innerB, PairConfig{Done: r.done}); err != nil {
		t.Fatal(err)
	}
	say(t, a, b, "hello")
	a.Close()
	b.Close()
	r.record()
}

// A Done hook may hand the next pair over.
func TestAdoptFromHook(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	x, innerX := testnet.Pair(t, "tcp4")
	innerY, y := testnet.Pair(t, "unix")
	a, b := r.adopted("tcp4", "tcp4", PairConfig{Done: func(rec *Record) {
		r.done(rec)
		if err := r.e.Relay(innerX, innerY, PairConfig{Done: r.done}); err != nil {
			t.Error(err)
		}
	}})
	a.Close()
	b.Close()
	r.expect(CauseEnd)
	say(t, x, y, "chained")
	x.Close()
	y.Close()
	r.record()
}

// held is a wrapper that tells how often it was closed, and may be slow to.
type held struct {
	wrapped
	closed  atomic.Int32
	release chan bool
}

func (w *held) Close() error {
	w.closed.Add(1)
	<-w.release
	return w.Conn.Close()
}

// A wrapper is closed when its flow has ended, once, and where that blocks no
// loop does. The engine's Close waits for it.
func TestAdoptClosesWrappers(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	a, innerA := testnet.Pair(t, "tcp4")
	innerB, b := testnet.Pair(t, "unix")
	release := make(chan bool)
	wa := &held{wrapped: wrapped{Conn: innerA}, release: release}
	wb := &held{wrapped: wrapped{Conn: innerB}, release: release}
	if err := r.e.Relay(wa, wb, PairConfig{Done: r.done}); err != nil {
		t.Fatal(err)
	}
	if n := wa.closed.Load() + wb.closed.Load(); n != 0 {
		t.Errorf("%d wrappers are closed as soon as the flow begins", n)
	}
	say(t, a, b, "hello")
	if n := wa.closed.Load() + wb.closed.Load(); n != 0 {
		t.Errorf("%d wrappers are closed while the flow goes on", n)
	}
	a.Close()
	b.Close()
	r.expect(CauseEnd)
	testwait.Until(t, "the wrappers are closed", func() bool { return wa.closed.Load()+wb.closed.Load() == 2 })
	x, y := r.adopted("tcp4", "tcp4", PairConfig{})
	say(t, x, y, "the loop goes on")
	ended := make(chan bool)
	go func() {
		r.e.Close()
		close(ended)
	}()
	r.expect(CauseClosed)
	select {
	case <-ended:
		t.Error("the engine is closed before its wrappers are")
	case <-time.After(20 * time.Millisecond):
	}
	close(release)
	<-ended
	if n, m := wa.closed.Load(), wb.closed.Load(); n != 1 || m != 1 {
		t.Errorf("closed %d and %d times", n, m)
	}
}

// closer is a wrapper from which nothing can be read back, and during whose
// TakeRead somebody stops the engine.
type closer struct {
	wrapped
	stop func()
}

func (w *closer) TakeRead() []byte {
	w.stop()
	return w.wrapped.TakeRead()
}

// An engine that is stopped in the middle of Relay has taken all or nothing:
// what a wrapper had read is never gone.
func TestAdoptWhileStopping(t *testing.T) {
	for name, stop := range map[string]func(e *Engine){
		"close": func(e *Engine) { e.Close() },
		"drain": func(e *Engine) {
			e.Drain(context.Background())
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{Loops: 1})
			a, innerA := testnet.Pair(t, "tcp4")
			innerB, b := testnet.Pair(t, "tcp4")
			var wg sync.WaitGroup
			defer wg.Wait()
			w := &closer{wrapped: wrapped{Conn: innerA, read: "early"}, stop: func() {
				wg.Go(func() { stop(r.e) })
				testwait.For(r.e.stopping.Load)
			}}
			err := r.e.Relay(w, innerB, PairConfig{Done: r.done})
			if err == nil {
				a.Close()
				b.Close()
				if rec := r.record(); rec.Up.Read != int64(len("early")) {
					t.Errorf("the engine has %+v", rec.Up)
				}
				return
			}
			if w.taken != 0 {
				t.Errorf("%v, and %q is gone", err, "early")
			}
			say(t, a, innerA, "still mine")
			say(t, b, innerB, "and this")
		})
	}
}
