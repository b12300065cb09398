package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// Drain takes nobody new, and returns when the last flow has ended by itself.
func TestDrain(t *testing.T) {
	for _, p := range pairs {
		t.Run("client="+p[0]+"/upstream="+p[1], func(t *testing.T) {
			r := newRig(t, Config{})
			s := newServer(t, p[1])
			l := r.listen(p[0], ListenConfig{}, s.addr)
			a := dial(t, l)
			b := s.accept(t)
			go func() { // what comes until the listener is closed
				for {
					c, err := s.Accept()
					if err != nil {
						return
					}
					c.Close()
				}
			}()
			drainWithFlow(t, r, a, b)
		})
	}
}

func drainWithFlow(t *testing.T, r *rig, a, b net.Conn) {
	t.Helper()
	say(t, a, b, "hello")
	ended := make(chan error, 1)
	go func() { ended <- r.e.Drain(context.Background()) }()
	testwait.Until(t, "the listener closes", func() bool {
		c, err := net.Dial(a.RemoteAddr().Network(), a.RemoteAddr().String())
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	x, y := testnet.Pair(t, "unix")
	if err := r.e.Relay(x, y, PairConfig{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a pair for an engine that drains: %v", err)
	}
	say(t, x, y, "still ours")
	if _, err := r.e.Listen(r.place("tcp4"), ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return nil }}}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a listener for an engine that drains: %v", err)
	}
	for range 10 {
		say(t, a, b, "the flow goes on")
	}
	select {
	case err := <-ended:
		t.Fatalf("drained with a flow open: %v", err)
	default:
	}
	a.Close()
	b.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestDrainWithoutFlows(t *testing.T) {
	r := newRig(t, Config{})
	for range 2 {
		if err := r.e.Drain(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// A drain's deadline ends what is left.
func TestDrainDeadline(t *testing.T) {
	r := newRig(t, Config{})
	l := r.listen("tcp4", ListenConfig{}, echoServer(t, "tcp4"))
	const flows = 20
	var clients []net.Conn
	for range flows {
		c := dial(t, l)
		say(t, c, c, "hello")
		clients = append(clients, c)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.e.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Drain: %v", err)
	}
	if s := r.e.Stats(); s.Flows() != 0 {
		t.Errorf("%d flows are left", s.Flows())
	}
	for range flows {
		r.expect(CauseDrained)
	}
	for _, c := range clients {
		if _, err := readToEnd(t, c); errors.Is(err, errTimeout) {
			t.Error(err)
		}
	}
}

// Close in the middle of everything: each flow has its record, and what was
// read and not delivered is counted as dropped (the rig's cleanup checks).
func TestCloseInTraffic(t *testing.T) {
	for _, dedicated := range []bool{false, true} {
		r := newRig(t, Config{Dedicated: dedicated})
		sink := newServer(t, "tcp4")
		l := r.listen("tcp4", ListenConfig{}, sink.addr)
		u := r.listen("unix", ListenConfig{}, sink.addr)
		var wg sync.WaitGroup
		const flows = 12
		for i := range flows {
			from := l
			if i%2 == 0 {
				from = u
			}
			a := dial(t, from)
			b := sink.accept(t)
			wg.Go(func() { testnet.Play(a, testnet.Script{Send: -1, SendChunk: 1000 << (i % 8), Recv: -1}) })
			switch {
			case i%3 == 0: // never reads
				t.Cleanup(func() { b.Close() })
			default:
				wg.Go(func() { testnet.Play(b, testnet.Script{Discard: true}) })
			}
		}
		for range 3 { // those who are being connected, too
			hole, _ := fullQueue(t, "tcp4")
			dial(t, r.listen("tcp4", ListenConfig{Timeouts: Timeouts{Connect: patience}}, hole))
		}
		testwait.Until(t, "all are flows", func() bool { s := r.e.Stats(); return s.Flows() == flows+3 })
		testwait.Until(t, "there is traffic", func() bool { s := r.e.Stats(); total := s.Total(); return total.BytesWritten > 4<<20 })
		var closers sync.WaitGroup
		errs := make(chan error, 3)
		for range 3 {
			closers.Go(func() { errs <- r.e.Close() })
		}
		closers.Wait()
		nils := 0
		for range 3 {
			if err := <-errs; err == nil {
				nils++
			} else if !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}
		if nils != 1 {
			t.Errorf("%d of 3 Close calls closed", nils)
		}
		for range flows + 3 {
			r.expect(CauseClosed)
		}
		wg.Wait()
		if err := r.e.Drain(t.Context()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Drain after Close: %v", err)
		}
		x, y := testnet.Pair(t, "tcp4")
		if err := r.e.Relay(x, y, PairConfig{}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Relay after Close: %v", err)
		}
		if _, err := r.e.Listen(r.place("tcp4"), ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return nil }}}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Listen after Close: %v", err)
		}
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a listener's Close after the engine's: %v", err)
		}
	}
}

// Close while Drain waits ends both.
func TestCloseWhileDraining(t *testing.T) {
	r := newRig(t, Config{})
	a, b := r.flow("tcp4", "tcp4", ListenConfig{})
	say(t, a, b, "hello")
	ended := make(chan error, 1)
	go func() { ended <- r.e.Drain(context.Background()) }()
	testwait.Until(t, "the engine drains", r.e.stopping.Load)
	r.e.Close()
	if err := <-ended; err != nil && !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	r.expect(CauseClosed)
}

// Adoption, listening, statistics and the end, all at once.
func TestConcurrentUse(t *testing.T) {
	r := newRig(t, Config{Loops: 3})
	l := r.listen("tcp4", ListenConfig{}, &Addr{Network: Echo})
	var wg sync.WaitGroup
	var dialed atomic.Int64
	for range 4 {
		wg.Go(func() {
			for range 20 {
				c, err := net.Dial("tcp4", l.Addr().AddrPort.String())
				if err != nil {
					return
				}
				c.Write([]byte("hello"))
				c.Close()
				dialed.Add(1)
			}
		})
		wg.Go(func() {
			for range 20 {
				x, y := testnet.Pair(t, "unix")
				if err := r.e.Relay(x, y, PairConfig{Done: r.done}); err != nil && !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
				r.e.Stats()
			}
		})
		wg.Go(func() {
			for range 5 {
				l, err := r.e.Listen(Addr{Network: TCP, AddrPort: l.Addr().AddrPort}, ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return &Addr{Network: Echo} }, Done: r.done}})
				if err != nil {
					if !errors.Is(err, net.ErrClosed) {
						t.Error(err)
					}
					continue
				}
				l.Close()
			}
		})
	}
	wg.Go(func() {
		testwait.For(func() bool { return dialed.Load() >= 20 })
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		defer cancel()
		r.e.Drain(ctx)
	})
	wg.Wait()
}

// Drain returns when the last record has been given out, and not while the hook
// that is given it still runs: also if that flow ends between the answers of two
// loops.
func TestDrainWaitsForRecords(t *testing.T) {
	r := newRig(t, Config{Loops: 2})
	var peers [2]net.Conn // of the flow of each loop
	entered, leave := [2]chan bool{make(chan bool), make(chan bool)}, [2]chan bool{make(chan bool), make(chan bool)}
	for range peers {
		inA, a := testnet.Pair(t, "tcp4")
		inB, b := testnet.Pair(t, "tcp4")
		i := (r.e.turn.Load() + 1) % 2
		hook := func(rec *Record) {
			entered[i] <- true
			<-leave[i]
			r.done(rec)
		}
		if err := r.e.Relay(inA, inB, PairConfig{Done: hook}); err != nil {
			t.Fatal(err)
		}
		say(t, a, b, "hello")
		closeWrite(t, b)
		wantEnd(t, a)
		peers[i] = a
	}
	closeWrite(t, peers[1])
	<-entered[1] // the second loop answers nobody
	drained := make(chan error, 1)
	go func() { drained <- r.e.Drain(context.Background()) }()
	testwait.Until(t, "the first loop is asked, and then the second", func() bool {
		return r.e.loops[1].Unread() > 0
	})
	r.e.loops[0].Ask(func() {}) // it has answered
	closeWrite(t, peers[0])
	<-entered[0]
	leave[1] <- true
	r.e.loops[1].Ask(func() {}) // it has, too
	select {
	case err := <-drained:
		t.Errorf("Drain: %v, and a flow's hook still runs", err)
		drained <- nil
	case <-time.After(50 * time.Millisecond):
	}
	leave[0] <- true
	if err := <-drained; err != nil {
		t.Error(err)
	}
}

// Stats of an engine that is closed are those of its end, for everybody who asks.
func TestStatsAfterClose(t *testing.T) {
	r := newRig(t, Config{Loops: 2})
	a, _ := r.flow("tcp4", "tcp4", ListenConfig{})
	io.WriteString(a, "hello")
	testwait.Until(t, "the bytes are counted", func() bool { s := r.e.Stats(); return s.Total().BytesWritten == 5 })
	r.e.Close()
	r.expect(CauseClosed)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				s := r.e.Stats()
				if sum := s.Total(); sum.Flows != 0 || sum.BytesWritten != 5 || sum.Ended[CauseClosed.String()] != 1 || sum.LongestTurn <= 0 {
					t.Errorf("%+v", sum)
				}
			}
		})
	}
	wg.Wait()
}

// A loop that is asked to close a listener and whether it drains in one turn says so when
// the listener is closed: no flow ends afterwards that would.
func TestDrainWithClosingPort(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	r.listen("tcp4", ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return nil }}})
	l := r.e.loops[0]
	entered, leave := make(chan bool), make(chan bool)
	l.Post(loop.Request{Do: func() { close(entered); <-leave }})
	<-entered
	drained := make(chan error, 1)
	go func() { drained <- r.e.Drain(context.Background()) }()
	testwait.Until(t, "the loop is asked both", func() bool {
		return l.Unread() == 2
	})
	close(leave)
	select {
	case err := <-drained:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("Drain does not return")
	}
}

// At the end of Drain's context a listener that waits for descriptors closes, too.
func TestDrainEndsClosingPorts(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	streams := r.e.streams.all[0]
	r.e.streams.paused.most = time.Hour
	ln := r.listen("unix", ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return nil }}})
	r.k.Fail(testkernel.Accept, sys.EMFILE, -1)
	dial(t, ln)
	testwait.Until(t, "the listener rests", func() bool { s := r.e.Stats(); return s.LoopsPaused == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	drained := make(chan error, 1)
	go func() { drained <- r.e.Drain(ctx) }()
	closing := func() (n int) {
		streams.loop.Ask(func() { n = len(streams.closingPorts) })
		return n
	}
	testwait.Until(t, "the listener is to close", func() bool { return closing() == 1 })
	cancel()
	if err := <-drained; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if n := closing(); n != 0 {
		t.Errorf("%d ports still wait for descriptors", n)
	}
}
