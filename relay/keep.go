package relay

import (
	"log/slog"
	"time"

	"github.com/penstock/penstock/internal/enum"
)

// Keep configures an engine whose flows outlive its process. What a flow needs to go
// on lies in shared memory, and another process holds that memory and duplicates of
// the descriptors. When the process of the engine has died, at whatever instruction,
// or has ended after [Engine.HandOver], the next process makes an engine with the same
// descriptors and calls [Engine.Restore].
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

// RestoreConfig configures [Engine.Restore].
type RestoreConfig struct {
	// Pair returns the configuration of a pair given to [Engine.Relay] with
	// PairConfig.Name, and decodes what PairConfig.Encode has encoded. If it is nil or
	// returns an error, the pair is lost.
	Pair func(name string, d *Decoder) (PairConfig, error)
	// Listener returns the configuration for flows of a listener that the engine does
	// not have, by the listener's address; false means that these flows are lost, as
	// they are if Listener is nil.
	Listener func(addr string) (ListenConfig, bool)
}

// Restored tells what [Engine.Restore] has found.
type Restored struct {
	Flows   int          // flows that go on
	Ended   int          // flows that were about to end and have ended with their cause
	Holding int          // of Flows, those of which the process had read bytes that it had not delivered
	Bytes   int64        // those bytes
	Lost    Counts[Loss] // flows that could not go on
}

// TotalLost returns the number of lost flows.
func (r *Restored) TotalLost() int { return int(r.Lost.Total()) }

// Loss is the reason why a flow did not outlive its process.
type Loss uint8

// The reasons, with their names.
const (
	LossUnsettled    Loss = iota // "unsettled": it had not been settled yet; counted where it is known
	LossDescriptors              // "descriptors": a socket or pipe of the flow was not held
	LossLedger                   // "ledger": this version cannot read the shared memory, or there is none
	LossInconsistent             // "inconsistent": the shared memory and the kernel's counters do not agree
	LossRepeated                 // "repeated": the process died twice while it handled the flow
	LossListener                 // "listener": its listener is gone, with or without a later one that has another flow of the client; or the pair's name is not known
	LossHook                     // "hook": Hooks.Decode returned an error
	LossResources                // "resources": there was no room for it, such as memory or a place in epoll
	LossTLS                      // "tls": its TLS ended or began in the process, whose keys are gone; counted where it is known
	losses
)

// NumLosses is the number of values of Loss. Later versions may have more.
const NumLosses = int(losses)

var lossNames = []string{"unsettled", "descriptors", "ledger", "inconsistent", "repeated", "listener", "hook", "resources", "tls"}

// String returns the reason's name.
func (l Loss) String() string { return enum.Name(lossNames, l) }

// MarshalText returns the reason's name. The error is always nil.
func (l Loss) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText sets l to the reason of that name.
func (l *Loss) UnmarshalText(text []byte) error { return enum.Set(l, "loss", lossNames, text) }

// LogValue returns the reason's name. It implements [slog.LogValuer].
func (l Loss) LogValue() slog.Value { return slog.StringValue(l.String()) }
