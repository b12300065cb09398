package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/internal/ledger"
	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/hold"
)

// Restore has the flows of a process that died, or that has handed over, go on. It is
// called once, on an engine with Config.Keep, when all listeners have been made: flows
// are given to the listeners with their addresses. It closes what Keep.Held has and
// nobody needs. For each flow that is lost it resets the flow's TCP connections, and
// calls Hooks.Done with [CauseCrashed] if Hooks.Decode knows the flow. Restore returns
// when all flows have been looked at. Listeners accept nobody before.
func (e *Engine) Restore(cfg RestoreConfig) (hold.Restored, error) {
	e.check("Restore", true)
	if e.holding == nil {
		return hold.Restored{}, errors.ErrUnsupported
	}
	restored := e.lost
	e.lost = hold.Restored{}
	listener := e.listenerFinder(&cfg)
	e.attachPorts()
	e.inSteps(&restored, func(s *streams, own *hold.Restored) bool {
		return e.restoreSome(s, &restorer{cfg: &cfg, listener: listener, result: own})
	})
	// When all flows that relay count again in the hooks, those begin that need their permission.
	e.inSteps(&restored, (*streams).beginSome)
	e.releaseEarlier()
	e.startListeners()
	return restored, nil
}

// inSteps calls step on each loop, in turn after turn until it reports that there is no more to do, waits, and
// adds the results.
func (e *core) inSteps(sum *hold.Restored, step func(s *streams, own *hold.Restored) (more bool)) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, s := range e.streams.all {
		own := new(hold.Restored)
		var next func()
		next = func() {
			if step(s, own) && s.loop.Post(loop.Request{Do: next}) {
				return
			}
			mu.Lock()
			sum.Add(own)
			mu.Unlock()
			wg.Done()
		}
		wg.Add(1)
		if !s.loop.Post(loop.Request{Do: next}) { // the engine closes
			wg.Done()
		}
	}
	wg.Wait()
}

// restoreSome restores the next flows of a loop, on its goroutine.
func (e *core) restoreSome(s *streams, t *restorer) (more bool) {
	d := e.datagrams.all[s.loop.Index]
	for range restoreBurst {
		x, ok := s.keep.next()
		if !ok {
			d.restoreAges()
			d.restoreRests()
			s.keep.releaseEarlier()
			s.balanceStats()
			return false
		}
		// A flow that the process dies of while it is restored is not tried for ever.
		s.keep.turn.Begin(x.Slot, x.Gen)
		switch kind := x.record.Kind(); {
		case kind == ledger.KindStream && len(x.fds) <= 2:
			s.restore(&x, t)
		case kind == ledger.KindDatagram && len(x.fds) <= 1:
			d.restore(&x, t)
		default:
			s.keep.abandon(&x)
			t.result.Lost.Add(hold.LossLedger, 1)
		}
		s.keep.turn.End()
	}
	return true
}

// listenerFinder returns a function that returns the listener with an address. For a listener that is
// gone it makes one that accepts nobody, if there is a configuration.
func (e *core) listenerFinder(cfg *RestoreConfig) func(addr string) *Listener {
	found := make(map[string]*Listener)
	e.mu.Lock()
	for l := range e.listeners {
		found[l.addr.String()] = l
	}
	e.mu.Unlock()
	var mu sync.Mutex
	return func(addr string) *Listener {
		mu.Lock()
		defer mu.Unlock()
		if l, ok := found[addr]; ok {
			return l
		}
		found[addr] = e.goneListener(cfg, addr)
		return found[addr]
	}
}

func (e *core) goneListener(cfg *RestoreConfig, addr string) *Listener {
	if cfg.Listener == nil {
		return nil
	}
	c, ok := cfg.Listener(addr)
	if !ok {
		return nil
	}
	a, err := ParseAddr(addr)
	if err != nil {
		return nil
	}
	full, err := complete(c)
	if err != nil {
		return nil
	}
	l := &Listener{engine: &Engine{e}, addr: a}
	l.cfg.Store(full)
	return l
}

// openLedgers opens the ledgers of an earlier process. The engine has at least as many loops as that one
// had loops with flows, so that flows stay where they are, and keep their IDs. An error says that this process cannot
// open one that another may.
func (e *core) openLedgers() error {
	base := sys.MonotonicAt(e.start)
	e.ledgers = make(map[int]earlierLedger)
	for _, f := range e.earlier.flows { // whose ledger may not be readable: this process may die before its holder has heard that they are dropped
		e.newest = max(e.newest, uint32(f.Key[1]))
	}
	for _, x := range e.earlier.ledgers {
		i := loopOf(x.Key)
		l, err := ledger.Open(e.kernel, x.FDs[0])
		if _, ok := errors.AsType[sys.Errno](err); ok && !errors.Is(err, ledger.ErrInvalid) {
			return fmt.Errorf("relay: open ledger: %w", err)
		}
		if err != nil || l.Loop() != i || i >= maxLoops {
			if err == nil {
				l.Close()
			} else {
				e.kernel.Close(x.FDs[0])
			}
			e.holding.drop(x.Key)
			// The next ledger of this loop needs another key.
			if before := e.ledgers[i]; before.key[1] < x.Key[1] && before.ledger == nil {
				e.ledgers[i] = earlierLedger{key: x.Key}
			}
			continue
		}
		if before := e.ledgers[i]; before.ledger != nil {
			if before.key[1] > x.Key[1] {
				l, x.Key, before = before.ledger, before.key, earlierLedger{l, x.Key}
			}
			before.ledger.Close()
			e.holding.drop(before.key)
		}
		e.ledgers[i] = earlierLedger{l, x.Key}
		base = min(base, l.Made())
		e.newest = max(e.newest, l.Turn().Newest())
		e.needed = max(e.needed, 1)
		for range l.All() {
			e.needed = max(e.needed, i+1)
			break
		}
	}
	e.earlier.ledgers = nil
	e.cfg.Loops = max(e.cfg.Loops, e.needed)
	e.start = e.start.Add(time.Duration(base - sys.MonotonicAt(e.start)))
	e.base = base
	e.dropLedgers()
	return nil
}

// dropLedgers takes the ledgers of loops that this process does not have out of those that it goes on with; see takeCounters.
func (e *core) dropLedgers() {
	// First what is held for their flows, which have ended: without the ledger, the next process takes them for flows that got lost.
	e.earlier.flows = slices.DeleteFunc(e.earlier.flows, func(f hold.Held) bool {
		i := loopOf(f.Key)
		if i < e.cfg.Loops {
			return false
		}
		if e.ledgers[i].ledger != nil {
			e.holding.release(f)
		} else {
			e.loseFlow(f)
		}
		return true
	})
	for _, i := range slices.Sorted(maps.Keys(e.ledgers)) {
		if l := e.ledgers[i]; i >= e.cfg.Loops {
			if l.ledger != nil {
				e.surplus = append(e.surplus, l)
			} else {
				e.holding.drop(l.key)
			}
			delete(e.ledgers, i)
		}
	}
}

// earlierLedger is a ledger of an earlier process, or nil, if it could not be read.
type earlierLedger struct {
	ledger *ledger.Ledger
	key    holdKey
}

// newKeeping makes what a loop needs for flows to outlive the process, and gives it what an earlier
// process had.
func (e *core) newKeeping(l *loop.Loop) (*keeping, error) {
	x := e.ledgers[l.Index]
	k, err := newKeeping(l, e.holding, e.cfg.Keep, e.base, x.ledger, x.key)
	if err != nil {
		return nil, err
	}
	k.begun(ref{Gen: e.newest}) // a loop may come back whose ledger is gone
	k.reserve()
	flows := e.earlier.flows[:0]
	for _, f := range e.earlier.flows {
		switch {
		case loopOf(f.Key) != l.Index:
			flows = append(flows, f)
		case x.ledger == nil:
			e.loseFlow(f)
		default:
			k.earlier[f.Key] = f.FDs
		}
	}
	e.earlier.flows = flows
	k.resolve(e.streams.pipes)
	return k, nil
}

// loseFlow ends a flow of which nothing but its descriptors is left.
func (e *core) loseFlow(f hold.Held) {
	e.lost.Lost.Add(hold.LossLedger, 1)
	for _, fd := range f.FDs {
		resetSocket(e.kernel, fd)
	}
	e.holding.release(f)
}

// reserveSlots makes the slots of an earlier process's flows those of their handlers, which do not give
// them to other flows.
func (e *core) reserveSlots(l *loop.Loop, k *keeping) {
	l.Slots.Base = (k.newest + 1) &^ 1
	s, d := e.streams.all[l.Index], e.datagrams.all[l.Index]
	for slot, r := range k.ledger.All() {
		for slot >= l.Slots.Len() {
			// Chunks without a flow go to whoever has the next one.
			if r.Kind() == ledger.KindDatagram {
				d.slab.Grow()
			} else {
				s.slab.Grow()
			}
		}
	}
	var taken []uint32
	for slot := range k.ledger.All() {
		taken = append(taken, slot)
	}
	s.slab.Reserve(taken)
	d.slab.Reserve(taken)
}

// HandOver stops the engine and leaves its flows to the next process, those too that
// are not settled: of a stream that still sniffs or connects, the client and what it
// has sent are held. No connection is closed, and clients wait in the queues of the
// listeners. A flow that cannot be handed over, such as a pair without a name, ends with
// [CauseCrashed].
//
// The program should end soon afterwards: the engine keeps its descriptors until then. With [hold.Keep].Linger it closes
// them, and a flow whose TLS ends or begins here goes on as long as this program does: the next process has the flow, and this one
// encrypts and decrypts for it. Drain then waits for the end of these connections, Close ends them, and Stats is about them.
//
// If ctx ends first or the holder fails, HandOver returns the error and the engine goes
// on. After Close or HandOver it returns [net.ErrClosed], and [errors.ErrUnsupported]
// without Config.Keep.
func (e *Engine) HandOver(ctx context.Context) error {
	e.check("HandOver", true)
	if e.holding == nil {
		return errors.ErrUnsupported
	}
	e.mu.Lock()
	before := e.state
	if before == closed || e.handing {
		e.mu.Unlock()
		return net.ErrClosed
	}
	e.handing = true
	e.stopping.Store(true)
	e.mu.Unlock()
	err := e.handOver(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		e.handing = false
		e.stopping.Store(before != running)
		return err
	}
	e.state = closed
	return nil
}

func (e *core) handOver(ctx context.Context) error {
	// First without stopping anybody for long, and then what is left.
	e.each(func(s *streams) { s.stopAccepting() })
	e.finishHandshakes(ctx)
	failed := make([]error, len(e.loops))
	for i, s := range e.streams.all {
		failed[i] = e.settleRunning(ctx, s)
	}
	err := ctx.Err()
	if holder := cmp.Or(failed...); holder != nil {
		err = fmt.Errorf("relay: not all flows are held: %w", holder)
	}
	if err == nil { // the flows may all have been held long ago, by a holder that has gone
		if holder := e.holding.flush(settleLast); holder != nil {
			err = fmt.Errorf("relay: the flows are not held: %w", holder)
		}
	}
	if err != nil {
		e.each(func(s *streams) { s.startAccepting() })
		return err
	}
	lingering := e.newLingering()
	e.each(func(s *streams) {
		if lingering != nil {
			s.lingering = lingering.streams.all[s.loop.Index]
		}
		s.loop.Handing, s.loop.Closing = true, true
	})
	<-e.done
	if lingering != nil {
		e.mu.Lock()
		e.lingering = lingering
		e.mu.Unlock()
		e.closeHeld()
	}
	return nil
}

// settleRunning settles the flows of a loop that goes on, a burst in each of its turns, until it has tried all that are left and none could
// be. It returns the error of the holder, if that is busy for too long.
func (e *core) settleRunning(ctx context.Context, s *streams) (failure error) {
	last := e.kernel.Now().Add(settleLast)
	tried := 0 // flows, since one was settled
	for more := true; more && ctx.Err() == nil; {
		s.loop.Ask(func() {
			before := s.keep.unsettled.len()
			failure = nil
			if !s.keep.settle(s.loop.Now, true) {
				failure = s.keep.failure
			}
			left := s.keep.unsettled.len()
			tried += min(before, settleBurst)
			if left < before {
				tried = 0
			}
			more = tried < left
		})
		if failure != nil && e.kernel.Now().Before(last) { // the holder is busy
			more = true
			e.kernel.Sleep(time.Millisecond)
		}
	}
	return failure
}

// handshakeLast bounds how long HandOver waits for flows with TLS that do not relay yet, when it lingers.
const handshakeLast = 300 * time.Millisecond

// finishHandshakes waits a while until the flows relay whose TLS begins or ends here: only those are split. Flows go on meanwhile, and
// new clients wait in the queues of the listeners.
func (e *core) finishHandshakes(ctx context.Context) {
	most := handshakeLast
	if e.handshakeLast > 0 {
		most = e.handshakeLast
	}
	for last := e.kernel.Now().Add(most); e.cfg.Keep.Linger && ctx.Err() == nil && e.kernel.Now().Before(last); e.kernel.Sleep(time.Millisecond) {
		var left atomic.Int64
		e.each(func(s *streams) { left.Add(s.earlyTLS()) })
		if left.Load() == 0 {
			return
		}
	}
}

// newLingering returns the engine that goes on with the TLS of this one's flows; nil: there is none, by its configuration or
// because there is no room for it, and these flows end.
func (e *core) newLingering() *Engine {
	if !e.cfg.Keep.Linger {
		return nil
	}
	c, err := newCore(Config{Loops: len(e.loops), MaxPipes: -1}, e.kernel)
	if err != nil {
		return nil
	}
	if e.step != nil {
		e.step(c)
		return &Engine{c}
	}
	return c.run()
}

// closeHeld closes the descriptors of an engine whose loops have ended, and that the holder has duplicates of.
func (e *core) closeHeld() {
	e.holding.close()
	shut := make(map[*listenSocket]bool)
	closePort := func(s *listenSocket) {
		if !shut[s] {
			shut[s] = true
			e.kernel.Close(s.fd)
		}
	}
	for i, s := range e.streams.all {
		s.slab.Each(func(f *streamFlow) {
			for _, fd := range f.fd {
				if fd >= 0 {
					e.kernel.Close(int(fd))
				}
			}
			for h := range f.half {
				f.half[h].Leave(e.kernel)
			}
		})
		d := e.datagrams.all[i]
		d.slab.Each(func(f *datagramFlow) {
			for _, fd := range [...]int32{f.fd, f.own} {
				if fd >= 0 {
					e.kernel.Close(int(fd))
				}
			}
		})
		for _, p := range slices.Concat(s.ports, s.closingPorts) {
			closePort(p.listenSocket)
		}
		for _, p := range d.ports {
			closePort(p.listenSocket)
		}
		for d.rests.len() > 0 {
			e.kernel.Close(d.rests.pop().fd)
		}
	}
	if e.streams.pipes != nil {
		e.streams.pipes.Leave()
	}
}

// each calls do on each loop, and waits.
func (e *core) each(do func(*streams)) {
	var wg sync.WaitGroup
	for _, s := range e.streams.all {
		wg.Add(1)
		if !s.loop.Post(loop.Request{Do: func() { do(s) }, WG: &wg}) {
			wg.Done()
		}
	}
	wg.Wait()
}
