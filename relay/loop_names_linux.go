package relay

import "github.com/penstock/penstock/internal/loop"

// Short names for what of package loop is everywhere.

// ref identifies a flow of a loop for as long as its slot is not used again.
type ref = loop.Ref

// Times are since the engine's start: never is the end of them, and tick the grain of timers.
const (
	never = loop.Never
	tick  = loop.Tick
)
