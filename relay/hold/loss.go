package hold

import "github.com/penstock/penstock/internal/enum"

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
	LossHook                     // "hook": relay.Hooks.Decode returned an error
	LossResources                // "resources": there was no room for it, such as memory or a place in epoll
	LossTLS                      // "tls": its TLS ended or began in the process, whose keys are gone; counted where it is known
)

var lossNames = []string{"unsettled", "descriptors", "ledger", "inconsistent", "repeated", "listener", "hook", "resources", "tls"}

// String returns the reason's name.
func (l Loss) String() string { return enum.Name(lossNames, l) }

// MarshalText returns the reason's name. The error is always nil.
func (l Loss) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText sets l to the reason of that name.
func (l *Loss) UnmarshalText(text []byte) error { return enum.Set(l, "loss", lossNames, text) }
