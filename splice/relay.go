package splice

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/internal/pump"
)

var (
	errNilConn   = fmt.Errorf("splice: use of a nil connection: %w", os.ErrInvalid)
	errNoConn    = fmt.Errorf("splice: relay a nil connection: %w", os.ErrInvalid)
	errNoContext = fmt.Errorf("splice: relay with a nil context: %w", os.ErrInvalid)
)

// isNil reports whether c is nil, or a nil pointer, or has one inside.
func isNil(c net.Conn) bool {
	v := reflect.ValueOf(pump.Inner(c))
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// Relay is like the function [Relay], with options.
func (cfg *Config) Relay(a, b net.Conn) (Result, error) {
	return cfg.RelayContext(context.Background(), a, b)
}

// RelayContext is like the function [RelayContext], with options.
func (cfg *Config) RelayContext(ctx context.Context, a, b net.Conn) (Result, error) {
	return cfg.RelayLive(ctx, a, b, nil)
}

// RelayLive is like [Config.RelayContext], and counts in live what it moves. It sets
// live to zero first.
func (cfg *Config) RelayLive(ctx context.Context, a, b net.Conn, live *Live) (Result, error) {
	// One direction runs on a goroutine of its own, in which the caller could not recover a
	// panic.
	switch {
	case ctx == nil:
		return Result{Outcome: OutcomeCanceled}, errNoContext
	case ctx.Err() != nil:
		return Result{Outcome: OutcomeCanceled}, canceled(ctx)
	case isNil(a):
		return Result{Outcome: OutcomeAFailed}, errNoConn
	case isNil(b):
		return Result{Outcome: OutcomeBFailed}, errNoConn
	}
	p := &pair{cfg: cfg, conn: [2]net.Conn{a, b}, live: live, quit: make(chan struct{})}
	if p.live == nil {
		p.live = new(Live)
	}
	p.live.reset()
	obey := obeys(pump.Inner(a)) && obeys(pump.Inner(b))
	if live != nil || cfg.Idle > 0 || cfg.HalfClosed > 0 || !obey {
		for d := range p.watcher {
			p.watcher[d].gauge = &p.live.dir[d]
		}
	}
	forget := p.watchContext(ctx)
	if cfg.Idle > 0 {
		p.watch(cfg.Idle, OutcomeIdle, "idle")
	}
	complete := true
	if obey {
		var wg sync.WaitGroup
		wg.Go(func() { p.carry(1) })
		p.carry(0)
		wg.Wait()
	} else {
		complete = p.carryBoth()
	}
	close(p.quit)
	p.watches.Wait()
	forget()
	if p.ended.Load() && complete {
		p.setDeadlines(time.Time{})
	}
	return Result{Up: p.moved[0], Down: p.moved[1], Outcome: p.outcome}, p.err
}

// pair is a running Relay. Direction 0 is from conn[0] to conn[1].
type pair struct {
	cfg     *Config
	conn    [2]net.Conn // as given
	live    *Live
	watcher [2]watcher
	moved   [2]Transfer
	quit    chan struct{} // closed when both directions are over
	watches sync.WaitGroup

	ended atomic.Bool // the outcome is known

	mu      sync.Mutex
	halves  int // directions that have ended well
	outcome Outcome
	err     error
	stopped chan struct{} // if not nil, closed by end
}

// grace is how long a connection may take to notice its deadline.
const grace = 500 * time.Millisecond

// carryBoth moves both directions and returns true when both are over. It returns false if
// one of them does not stop although the pair has ended.
func (p *pair) carryBoth() bool {
	p.mu.Lock()
	p.stopped = make(chan struct{})
	if p.ended.Load() { // by its context
		close(p.stopped)
	}
	stopped := p.stopped
	p.mu.Unlock()
	over := make(chan int, 2)
	for d := range p.conn {
		go func() {
			p.carry(d)
			over <- d
		}()
	}
	var late <-chan time.Time
	running := [2]bool{true, true}
	for running[0] || running[1] {
		select {
		case d := <-over:
			running[d] = false
		case <-stopped:
			stopped = nil
			late = time.After(grace)
		case <-late:
			p.mu.Lock()
			defer p.mu.Unlock()
			for d := range running {
				if running[d] {
					p.watcher[d].left.Store(true)
					p.moved[d] = p.live.dir[d].load()
				}
			}
			return false
		}
	}
	return true
}

// carry moves direction d to its end, and passes the end on.
func (p *pair) carry(d int) {
	src, dst := d, 1-d
	w := &p.watcher[d]
	t, atSrc, err := p.cfg.move(pump.Inner(p.conn[dst]), pump.Inner(p.conn[src]), pump.TakeRead(p.conn[src]), noLimit, w)
	if !p.account(d, t) {
		return
	}
	if err != nil {
		side := dst
		if atSrc {
			side = src
		}
		p.end(outcomeOf(err, side == 0), undelivered(t, err))
		return
	}
	if p.resetSeenBy(1 - d) {
		return
	}
	if err := closeWrite(p.conn[dst]); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		p.end(outcomeOf(err, dst == 0), err)
		return
	}
	p.halfEnded()
}

// account records what direction d has moved, unless Relay has returned without it.
func (p *pair) account(d int, t Transfer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watcher[d].left.Load() {
		return false
	}
	p.moved[d] = t
	p.watcher[d].tell(t)
	return true
}

// halfEnded records that a direction has ended without an error.
func (p *pair) halfEnded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.halves++; p.halves == 1 && p.cfg.HalfClosed > 0 {
		p.watch(p.cfg.HalfClosed, OutcomeHalfClosed, "half-closed")
	}
}

// resetSeenBy reports whether the other direction, which writes to the connection that has
// just ended, has ended the pair. A socket reports a reset only once, to a reader or a
// writer; to a reader after that it looks like the end of the stream. So resetSeenBy waits
// for a write in progress. A write that blocks for longer has not received a reset, because
// a reset also wakes writers.
func (p *pair) resetSeenBy(other int) bool {
	const yields, sleeps = 100, 100 // a turn of the pump takes microseconds
	writes := &p.watcher[other].writes
	n := writes.Load()
	for i := 0; n%2 == 1 && writes.Load() == n && !p.ended.Load() && i < yields+sleeps; i++ {
		if i < yields {
			runtime.Gosched()
		} else {
			time.Sleep(time.Millisecond)
		}
	}
	return p.ended.Load()
}

// end records the first outcome, and stops both directions.
func (p *pair) end(o Outcome, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended.Load() {
		return
	}
	p.outcome, p.err = o, err
	p.ended.Store(true)
	p.setDeadlines(time.Unix(1, 0))
	if p.stopped != nil {
		close(p.stopped)
	}
}

// setDeadlines sets the deadlines of both connections and of the sockets inside them, which
// the SetDeadline method of a wrapper need not do.
func (p *pair) setDeadlines(at time.Time) {
	for _, c := range p.conn {
		c.SetDeadline(at)
		if _, wraps := c.(pump.Wrapper); wraps { // what c is need not be comparable
			pump.Inner(c).SetDeadline(at)
		}
	}
}

// watch ends the pair when no byte has moved for the limit. It compares the counters four
// times per limit, so that the data path does not have to read a clock, and counts how often
// they are unchanged: after the process was stopped, bytes that have arrived meanwhile are
// moved before the next comparison.
func (p *pair) watch(limit time.Duration, o Outcome, what string) {
	const looks = 4
	p.watches.Go(func() {
		ticker := time.NewTicker(max(limit/looks, time.Millisecond))
		defer ticker.Stop()
		seen := p.live.moved()
		for still := 0; still < looks; still++ {
			select {
			case <-p.quit:
				return
			case <-ticker.C:
			}
			if moved := p.live.moved(); moved != seen {
				seen, still = moved, -1
			}
		}
		p.end(o, fmt.Errorf("splice: %s for %v: %w", what, limit, os.ErrDeadlineExceeded))
	})
}

// watchContext ends the pair when ctx ends, until forget is called.
func (p *pair) watchContext(ctx context.Context) (forget func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		p.end(OutcomeCanceled, canceled(ctx))
		close(ended)
	})
	return func() {
		if !stop() {
			<-ended
		}
	}
}

// canceled returns the error for a context that has ended.
func canceled(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != ctx.Err() {
		return fmt.Errorf("splice: %w: %w", ctx.Err(), cause)
	}
	return fmt.Errorf("splice: %w", ctx.Err())
}

// closeWrite calls CloseWrite of c, or of the connection inside it. It returns
// errors.ErrUnsupported if neither has that method.
func closeWrite(c net.Conn) error {
	type closer interface{ CloseWrite() error }
	for _, c := range []net.Conn{c, pump.Inner(c)} {
		if w, ok := c.(closer); ok {
			return w.CloseWrite()
		}
	}
	return errors.ErrUnsupported
}
