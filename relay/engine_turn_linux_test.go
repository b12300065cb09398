package relay

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testwait"
)

// perTurn counts how often something happens in one turn of a loop.
type perTurn struct {
	mu                  sync.Mutex
	waits               int64
	now, most, together int
}

// add is for hooks.
func (p *perTurn) add(l *loop.Loop) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waits != l.Waits() {
		p.waits, p.now = l.Waits(), 0
	}
	p.now++
	p.together++
	p.most = max(p.most, p.now)
}

// want waits until it has happened n times, at most so often in one turn, and starts anew.
func (p *perTurn) want(t *testing.T, n, most int) {
	t.Helper()
	testwait.Until(t, "all of it", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.together >= n
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.most > most {
		t.Errorf("%d of %d in one turn, want at most %d", p.most, n, most)
	}
	p.now, p.most, p.together = 0, 0, 0
}

// holdLoop keeps the first loop, which must have a flow, in a hook until release.
func holdLoop(r *rig) (release func()) {
	hold, entered := make(chan bool), make(chan bool)
	var once sync.Once
	go r.e.onLoops(func(*Flow) {
		once.Do(func() { close(entered); <-hold })
	})
	<-entered
	return sync.OnceFunc(func() { close(hold) })
}

// However much is asked of a loop at once, it does some of it and then lets
// its flows have their turn.
func TestTurnsAreBounded(t *testing.T) {
	const flows = 600
	r := newRig(t, Config{Loops: 1})
	l := r.e.loops[0]
	var admitted, asked, ended perTurn
	var queued []FlowRef
	hooks := Hooks{
		Admit: func(*Flow) Cause { admitted.add(l); return CauseNone },
		Upstream: func(f *Flow, _ int) *Addr {
			if f.Value() == nil {
				f.SetValue(true)
				queued = append(queued, f.Ref())
			}
			asked.add(l)
			f.Queue()
			return nil
		},
		Done: func(rec *Record) { r.done(rec); ended.add(l) },
	}
	connect := func(ln *Listener, n int) {
		for range n {
			dial(t, ln)
		}
	}
	ln := r.listen("unix", ListenConfig{Hooks: hooks})
	connect(ln, flows)
	asked.want(t, flows, 2*acceptBurst)

	t.Log("flows that are resumed")
	release := holdLoop(r)
	for _, ref := range queued {
		ref.Resume()
	}
	release()
	asked.want(t, flows, loop.RequestBurst)

	t.Log("clients of a listener that closes")
	queued = nil
	admitted.want(t, flows, 2*acceptBurst)
	release = holdLoop(r)
	connect(ln, flows)
	closed := make(chan error)
	go func() { closed <- ln.Close() }()
	testwait.Until(t, "the loop is asked to close it", func() bool {
		return l.Unread() > 0
	})
	release()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	admitted.want(t, flows, 2*acceptBurst)
	asked.want(t, flows, 2*acceptBurst)

	t.Log("flows that are ended")
	r.e.endFlows(CauseRemoved)
	ended.want(t, 2*flows, loop.WalkBurst)

	t.Log("timers that come up together")
	ln = r.listen("unix", ListenConfig{Hooks: hooks, Timeouts: Timeouts{Life: 30 * time.Second}})
	connect(ln, flows)
	asked.want(t, flows, 2*acceptBurst)
	var at time.Duration
	r.e.onLoops(func(f *Flow) {
		if at == 0 {
			at = f.owner.base().loop.Now + 4*tick
		}
		f.SetTimeouts(Timeouts{Life: at - f.start})
	})
	release = holdLoop(r)
	r.k.Pass(6 * tick)
	release()
	ended.want(t, flows, loop.TimerBurst)
}

// A hook that takes what a client says, and always wants more, shares its loop.
func TestSniffIsBounded(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	l := r.e.loops[0]
	var sniffed perTurn
	ln := r.listen("tcp4", ListenConfig{Hooks: Hooks{
		Admit: func(f *Flow) Cause { f.StartSniff(100, time.Hour); return CauseNone },
		Sniff: func(_ *Flow, b []byte, last bool) (int, SniffNext) {
			sniffed.add(l)
			if len(b) == 0 {
				return 0, SniffRefuse
			}
			return len(b), SniffMore
		},
		Upstream: func(*Flow, int) *Addr { return nil },
	}})
	c := dial(t, ln)
	c.Write([]byte("hello"))
	sniffed.want(t, 1, 1)
	release := holdLoop(r)
	const reads = 2000
	c.Write(make([]byte, 100*reads))
	release()
	sniffed.want(t, reads, 2*sniffBurst) // an event, and then as one that is ready
	closeWrite(t, c)
	wantReset(t, c)
	r.expect(CauseRefused)
}

// Of many flows whose budgets are spent some have their next turn, and the
// others wait behind new events.
func TestReadyIsBounded(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	l := r.e.loops[0]
	var sniffed perTurn
	ln := r.listen("tcp4", ListenConfig{Hooks: Hooks{
		Admit: func(f *Flow) Cause { f.StartSniff(100, time.Hour); return CauseNone },
		Sniff: func(_ *Flow, b []byte, last bool) (int, SniffNext) {
			sniffed.add(l)
			return len(b), SniffMore
		},
		Upstream: func(*Flow, int) *Addr { return nil },
	}})
	const flows, turns = 4 * readyBurst, 4
	var clients []net.Conn
	for range flows {
		c := dial(t, ln)
		c.Write([]byte("hello"))
		clients = append(clients, c)
	}
	sniffed.want(t, flows, flows)
	release := holdLoop(r)
	for _, c := range clients {
		c.Write(make([]byte, 100*sniffBurst*turns))
	}
	release()
	sniffed.want(t, flows*sniffBurst*turns, (flows+readyBurst)*sniffBurst) // an event each, and then as ones that are ready
	r.e.endFlows(CauseRemoved)
}

// A listener that closes while no descriptor is left takes its clients when
// there are some again; it does not reset them.
func TestCloseWithoutDescriptors(t *testing.T) {
	for _, network := range []string{"tcp4", "unix"} {
		for _, how := range []string{"listener", "drain"} {
			t.Run("net="+network+"/by="+how, func(t *testing.T) {
				r := newRig(t, Config{Loops: 1})
				r.k.StopClock()
				l := r.listen(network, ListenConfig{}, &Addr{Network: Echo})
				before := dial(t, l)
				say(t, before, before, "hello")
				r.k.Fail(testkernel.Accept, sys.EMFILE, -1)
				var clients []net.Conn
				for range 3 {
					clients = append(clients, dial(t, l))
				}
				ended := make(chan error, 1)
				accepts := r.k.Count(testkernel.Accept)
				go func() {
					if how == "drain" {
						ended <- r.e.Drain(t.Context())
					} else {
						ended <- l.Close()
					}
				}()
				testwait.Until(t, "the listener closes", func() bool {
					r.pass(acceptPause)
					c, err := net.Dial(toNet(l.Addr()).Network(), toNet(l.Addr()).String())
					if err == nil { // it waits with the others
						clients = append(clients, c)
						t.Cleanup(func() { c.Close() })
					}
					return err != nil || r.k.Count(testkernel.Accept) > accepts+2
				})
				before.Close() // gives its descriptor back
				r.expect(CauseEnd)
				r.k.Heal()
				r.pass(acceptPause)
				for _, c := range clients {
					say(t, c, c, "at last")
					c.Close()
				}
				if err := <-ended; err != nil {
					t.Error(err)
				}
				for range clients {
					r.expect(CauseEnd)
				}
			})
		}
	}
}

// Drain does not wait longer than it may for clients that no descriptor is left for.
func TestDrainWithoutDescriptorsEnds(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	r.k.StopClock() // so that acceptLast is not over
	l := r.listen("tcp4", ListenConfig{}, &Addr{Network: Echo})
	before := dial(t, l)
	say(t, before, before, "hello")
	r.k.Fail(testkernel.Accept, sys.EMFILE, -1)
	dial(t, l)
	ctx, cancel := contextFor(t, 50*time.Millisecond)
	defer cancel()
	drained := make(chan error, 1)
	go func() { drained <- r.e.Drain(ctx) }()
	r.expect(CauseDrained)
	if err := <-drained; !errors.Is(err, ctx.Err()) {
		t.Error(err)
	}
}
