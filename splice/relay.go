package splice

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/internal/pump"
)

// Relay is as the function [Relay], with options.
func (cfg *Config) Relay(a, b net.Conn) (Result, error) {
	p := &pair{conn: [2]net.Conn{a, b}, live: cfg.Live}
	if p.live == nil {
		p.live = new(Live)
	}
	p.live.reset()
	stop := p.watchIdle(cfg.Idle)
	watched := cfg.Live != nil || cfg.Idle > 0
	var wg sync.WaitGroup
	wg.Go(func() { p.carry(cfg, 1, watched) })
	p.carry(cfg, 0, watched)
	wg.Wait()
	stop()
	if p.ended.Load() {
		for _, c := range p.conn {
			c.SetDeadline(time.Time{})
		}
	}
	return Result{AB: p.moved[0], BA: p.moved[1], Cause: p.cause}, p.err
}

// pair is a Relay under way. Direction 0 goes from conn[0] to conn[1].
type pair struct {
	conn  [2]net.Conn // as given
	live  *Live
	moved [2]Transfer

	// turning says that a direction is within system calls, or that one has
	// failed and end is about to hear of it.
	turning [2]atomic.Bool
	ended   atomic.Bool // the cause is known

	mu    sync.Mutex
	cause Cause
	err   error
}

// carry moves direction d to its end, and passes that on.
func (p *pair) carry(cfg *Config, d int, watched bool) {
	src, dst := d, 1-d
	g := &p.live.dir[d]
	if !watched {
		g = nil
	}
	t, atSrc, err := cfg.move(pump.Inner(p.conn[dst]), pump.Inner(p.conn[src]), pump.TakeRead(p.conn[src]), g, &p.turning[d])
	p.moved[d] = t
	if cfg.Live != nil {
		p.live.dir[d].store(t)
	}
	if err != nil {
		side := dst
		if atSrc {
			side = src
		}
		p.end(causeOf(err, side == 0), undelivered(t, err))
		p.turning[d].Store(false)
		return
	}
	if p.resetSeenBy(1 - d) {
		return
	}
	switch err := closeWrite(p.conn[dst]); {
	case errors.Is(err, errors.ErrUnsupported):
		p.end(CauseEnd, nil)
	case err != nil:
		p.end(causeOf(err, dst == 0), err)
	}
}

// resetSeenBy tells whether the other direction, which writes to the connection
// that has just ended, has ended the pair. A socket tells of a reset once, to
// whoever asks first; to a reader after that it looks like the end of the stream.
// So a turn that is under way there is waited for: it does not block.
func (p *pair) resetSeenBy(other int) bool {
	for p.turning[other].Load() && !p.ended.Load() {
		runtime.Gosched()
	}
	return p.ended.Load()
}

// end notes the first cause, and stops both directions.
func (p *pair) end(c Cause, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended.Load() {
		return
	}
	p.cause, p.err = c, err
	p.ended.Store(true)
	for _, c := range p.conn {
		c.SetDeadline(time.Unix(1, 0))
	}
}

// watchIdle ends the pair when no byte has moved for idle. It looks four times
// as often, so that the data path need not read a clock.
func (p *pair) watchIdle(idle time.Duration) (stop func()) {
	if idle <= 0 {
		return func() {}
	}
	const looks = 4
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(max(idle/looks, time.Millisecond))
		defer ticker.Stop()
		var seen int64
		still := 0
		for {
			select {
			case <-quit:
				return
			case <-ticker.C:
			}
			moved := p.live.dir[0].read.Load() + p.live.dir[0].written.Load() + p.live.dir[1].read.Load() + p.live.dir[1].written.Load()
			if still++; moved != seen {
				seen, still = moved, 0
			}
			if still >= looks {
				p.end(CauseIdle, fmt.Errorf("splice: idle for %v: %w", idle, os.ErrDeadlineExceeded))
				return
			}
		}
	})
	return func() {
		close(quit)
		wg.Wait()
	}
}

// closeWrite passes the end of a stream on, by the wrapper's own way if it has
// one; errors.ErrUnsupported where there is none.
func closeWrite(c net.Conn) error {
	type closer interface{ CloseWrite() error }
	for _, c := range []net.Conn{c, pump.Inner(c)} {
		if w, ok := c.(closer); ok {
			return w.CloseWrite()
		}
	}
	return errors.ErrUnsupported
}
