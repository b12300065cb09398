package splice

import "github.com/penstock/penstock/internal/enum"

// Outcome says what ended a Relay between a and b, and at which of them.
type Outcome uint8

// The outcomes.
const (
	OutcomeEnd        Outcome = iota // both sides ended and the last byte was delivered
	OutcomeIdle                      // no byte moved for Config.Idle
	OutcomeAReset                    // a's peer reset the connection
	OutcomeBReset                    // b's peer reset the connection
	OutcomeAFailed                   // a failed otherwise: a deadline, Close, or another error
	OutcomeBFailed                   // b failed otherwise
	OutcomeHalfClosed                // one side had ended, and the other moved no byte for Config.HalfClosed
	OutcomeCanceled                  // the context of RelayContext ended
)

var outcomeNames = []string{
	OutcomeEnd:        "end",
	OutcomeIdle:       "idle",
	OutcomeAReset:     "a-reset",
	OutcomeBReset:     "b-reset",
	OutcomeAFailed:    "a-failed",
	OutcomeBFailed:    "b-failed",
	OutcomeHalfClosed: "half-closed",
	OutcomeCanceled:   "canceled",
}

// String returns the outcome's name, such as "a-reset".
func (o Outcome) String() string { return enum.Name(outcomeNames, o) }

// MarshalText returns the outcome's name. The error is always nil.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText sets o to the outcome of that name.
func (o *Outcome) UnmarshalText(text []byte) error { return enum.Set(o, "outcome", outcomeNames, text) }
