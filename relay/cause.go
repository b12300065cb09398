package relay

import "github.com/penstock/penstock/internal/enum"

// Cause is the reason why a flow ended.
type Cause uint8

// The causes.
const (
	CauseNone              Cause = iota // the flow has not ended
	CauseEnd                            // both sides ended and the last byte was delivered
	CauseRefused                        // a hook refused the client
	CauseNoUpstream                     // there was no upstream left to try; Record.Err is the last failure
	CauseConnectTimeout                 // the last attempt to connect took longer than Timeouts.Connect
	CauseNoDescriptors                  // no descriptor for the upstream's socket became free within a second
	CauseClientGone                     // the client ended or reset its connection before an upstream was connected
	CauseClientReset                    // the client reset the connection
	CauseUpstreamReset                  // the upstream reset the connection
	CauseClientFailed                   // the client's connection failed otherwise; see Record.Err
	CauseUpstreamFailed                 // the upstream's connection failed otherwise; see Record.Err
	CauseQueueTimeout                   // the flow was queued for Timeouts.Queue
	CauseFirstByte                      // the upstream sent nothing for Timeouts.FirstByte
	CauseLife                           // the flow was older than Timeouts.Life
	CauseIdle                           // no byte moved for Timeouts.Idle
	CauseHalfClosed                     // one side had ended, and the other moved no byte for Timeouts.HalfClosed
	CauseDrained                        // the context of Engine.Drain ended first
	CauseClosed                         // the engine was closed, or the listener of a datagram flow that needs its socket
	CauseAnswered                       // a datagram flow received the replies that DatagramConfig.Replies asks for
	CauseEvicted                        // a datagram flow made room for another one; see Config.MaxDatagramFlows
	CauseUpstreamRefused                // an ICMP error said that nothing receives datagrams at the upstream
	CauseRemoved                        // for Engine.Kill: the flow's upstream was removed
	CauseKilled                         // for Engine.Kill
	CauseCrashed                        // the process died or handed over, and the flow could not go on; see Engine.Restore
	CauseOverload                       // the process was short of memory; see Engine.Overload
	CauseClientTLS                      // the client's TLS handshake failed, or what it sent afterwards was not TLS; see Record.Err
	CauseUpstreamTLS                    // the same of the upstream
	CauseClientTruncated                // the client's connection ended without the close_notify of TLS: bytes may be missing
	CauseUpstreamTruncated              // the same of the upstream's
	CauseClientClosed                   // the client's connection ended without close_notify, but nothing was on its way; both sides then ended
	CauseNoPorts                        // no local port was free for the socket towards a datagram flow's upstream
	CauseInternal                       // the flow was in a state that cannot be: an error of this package's, which Record.Err tells
	CauseDown                           // for Engine.Kill: the flow's upstream is down
	CauseFailback                       // for Engine.Kill: the flow's upstream is a backup, and another one is up again
	CauseRebalanced                     // for Engine.Kill: the flow's upstream has more flows than others
	causes
)

var causeNames = [causes]string{"open", "end", "refused", "no-upstream", "connect-timeout", "no-descriptors", "client-gone", "client-reset", "upstream-reset",
	"client-failed", "upstream-failed", "queue-timeout", "first-byte", "life", "idle", "half-closed", "drained", "closed",
	"answered", "evicted", "upstream-refused", "removed", "killed", "crashed", "overload",
	"client-tls", "upstream-tls", "client-truncated", "upstream-truncated", "client-closed", "no-ports", "internal", "down", "failback", "rebalanced"}

// broken reports whether a side's connection broke. The other side is then reset too,
// even if the stream towards it has ended, so that an upstream that still works for a
// client learns that nobody waits.
func (c Cause) broken() bool {
	switch c {
	case CauseClientReset, CauseUpstreamReset, CauseClientFailed, CauseUpstreamFailed:
		return true
	}
	return false
}

// ofTLS reports whether a side has broken TLS, or ended it too early.
func (c Cause) ofTLS() bool { return c >= CauseClientTLS && c <= CauseUpstreamTruncated }

// or returns c if a hook or a caller may end a flow with it, and def otherwise.
func (c Cause) or(def Cause) Cause {
	if c <= CauseEnd || c >= causes {
		return def
	}
	return c
}

// String returns the cause's name, such as "client-reset".
func (c Cause) String() string { return enum.Name(causeNames[:], c) }

// MarshalText returns the cause's name. The error is always nil.
func (c Cause) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText sets c to the cause of that name.
func (c *Cause) UnmarshalText(text []byte) error { return enum.Set(c, "cause", causeNames[:], text) }
