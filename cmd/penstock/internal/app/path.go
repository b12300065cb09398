package app

import (
	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/relay"
)

// path is the way of a byte through the daemon: which station is asked at which
// step. The steps between are the engine's. Hooks run on its event loops, so no
// station may block there.
//
//	arrives     the engine accepts the client, or its first datagram begins a flow
//	admitted    everybody is
//	routed      to the one group that the command line names
//	connected   upstream.Group: in turn, and the next one after a failure
//	relayed     the engine copies or splices streams, and sends datagrams in runs
//	accounted   account.Journal: a line in the log
//	closed      the engine
func path(group *upstream.Group, journal *account.Journal) relay.Hooks {
	return relay.Hooks{
		Upstream: group.Pick,
		Done:     journal.Enter,
	}
}
