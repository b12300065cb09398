// Package hold is about relay engines whose flows outlive their process. Its API may change after
// version 1.0 of the module; CHANGELOG.md then says how to follow.
//
// An engine is given a [Keep], with a [Holder] in another process: package keeper has one. What its hooks
// know of a flow goes to the next process by an [Encoder] and a [Decoder]. The next process gives its
// engine what was [Held], and calls Engine.Restore, which tells what it has found ([Restored]).
package hold

import (
	"time"

	"github.com/penstock/penstock/relay/stats"
)

// Keep configures an engine whose flows outlive its process. What a flow needs to go
// on lies in shared memory, and another process holds that memory and duplicates of
// the descriptors. When the process of the engine has died, at whatever instruction,
// or has ended after Engine.HandOver, the next process makes an engine with the same
// descriptors and calls Engine.Restore.
//
// A listener is held from the beginning, a flow once it is settled: when it has
// relayed for some time. Flows that are not settled end with their process, and their
// TCP connections are reset.
type Keep struct {
	// After is how long a flow relays at most until it is settled; 0 means a second, and a
	// negative value means at once. Flows that began at about the same time are settled
	// together, which is up to an eighth of After earlier.
	After time.Duration
	// Holder holds descriptors for the engine. It is required.
	Holder Holder
	// Linger has flows outlive Engine.HandOver whose TLS ends or begins at the engine. Their keys stay in the process that hands
	// over, which goes on to encrypt and decrypt, and nothing else; the next process has the flow. It is read by Engine.HandOver, and may be
	// changed before that.
	Linger bool
	// Held is what was held for an engine that is gone; nil for the first one. The
	// engine owns the descriptors when New has returned without an error.
	Held []Held
}

// Holder holds duplicates of descriptors in another process. The engine calls its
// methods on its event loops, several at a time, so they must not block for long.
type Holder interface {
	// Hold asks for duplicates of fds to be held under a key that is not in use, from the next
	// Flush on. The caller may close fds after that Flush.
	Hold(key [2]uint64, label string, fds []int) error
	// Drop ends what Hold has begun: the duplicates are closed soon. A key that is not
	// in use has no effect.
	Drop(key [2]uint64)
	// Flush returns nil when everything given to Hold is held. After an error, nothing
	// that was given to Hold since the last Flush that returned nil is held. HandOver
	// calls it once more with nothing to hold: then an error says that the holder has
	// gone, and the engine keeps its flows.
	Flush() error
}

// Held is what was held under one key.
type Held struct {
	// Key is the key given to Holder.Hold. The engine uses keys whose highest byte, of
	// the first word, is between 1 and 127; others are for the engine's owner.
	Key   [2]uint64
	Label string
	FDs   []int
}

// Restored tells what Engine.Restore of package relay has found.
type Restored struct {
	Flows   int                // flows that go on
	Ended   int                // flows that were about to end and have ended with their cause
	Holding int                // of Flows, those of which the process had read bytes that it had not delivered
	Bytes   int64              // those bytes
	Lost    stats.Counts[Loss] // flows that could not go on
}

// TotalLost returns the number of lost flows.
func (r *Restored) TotalLost() int { return int(r.Lost.Total()) }

// Add adds what another Restored tells.
func (r *Restored) Add(o *Restored) {
	r.Flows += o.Flows
	r.Ended += o.Ended
	r.Holding += o.Holding
	r.Bytes += o.Bytes
	r.Lost.AddAll(&o.Lost)
}
