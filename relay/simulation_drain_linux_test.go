package relay

import (
	"errors"
	"sync"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// simDrain is a drain of the engine: it begins, returns when the last flow has ended, and its deadline ends those that are left. If its
// process is handed over or dies, the next one does not drain.
type simDrain struct {
	begun bool            // in this process
	over  bool            // its deadline
	done  bool            // Drain has returned, since no flow is left
	quiet <-chan struct{} // what Drain waits for
	at    time.Duration   // when it began

	ever   bool // there was one, of any process
	ended  bool // and its deadline was over
	resets bool // clients that waited at a listener may have been reset
}

// processEnds is called when the process that drains has ended.
func (d *simDrain) processEnds() {
	*d = simDrain{ever: d.ever, ended: d.ended, resets: d.resets || d.begun}
}

// beginDrain begins a drain.
func (s *simulation) beginDrain() bool {
	d := &s.drain
	if d.begun {
		return false
	}
	d.begun, d.ever, d.at = true, true, s.world.Elapsed()
	s.call(func() {
		if err := s.core.beginDrain(); err != nil {
			s.fail("drain: %v", err)
		}
		s.waitForDrain()
	})
	return true
}

// waitForDrain is what Drain does before it waits.
func (s *simulation) waitForDrain() {
	s.drain.quiet = s.core.nextQuiet()
	s.drain.done = s.core.drained()
}

// endDrain is the deadline of a drain.
func (s *simulation) endDrain() bool {
	if !s.drainEnds() {
		return false
	}
	s.call(s.endDrainOfCore)
	return true
}

// drainEnds reports whether there is a drain whose deadline can be now, which it notes.
func (s *simulation) drainEnds() bool {
	d := &s.drain
	if !d.begun || d.done || d.over {
		return false
	}
	d.over, d.ended, d.resets = true, true, true
	return true
}

func (s *simulation) endDrainOfCore() { s.core.endDrain(new(sync.WaitGroup)) }

// lookAtDrain goes on with a drain.
func (s *simulation) lookAtDrain() {
	if s.drainWoken() {
		s.call(s.waitForDrain)
	}
}

// drainWoken looks at a drain, and reports whether it was told that a loop has nothing left.
func (s *simulation) drainWoken() bool {
	d := &s.drain
	if d.done && (s.core.flows() > 0 || len(s.core.listeners) > 0) {
		s.fail("Drain has returned, and there are %d flows and %d listeners", s.core.flows(), len(s.core.listeners))
	}
	if !d.begun || d.done || d.over || d.quiet == nil {
		return false
	}
	select {
	case <-d.quiet:
		return true
	default:
		return false
	}
}

// lookAtClients checks that each client is accepted, or waits at a listener. Those that wait when a drain's time is over are reset.
func (s *simulation) lookAtClients() {
	some := false
	for _, f := range s.flows {
		some = some || f.records == 0 && !f.admitted && !f.lost
	}
	if !some {
		return
	}
	for _, f := range s.left() {
		if f.admitted || f.lost {
			continue
		}
		d := &s.drain
		d.resets = d.resets || d.begun && s.world.Elapsed() >= d.at+acceptLast
		if f.lost = true; !d.resets {
			s.fail("flow %d was not accepted, and does not wait at a listener any more\n%s", f.id, s.describe())
		}
	}
}

// listens has an engine listen. If a process has died that had closed its listeners, their holder may have the sockets for a moment, and there may be too few
// descriptors for others: the process gets more.
func (s *simulation) listens(e *Engine) error {
	for _, at := range s.at {
		cfg := s.listenConfig()
		_, err := e.Listen(at, cfg)
		if errors.Is(err, sys.EADDRINUSE) && s.drain.ever {
			s.keeper.closeDropped()
			_, err = e.Listen(at, cfg)
		}
		if errors.Is(err, sys.EMFILE) && s.drain.ever && s.files > 0 {
			s.files, s.process.Limit = 0, 0
			_, err = e.Listen(at, cfg)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
