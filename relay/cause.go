package relay

import (
	"log/slog"

	"github.com/penstock/penstock/internal/enum"
)

// Cause tells why a flow ended. A is the side of the client (of the first
// connection given to Relay), B that of the upstream.
type Cause uint8

// The causes.
const (
	CauseNone           Cause = iota // it has not ended
	CauseEnd                         // both sides ended and the last byte was delivered
	CauseRefused                     // a hook refused the client
	CauseNoUpstream                  // there was no upstream left to try; Record.Err is the last failure
	CauseConnectTimeout              // the last attempt to connect took too long
	CauseNoDescriptors               // the process or the system had no descriptor left for the upstream, for a second
	CauseAGone                       // A went away before B was connected
	CauseAReset                      // A reset the connection
	CauseBReset                      // B reset the connection
	CauseAFailed                     // A's connection failed otherwise: Record.Err
	CauseBFailed                     // B's connection failed otherwise: Record.Err
	CauseQueued                      // Hooks.Upstream had the flow wait, and Timeouts.Queue passed
	CauseFirstByte                   // B sent nothing for Timeouts.FirstByte
	CauseLife                        // the flow was older than Timeouts.Life
	CauseIdle                        // no byte moved for Timeouts.Idle
	CauseHalfClosed                  // one side had ended, and the other moved no byte for Timeouts.HalfClosed
	CauseDrained                     // Drain's deadline passed
	CauseClosed                      // the engine was closed, or the listener that a datagram flow came by
	CauseAnswered                    // a datagram flow has had the replies that DatagramConfig.Replies asks for
	CauseEvicted                     // a datagram flow made room for another: the cap on flows, descriptors or ports was reached
	CauseBRefused                    // an ICMP error told that nobody takes the datagrams at B
	CauseRemoved                     // Engine.End chose the flow
	CauseKilled                      // Engine.Kill
	causes
)

var causeNames = [causes]string{"open", "end", "refused", "no-upstream", "connect-timeout", "no-descriptors", "a-gone", "a-reset", "b-reset",
	"a-failed", "b-failed", "queued", "first-byte", "life", "idle", "half-closed", "drained", "closed",
	"answered", "evicted", "b-refused", "removed", "killed"}

// broken reports whether a side's connection broke: the other side is then reset
// too, although the stream towards it may have ended well. So an upstream that
// still works for a client learns that nobody waits.
func (c Cause) broken() bool {
	switch c {
	case CauseAReset, CauseBReset, CauseAFailed, CauseBFailed:
		return true
	}
	return false
}

// or returns c if somebody may choose to end a flow with it, and else def.
func (c Cause) or(def Cause) Cause {
	if c <= CauseEnd || c >= causes {
		return def
	}
	return c
}

// String returns the cause's name, which is lower-case with hyphens, such as "a-reset".
func (c Cause) String() string { return enum.Name(causeNames[:], c) }

// MarshalText returns the cause's name. The error is always nil.
func (c Cause) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText sets c to the cause of that name.
func (c *Cause) UnmarshalText(text []byte) error { return enum.Set(c, "cause", causeNames[:], text) }

// LogValue returns the cause's name. It implements [slog.LogValuer].
func (c Cause) LogValue() slog.Value { return slog.StringValue(c.String()) }
