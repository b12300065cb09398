package app

import "github.com/penstock/penstock/relay"

// path is the way of a byte through the daemon: which station is asked at which
// step. The steps between are the engine's. Hooks run on its event loops, so no
// station may block there.
//
//	arrives     the engine accepts the client, or its first datagram begins a flow
//	admitted    admit.Gate: who may come in, and how many
//	sniffed     admit.ParseProxy, clienthello.Parse: who it really is, and what it asks for
//	routed      route.Table: to a group
//	connected   upstream.Group: to a member, and to the next one after a failure
//	relayed     the engine copies or splices streams, and sends datagrams in runs
//	accounted   account: counters, access log, a line in the log
//	closed      the engine
//
// What a flow knows on its way is a passage.
func (d *daemon) path() relay.Hooks {
	return relay.Hooks{
		Admit:     d.admit,
		Sniff:     d.sniff,
		Upstream:  d.upstream,
		Connected: d.connected,
		Done:      d.done,
	}
}
