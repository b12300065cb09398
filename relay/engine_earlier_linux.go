package relay

import (
	"slices"

	"github.com/penstock/penstock/internal/ledger"
	"github.com/penstock/penstock/internal/pump"
)

// newPipes returns the engine's budget of pipes, or nil if nothing is spliced.
func (e *core) newPipes() *pump.Pipes {
	switch {
	case e.holding != nil && (e.cfg.MaxPipes >= 0 || len(e.earlier.pipes) > 0):
		return pump.NewKeptPipes(e.kernel, e.cfg.PipeSize, e.cfg.MaxPipes, e.holding, e.earlier.pipes)
	case e.cfg.MaxPipes >= 0:
		return pump.NewPipes(e.kernel, e.cfg.PipeSize, e.cfg.MaxPipes)
	}
	return nil
}

// releaseEarlier closes what is left of an earlier process when its flows are restored, or the engine
// is closed before.
func (e *core) releaseEarlier() {
	h := e.holding
	for _, x := range slices.Concat(e.earlier.flows, e.earlier.ledgers) {
		h.release(x)
	}
	e.earlier = earlierHeld{}
	h.releaseSockets()
	if e.streams.pipes != nil {
		e.streams.pipes.Settle()
	}
}

// startListeners lets the listeners take clients that waited for Restore.
func (e *core) startListeners() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.awaitsRestore = false
	for l := range e.listeners {
		if l.paused && !l.cfg.Load().Paused {
			l.paused = false
			l.start()
		}
	}
}

// attachPorts has the datagram ports of all listeners ready for the flows of an earlier process. They
// do not receive before startListeners.
func (e *core) attachPorts() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for l := range e.listeners {
		if l.paused && l.addr.Network.Datagrams() {
			l.attached = true
			for _, p := range l.ports {
				p.(*datagramPort).prepare()
			}
		}
	}
}

// noteStats continues the counters of a loop that is gone as those of another one.
func (e *core) noteStats(l *ledger.Ledger) {
	if s, err := ledger.StatsOf[LoopStats](l); err == nil {
		s.resetGauges()
		e.earlier.stats.add(s)
	}
}
