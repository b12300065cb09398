package relay

import (
	"time"

	"github.com/penstock/penstock/relay/stats"
)

// FlowInfo describes an open flow: the Record that it would have if it ended now, but for Cause,
// which is CauseNone, and what is of interest only while it is open. Duration and Idle are as of the
// last turn of the flow's loop.
//
// Hooks may use what Value points to at the same time, on the flow's loop: it must be safe for
// concurrent use.
type FlowInfo struct {
	Record // [Engine.Flows] leaves Connect, FirstByte, Queued, ClientTLS and UpstreamTLS out
	State  stats.FlowState
	Idle   time.Duration // since a byte moved last

	// Only [Engine.Flow] sets the rest.

	Loop  int  // the loop that has the flow, from 0
	Local Addr // see Flow.Local
	stats.Sockets
}
