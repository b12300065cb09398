package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// lot is a set of queued flows: Upstream queues a flow as often as waits says.
type lot struct {
	waits  int
	to     *Addr
	queued chan FlowRef

	mu    sync.Mutex
	asked []int // attempts
}

func newLot(waits int, to *Addr) *lot {
	return &lot{waits: waits, to: to, queued: make(chan FlowRef, 10_000)}
}

func (p *lot) upstream(f *Flow, attempt int) *Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, attempt)
	n, _ := f.Value().(int)
	if n >= p.waits {
		return p.to
	}
	f.SetValue(n + 1)
	p.queued <- f.Ref()
	f.Queue()
	return nil
}

// next is the next flow that is queued.
func (p *lot) next(t *testing.T) FlowRef {
	t.Helper()
	select {
	case ref := <-p.queued:
		return ref
	case <-time.After(patience):
		t.Fatal("no flow is queued")
	}
	return FlowRef{}
}

// A queued flow reads nothing, and goes on where it was when it is resumed.
func TestPark(t *testing.T) {
	for _, p := range pairs {
		t.Run("client="+p[0]+"/upstream="+p[1], func(t *testing.T) {
			r := newRig(t, Config{})
			s := newServer(t, p[1])
			lot := newLot(3, s.addr)
			a := dial(t, r.listen(p[0], ListenConfig{Hooks: Hooks{Upstream: lot.upstream}}))
			io.WriteString(a, "early")
			first := lot.next(t)
			for range 2 {
				first.Resume()
				if ref := lot.next(t); ref != first {
					t.Errorf("another flow: %v, %v", ref, first)
				}
			}
			if s := r.e.Stats(); s.Flows() != 1 || s.Total().BytesRead != 0 {
				t.Errorf("%+v", s.Total())
			}
			first.Resume()
			b := s.accept(t)
			hear(t, b, "early")
			say(t, b, a, "bird")
			first.Resume() // which means nothing to it now
			say(t, a, b, "more")
			a.Close()
			b.Close()
			rec := r.expect(CauseEnd)
			if rec.Queued <= 0 || rec.Queued > rec.Connect || rec.Attempts != 1 {
				t.Errorf("%+v", rec)
			}
			first.Resume()
			for _, n := range lot.asked {
				if n != 0 {
					t.Errorf("attempts %v", lot.asked)
				}
			}
		})
	}
	FlowRef{}.Resume()
}

// After a failure the flow may wait for its next attempt.
func TestParkAfterFailure(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	refs := make(chan FlowRef, 1)
	var asked []int
	bad := refusing(t)
	a := dial(t, r.listen("tcp4", ListenConfig{Hooks: Hooks{Upstream: func(f *Flow, attempt int) *Addr {
		asked = append(asked, attempt)
		switch len(asked) {
		case 1:
			return bad
		case 2:
			refs <- f.Ref()
			f.Queue()
			return nil
		}
		return &Addr{Network: Echo}
	}}}))
	(<-refs).Resume()
	say(t, a, a, "hello")
	a.Close()
	r.expect(CauseEnd)
	if len(asked) != 3 || asked[1] != 1 || asked[2] != 1 {
		t.Errorf("attempts %v", asked)
	}
}

// A client that ends its side keeps its place; one that is gone does not.
func TestQueuedClients(t *testing.T) {
	queue := func(t *testing.T, network string) (*rig, *lot, *server, net.Conn, FlowRef) {
		r := newRig(t, Config{})
		s := newServer(t, "tcp4")
		lot := newLot(1, s.addr)
		a := dial(t, r.listen(network, ListenConfig{Hooks: Hooks{Upstream: lot.upstream}}))
		return r, lot, s, a, lot.next(t)
	}
	for _, network := range []string{"tcp4", "unix"} {
		t.Run("half-close/client="+network, func(t *testing.T) {
			r, _, s, a, ref := queue(t, network)
			io.WriteString(a, "question")
			closeWrite(t, a)
			r.pass(tick)
			ref.Resume()
			b := s.accept(t)
			hear(t, b, "question")
			wantEnd(t, b)
			say(t, b, a, "answer")
			b.Close()
			wantEnd(t, a)
			r.expect(CauseEnd)
		})
	}
	t.Run("reset", func(t *testing.T) {
		r, lot, _, a, ref := queue(t, "tcp4")
		io.WriteString(a, "nobody reads this")
		reset(t, a)
		if rec := r.expect(CauseClientGone); rec.Attempts != 0 || rec.Up.Read != 0 || rec.Queued <= 0 {
			t.Errorf("%+v", rec)
		}
		ref.Resume()
		if len(lot.asked) != 1 {
			t.Errorf("asked %v", lot.asked)
		}
	})
	t.Run("closed Unix socket", func(t *testing.T) {
		r, _, _, a, _ := queue(t, "unix")
		a.Close()
		r.expect(CauseClientGone)
	})
}

// Timeouts.Queue bounds the wait.
func TestParkTimeout(t *testing.T) {
	r := newRig(t, Config{})
	const queue = 100 * time.Millisecond
	lot := newLot(1<<30, nil)
	l := r.listen("tcp4", ListenConfig{Timeouts: Timeouts{Queue: queue}, Hooks: Hooks{Upstream: lot.upstream}})
	a := dial(t, l)
	rec := r.expect(CauseQueueTimeout)
	if rec.Queued < queue || rec.Attempts != 0 {
		t.Errorf("%+v", rec)
	}
	wantReset(t, a)
	// One that is resumed and told to wait again does not begin anew.
	lot.next(t)
	dial(t, l)
	stop := make(chan bool)
	var wg sync.WaitGroup
	ref := lot.next(t)
	wg.Go(func() {
		for {
			ref.Resume()
			select {
			case <-stop:
				return
			case <-time.After(queue / 20):
			}
		}
	})
	if rec := r.expect(CauseQueueTimeout); rec.Queued < queue {
		t.Errorf("%+v", rec)
	}
	close(stop)
	wg.Wait()
}

// Flows are resumed by the thousand, from goroutines and from hooks of any loop.
func TestResumeAtOnce(t *testing.T) {
	r := newRig(t, Config{Loops: 3})
	const waits, flows = 100, 30
	lot := newLot(waits, &Addr{Network: Echo})
	last := make(chan FlowRef, 1)
	h := Hooks{Upstream: func(f *Flow, attempt int) *Addr {
		select { // wake another one from here; it may be oneself
		case other := <-last:
			other.Resume()
		default:
		}
		select {
		case last <- f.Ref():
		default:
		}
		return lot.upstream(f, attempt)
	}}
	l := r.listen("tcp4", ListenConfig{Hooks: h})
	stop := make(chan bool)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case ref := <-lot.queued:
					ref.Resume()
					ref.Resume()
				case <-stop:
					return
				}
			}
		})
	}
	var clients sync.WaitGroup
	for range flows {
		a := dial(t, l)
		clients.Go(func() {
			if rep := testnet.Play(a, testnet.Script{Send: 1000, SendSeed: 1, Recv: 1000, RecvSeed: 1}); rep.Err != "" {
				t.Error(rep.Err)
			}
		})
	}
	clients.Wait()
	close(stop)
	wg.Wait()
	for range flows {
		r.expect(CauseEnd)
	}
}

// Queuing and resuming a flow does not allocate.
func TestResumeDoesNotAllocate(t *testing.T) {
	e := plainEngine(t, Config{Loops: 1})
	refs := make(chan FlowRef, 1)
	l, err := e.Listen(Addr{Network: TCP, AddrPort: loopback}, ListenConfig{Hooks: Hooks{Upstream: func(f *Flow, _ int) *Addr {
		refs <- f.Ref()
		f.Queue()
		return nil
	}}})
	if err != nil {
		t.Fatal(err)
	}
	a := dial(t, l)
	defer a.Close()
	noAllocs(t, 1000, func() { (<-refs).Resume() })
	<-refs
}

// Drain waits for flows that are queued or sniffed, and ends them at its deadline.
func TestDrainEarlyFlows(t *testing.T) {
	r := newRig(t, Config{})
	pre := &preamble{max: 1000, timeout: time.Minute}
	h := pre.hooks()
	lot := newLot(1, &Addr{Network: Echo})
	h.Upstream = lot.upstream
	l := r.listen("tcp4", ListenConfig{Hooks: h})
	a, b, c := dial(t, l), dial(t, l), dial(t, l)
	io.WriteString(b, "a line\n"+greeting)
	io.WriteString(c, "a line\n"+greeting)
	refs := []FlowRef{lot.next(t), lot.next(t)}
	io.WriteString(a, "half a li")
	testwait.Until(t, "all are flows", func() bool { s := r.e.Stats(); return s.Flows() == 3 })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.e.Drain(ctx) }()
	refs[0].Resume()
	refs[1].Resume()
	hear(t, b, greeting)
	hear(t, c, greeting)
	b.Close()
	c.Close()
	r.expect(CauseEnd)
	r.expect(CauseEnd)
	select {
	case err := <-ended:
		t.Errorf("drained with a flow open: %v", err)
	default:
	}
	cancel()
	r.expect(CauseDrained)
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
