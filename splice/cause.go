package splice

import "github.com/penstock/penstock/internal/enum"

// Cause is the reason why a Relay between a and b ended.
type Cause uint8

// The causes.
const (
	CauseEnd        Cause = iota // both sides ended and the last byte was delivered
	CauseIdle                    // no byte moved for Config.Idle
	CauseAReset                  // a's peer reset the connection
	CauseBReset                  // b's peer reset the connection
	CauseAFailed                 // a failed otherwise: a deadline, Close, or another error
	CauseBFailed                 // b failed otherwise
	CauseHalfClosed              // one side had ended, and the other moved no byte for Config.HalfClosed
	CauseCanceled                // the context of RelayContext ended
)

var causeNames = []string{
	CauseEnd:        "end",
	CauseIdle:       "idle",
	CauseAReset:     "a-reset",
	CauseBReset:     "b-reset",
	CauseAFailed:    "a-failed",
	CauseBFailed:    "b-failed",
	CauseHalfClosed: "half-closed",
	CauseCanceled:   "canceled",
}

// String returns the cause's name, such as "a-reset".
func (c Cause) String() string { return enum.Name(causeNames, c) }

// MarshalText returns the cause's name. The error is always nil.
func (c Cause) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText sets c to the cause of that name.
func (c *Cause) UnmarshalText(text []byte) error { return enum.Set(c, "cause", causeNames, text) }
