package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/pool"
	"github.com/penstock/penstock/relay/hold"
	"github.com/penstock/penstock/relay/stats"
)

// Engine is a set of event loops and the flows that they carry. Its methods
// are safe for concurrent use.
//
// Hooks run on the loops, so what they call must not wait for a loop. In a hook
// Kill and Listener.Close return at once, and what they ask for happens soon after
// the hook has returned. Stats, Flows, Flow, Drain and Close, which need an answer
// from every loop, panic in a hook.
//
// An engine that is no longer referenced and has no listeners is closed when the
// last of its flows has ended.
type Engine struct{ *core }

// core is the engine as its loops and flows know it. They do not refer to the
// Engine itself, so that one that was forgotten can be told from one in use.
type core struct {
	shared
	loops     []*loop.Loop
	stats     []*loopCounters // by loop; each belongs to its loop's goroutine, and may lie in its ledger
	streams   streamShare
	datagrams datagramShare
	// descriptors is the budget that both take from.
	descriptors descriptorBudget
	dups        pool.Pool[*duplicator]
	turn        atomic.Uint32 // whose turn it is to adopt a pair
	// stopping: Drain or Close was called, and no pair is taken any more.
	stopping atomic.Bool
	closing  sync.WaitGroup // wrappers whose flows have ended

	// Nothing waits for a loop while it holds mu.
	mu        sync.Mutex
	listeners map[*Listener]struct{}
	state     engineState
	// awaitsRestore: Listeners do not take clients before Restore, since datagrams of an earlier
	// process's flows may be among what they receive.
	awaitsRestore bool
	ledgers       map[int]earlierLedger // of an earlier process, by loop
	handing       bool                  // HandOver was called, and has not failed
	handshakeLast time.Duration         // in place of the constant; 0: that
	step          func(*core)           // has the lingering engine's turns run, in simulations; nil: it runs by itself
	lingering     *Engine               // what goes on in this process after HandOver; nil: nothing
	base          int64                 // CLOCK_MONOTONIC at start
	lost          hold.Restored         // flows that New could not give to Restore
	earlier       earlierHeld           // flows and ledgers that Restore has not handled yet
	surplus       []earlierLedger       // of loops that this process does not have
	needed        int                   // loops that are needed for the flows of an earlier process; 0: there was none
	newest        uint32                // the highest generation of all flows of earlier processes, those too of loops that this one does not have, and those without a ledger
	done          chan struct{}         // closed when every loop has ended
	quiet         chan struct{}         // closed, and made anew, when a loop that drains has nothing left
}

type engineState uint8

const (
	running engineState = iota
	draining
	closed
)

// check panics, with words, if the engine was not made by New, and if wait says that the method waits for the loops and it is
// called in a hook.
func (e *Engine) check(method string, wait bool) {
	switch {
	case e == nil || e.core == nil:
		panic("relay: Engine." + method + " called on an Engine that New has not made")
	case wait && loop.InHook():
		panic("relay: Engine." + method + " called in a hook: it waits for the event loops, which run the hooks")
	}
}

// New makes an engine and starts its loops. The caller should close the engine.
func New(cfg Config) (*Engine, error) { return newEngine(cfg, sys.Linux{}) }

func newEngine(cfg Config, k sys.Kernel) (*Engine, error) {
	e, err := newCore(cfg, k)
	if err != nil {
		return nil, err
	}
	return e.run(), nil
}

// newCore makes an engine whose loops do not run yet.
func newCore(cfg Config, k sys.Kernel) (*core, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Loops == 0 {
		cfg.Loops = min(runtime.GOMAXPROCS(0), maxLoops)
	}
	if cfg.LowWaterMark == 0 {
		cfg.LowWaterMark = defaultLowat
	}
	files, err := k.FileLimit()
	if err != nil {
		return nil, fmt.Errorf("relay: read the limit on descriptors: %w", err)
	}
	e := &core{
		shared:    shared{kernel: k, cfg: cfg, start: k.Now()},
		listeners: make(map[*Listener]struct{}),
		done:      make(chan struct{}),
		quiet:     make(chan struct{}),
	}
	e.dups.New = newDuplicator
	if cfg.Keep != nil {
		e.holding, e.earlier = newHolding(k, cfg.Keep)
		e.awaitsRestore = len(cfg.Keep.Held) > 0
		if err := e.openLedgers(); err != nil {
			return nil, err
		}
	}
	e.streams.init(e.newPipes())
	keepings, err := e.newLoops()
	if err != nil {
		return nil, err
	}
	e.datagrams.init(&cfg, files, &e.descriptors.limit)
	e.descriptors.init(k, e.start, e.loops, e.streams.pipes, budgetFlows{
		streams: e.streams.flows, short: func() bool { return e.streams.paused.budget.Load() > 0 },
		datagrams: e.datagrams.flows.Load, mostDatagrams: e.datagrams.most,
	})
	for i, l := range e.loops {
		k := keepings[i]
		t := tenant{loop: l, shared: &e.shared, keep: k, loopStats: e.stats[i], descriptors: e.descriptors.all[i]}
		// In this order: what datagrams gathered leaves before streams have their turn.
		newDatagrams(t, &e.datagrams)
		newStreams(t, &e.streams)
		if k != nil {
			e.reserveSlots(l, k)
		}
	}
	if e.holding != nil {
		e.findOlder()
	}
	return e, nil
}

// run starts the loops.
func (e *core) run() *Engine {
	var wg sync.WaitGroup
	for _, l := range e.loops {
		wg.Go(l.Run)
	}
	engine := &Engine{e}
	cleanup := runtime.AddCleanup(engine, func(e *core) { go e.closeUnreachable() }, e)
	go func() {
		wg.Wait()
		cleanup.Stop() // it keeps the core, and with that whatever hooks refer to, such as the Engine
		close(e.done)
	}()
	return engine
}

// newLoops makes the loops, and what each needs for flows to outlive the process. If there was an earlier process, the loops that its
// flows need are enough: no flow is lost for want of what another loop takes.
func (e *core) newLoops() (keepings []*keeping, err error) {
	for i := range e.cfg.Loops {
		l, err := loop.New(e.kernel, i, e.start, e.cfg.Dedicated, e.quieten)
		var k *keeping
		switch {
		case err != nil:
			err = fmt.Errorf("relay: make event loop: %w", err)
		case e.cfg.Keep != nil:
			if k, err = e.newKeeping(l); err != nil {
				l.Free()
			}
		}
		if err != nil && e.needed > 0 && i >= e.needed {
			e.cfg.Loops = i
			e.dropLedgers()
			break
		}
		if err != nil {
			for i := range e.loops {
				e.loops[i].Free()
				if keepings[i] != nil {
					keepings[i].ledger.Close()
				}
			}
			for _, l := range e.surplus {
				l.ledger.Close()
			}
			return nil, err
		}
		stats := new(loopCounters)
		if k != nil {
			stats = k.stats
		}
		l.Count(loop.Counters{Waits: &stats.Waits, Wakeups: &stats.Wakeups, Events: &stats.Events, Busy: &stats.Busy})
		l.AtEnd = func() { e.keepStats(i) }
		e.loops, e.stats, keepings = append(e.loops, l), append(e.stats, stats), append(keepings, k)
	}
	e.takeCounters()
	return keepings, nil
}

// keepStats copies the counters of a loop that ends, which are asked for later: they may lie in a ledger.
func (e *core) keepStats(i int) {
	last := *e.stats[i]
	last.LongestTurn = e.loops[i].LongestTurn()
	e.stats[i] = &last
}

// closeUnreachable ends an engine that nobody can close any more, after its flows.
func (e *core) closeUnreachable() {
	if e.drain(context.Background()) == nil {
		e.close()
	}
}

// Relay relays between two connected stream sockets: each of a and b is a *net.TCPConn,
// a *net.UnixConn, or a Wrapper around one of those, which package splice declares: what
// splice.NewConn makes of a bufio.Reader that has read from the connection, for instance.
// Relay returns at once. The client of the flow is a, the upstream b.
//
// After Relay has returned nil the engine owns both connections and closes them; the
// caller must not use them any more, and their deadlines have no effect. The engine
// makes the sockets non-blocking, and the caller must not undo that through a file from
// their File method, as [os.File.Fd] does: splice(2) would then block the loop. The
// TakeRead method of a Wrapper is called before Relay returns and must not block. Its
// Close method is called once, on a goroutine of its own, after Done; the connection
// inside is closed by then. The engine's Close waits for that call to return.
//
// If Relay returns an error, both connections, and all that a Wrapper has read, still
// belong to the caller. The error is [errors.ErrUnsupported] if a connection is not a
// stream socket (package splice relays those) and [net.ErrClosed] if the engine is
// closed or drains, or a connection is closed.
func (e *Engine) Relay(a, b net.Conn, cfg PairConfig) error {
	e.check("Relay", false)
	inA, inB := pump.Inner(a), pump.Inner(b)
	fdA, err := e.dupConn(inA)
	if err != nil {
		return err
	}
	fdB, err := e.dupConn(inB)
	if err != nil {
		e.kernel.Close(fdA)
		return err
	}
	s := e.streams.all[e.turn.Add(1)%uint32(len(e.streams.all))]
	// Nothing may fail once the wrappers have given away what they had read.
	reserved := s.loop.Reserve()
	s.load.Add(1)
	if !reserved || e.stopping.Load() {
		s.load.Add(-1)
		e.quieten()
		if reserved {
			s.loop.PostReserved(nil)
		}
		e.kernel.Close(fdA)
		e.kernel.Close(fdB)
		return net.ErrClosed
	}
	e.closeAtEnd(a, &cfg)
	e.closeAtEnd(b, &cfg)
	x := e.streams.adoptions.Get()
	*x = adoption{
		fd: [2]int{fdA, fdB}, tcp: [2]bool{isTCP(inA), isTCP(inB)}, config: cfg,
		read: [2][]byte{pump.TakeRead(a), pump.TakeRead(b)},
	}
	s.loop.PostReserved(&loop.Request{To: s, Arg: x})
	inA.Close()
	inB.Close()
	runtime.KeepAlive(e)
	return nil
}

// closeAtEnd has c closed when its flow has ended, if it is a wrapper, whose
// owner may take that for the end.
func (e *core) closeAtEnd(c net.Conn, cfg *PairConfig) {
	if _, ok := c.(pump.Wrapper); !ok {
		return
	}
	done := cfg.Done
	cfg.Done = func(r *Record) {
		if done != nil {
			done(r)
		}
		e.closing.Go(func() { c.Close() })
	}
}

// Stats returns counters and gauges. It asks the loops, which answer between two
// events.
func (e *Engine) Stats() stats.Engine {
	e.check("Stats", true)
	counted, refused := e.counted(), int64(0)
	if l := e.left(); l != e { // what was counted before is not lost by that
		for i, c := range l.counted() {
			counted[i].resetGauges()
			counted[i].add(&c)
		}
		if e.streams.pipes != nil {
			refused = e.streams.pipes.Stats().Refused
		}
		e = l
	}
	s := stats.Engine{Loops: make([]stats.Loop, len(counted)), PipesRefused: refused}
	for i := range counted {
		s.Loops[i] = counted[i].stats()
	}
	s.Buffers = e.buffers.Stats()
	s.LoopsPaused = int64(e.streams.paused.loops.Load())
	s.Descriptors = e.descriptors.stats()
	s.Descriptors.LoopsPaused = int64(e.streams.paused.budget.Load())
	if e.streams.short.flows.Load() > 0 {
		s.Descriptors.LoopsPaused = s.LoopsPaused
	}
	if e.streams.pipes != nil {
		p := e.streams.pipes.Stats()
		s.PipesOpen, s.PipesLeased, s.PipesMax, s.PipesRefused = p.Open, p.Leased, p.Max, refused+p.Refused
	}
	return s
}

// counted returns the counters of each loop.
func (e *core) counted() []loopCounters {
	counted := make([]loopCounters, len(e.loops))
	var wg sync.WaitGroup
	for i, l := range e.loops {
		wg.Add(1)
		if !l.Post(loop.Request{Do: func() { e.count(i, &counted[i]) }, WG: &wg}) {
			<-l.Ended
			counted[i] = *e.stats[i]
			wg.Done()
		}
	}
	wg.Wait()
	return counted
}

// left returns the engine that goes on in this process: e itself, unless it has handed over and something lingers.
func (e *Engine) left() *Engine {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lingering != nil && e.state == closed {
		return e.lingering
	}
	return e
}

// count reads the counters of one loop, on its goroutine.
func (e *core) count(i int, c *loopCounters) {
	l, d := e.loops[i], e.datagrams.all[i]
	d.readAllDrops()
	*c = *e.stats[i]
	c.Flows = int64(l.Slots.Live)
	c.Datagrams.Flows = int64(d.slab.Live)
	c.LongestTurn = l.LongestTurn()
}

// Drain stops listening as [Listener.Close] does, and waits until every flow has ended.
// Sockets that datagram flows need and nobody else has, Unix and inherited ones, go on
// taking new clients until Drain returns. Datagram flows end when they have been idle for
// Timeouts.Idle, by default a minute: a datagram client has no other end. If ctx ends
// first, Drain ends the remaining flows with [CauseDrained] and returns ctx's error. The
// engine accepts nothing afterwards and must still be closed. Several goroutines may call
// Drain at once. After Close it returns [net.ErrClosed].
func (e *Engine) Drain(ctx context.Context) error {
	e.check("Drain", true)
	err := e.left().drain(ctx)
	runtime.KeepAlive(e)
	return err
}

func (e *core) drain(ctx context.Context) error {
	if err := e.beginDrain(); err != nil {
		return err
	}
	for {
		quiet := e.nextQuiet()
		if e.drained() {
			return nil
		}
		select {
		case <-quiet:
		case <-e.done:
			return net.ErrClosed
		case <-ctx.Done():
			var wg sync.WaitGroup
			e.endDrain(&wg)
			wg.Wait()
			return ctx.Err()
		}
	}
}

// beginDrain stops listening.
func (e *core) beginDrain() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state == closed {
		return net.ErrClosed
	}
	e.state = draining
	e.stopping.Store(true)
	e.closeListeners()
	return nil
}

// nextQuiet returns what is closed when a loop that drains has nothing left, from now on.
func (e *core) nextQuiet() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.quiet
}

// endDrain takes nobody any more, and ends the flows that are left. wg is done when that has happened.
func (e *core) endDrain(wg *sync.WaitGroup) {
	e.datagrams.refuses.Store(true)
	for _, s := range e.streams.all {
		s.loop.Post(loop.Request{Do: s.expireClosing})
	}
	e.beginWalk(func(f *Flow) { f.owner.kill(f, CauseDrained) }, wg)
}

// drained reports whether no flow is left, and none can come.
func (e *core) drained() bool {
	if e.accepting() || e.flows() > 0 {
		return false
	}
	// Some ports of datagrams have taken new clients until now; see portState.
	e.datagrams.refuses.Store(true)
	if e.accepting() || e.flows() > 0 {
		e.datagrams.refuses.Store(false)
		return false
	}
	return true
}

// accepting reports whether a loop takes somebody in while the engine drains. Each loop first reads what was posted
// to it: after that it takes nobody in, nor calls another loop to do so, so that their loads only fall.
func (e *core) accepting() bool {
	accepting := make([]bool, len(e.loops))
	var wg sync.WaitGroup
	for i, s := range e.streams.all {
		wg.Add(1)
		do := func() {
			s.loop.Draining = true
			accepting[i] = len(s.closingPorts) > 0 || e.datagrams.all[i].leaving > 0
		}
		if !s.loop.Post(loop.Request{Do: do, WG: &wg}) {
			wg.Done()
		}
	}
	wg.Wait()
	return slices.Contains(accepting, true)
}

// quieten wakes everybody that drains.
func (e *core) quieten() {
	e.mu.Lock()
	close(e.quiet)
	e.quiet = make(chan struct{})
	e.mu.Unlock()
}

// Close stops listening, ends every flow with [CauseClosed], and ends the loops. When
// it returns, the engine has no descriptors, pipes or goroutines left, and Done has
// been called for every flow. Clients that still wait in an accept queue are reset;
// call Drain first to accept them. A second call returns [net.ErrClosed].
func (e *Engine) Close() error {
	e.check("Close", true)
	return e.left().close()
}

func (e *core) close() error {
	e.mu.Lock()
	if e.state == closed {
		e.mu.Unlock()
		<-e.done
		return net.ErrClosed
	}
	e.state = closed
	e.stopping.Store(true)
	e.closeListeners()
	e.mu.Unlock()
	for _, l := range e.loops {
		l.Post(loop.Request{Do: func() { l.Closing = true }})
	}
	<-e.done
	e.closing.Wait()
	e.streams.running.Wait()
	if e.holding != nil {
		e.holding.close()
		e.releaseEarlier()
		for _, s := range e.streams.all {
			s.keep.close()
		}
	}
	if e.streams.pipes != nil {
		e.streams.pipes.Drain()
	}
	e.buffers.Drain()
	return nil
}

// flows is the number of open flows, with those that a loop was given and has
// not seen yet.
func (e *core) flows() int64 {
	return e.datagrams.flows.Load() + e.streams.flows()
}

// walk calls visit for each flow on its loop, some at a time, and waits until all
// loops have finished. visit may end the flow.
func (e *core) walk(visit func(*Flow)) {
	var wg sync.WaitGroup
	e.beginWalk(visit, &wg)
	wg.Wait()
}

// beginWalk is walk, and does not wait: wg is done when all loops have finished.
func (e *core) beginWalk(visit func(*Flow), wg *sync.WaitGroup) {
	for _, l := range e.loops {
		do := func() {
			l.Walk(func(_ loop.Handler, slot uint32) { visit(ownerOf(l, slot).flow(slot)) }, nil, wg)
		}
		wg.Add(1)
		if !l.Post(loop.Request{Do: do}) {
			wg.Done()
		}
	}
}

func isTCP(c net.Conn) bool {
	_, ok := c.(*net.TCPConn)
	return ok
}

var errNilConn = fmt.Errorf("relay: Relay of a nil connection: %w", os.ErrInvalid)

// dupConn gives a second descriptor of c's socket. The concrete types let the
// compiler keep the raw connection off the heap.
func (e *core) dupConn(c net.Conn) (int, error) {
	switch c := c.(type) {
	case *net.TCPConn:
		if c == nil {
			return -1, errNilConn
		}
		d := e.dups.Get()
		rc, err := c.SyscallConn()
		if err == nil {
			err = rc.Control(d.control)
		}
		return e.duplicated(d, err)
	case *net.UnixConn:
		if c == nil {
			return -1, errNilConn
		}
		if a := c.LocalAddr(); a == nil || a.Network() != "unix" {
			break
		}
		d := e.dups.Get()
		rc, err := c.SyscallConn()
		if err == nil {
			err = rc.Control(d.control)
		}
		return e.duplicated(d, err)
	}
	return -1, fmt.Errorf("relay: %T is not a stream socket: %w", c, errors.ErrUnsupported)
}

// dup gives a second descriptor of what rc is about.
func (e *core) dup(rc syscall.RawConn) (int, error) {
	d := e.dups.Get()
	return e.duplicated(d, rc.Control(d.control))
}

// duplicator duplicates the descriptor of a raw connection and makes it
// non-blocking: it is how the engine comes to own what others have made. Its
// method is bound once and kept, so that a call allocates no closure.
type duplicator struct {
	fd      int
	errno   sys.Errno
	control func(fd uintptr)
}

func newDuplicator() *duplicator {
	d := new(duplicator)
	d.control = func(fd uintptr) {
		if d.fd, d.errno = sys.Dup(int(fd)); d.errno == 0 {
			sys.SetNonblock(d.fd)
		}
	}
	return d
}

// duplicated takes the result out of d, and d back.
func (e *core) duplicated(d *duplicator, err error) (int, error) {
	fd, errno := d.fd, d.errno
	e.dups.Put(d)
	switch {
	case err != nil:
		return -1, err
	case errno != 0:
		return -1, fmt.Errorf("dup: %w", errno)
	}
	return fd, nil
}

// closeListeners stops all listeners. Engine.mu is held.
func (e *core) closeListeners() {
	var wg sync.WaitGroup // nobody waits
	why := stopEndsAll
	if e.state == draining {
		why = stopDrain
	}
	for _, l := range e.sortedListeners() {
		l.stop(why, &wg)
	}
	e.listeners = nil
}
