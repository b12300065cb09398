// Package account keeps the books of the daemon's flows: a line for each in the
// access log or in the daemon's own log, and counters. It runs on the event
// loops that carry the flows, and never makes one wait.
package account

import (
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// Entry is one flow's account as the daemon sees it: the engine's record, and
// what the stations know.
type Entry struct {
	relay.Record // a copy

	ListenerName string
	Datagrams    bool
	Route        string
	Group        string
	Member       string // the upstream that served it, or was tried last
	Reason       spec.Reason
	Local        relay.Addr // the address that the client connected or wrote to
	SNI, ALPN    string     // of the ClientHello; ALPN's names with commas between
}

// Retries are the further members that were tried.
func (e *Entry) Retries() int { return max(e.Attempts-1, 0) }

// Failed tells whether an operator should look: the relay could not do its job,
// as opposed to one side, or an operator, having ended the flow.
func (e *Entry) Failed() bool {
	switch e.Cause {
	case relay.CauseNoUpstream, relay.CauseConnectTimeout, relay.CauseNoDescriptors, relay.CauseQueueTimeout, relay.CauseFirstByte,
		relay.CauseClientFailed, relay.CauseUpstreamFailed, relay.CauseUpstreamRefused:
		return true
	}
	return false
}

// Problem reports whether an operator should look, or the client was turned away.
func (e *Entry) Problem() bool { return e.Failed() || e.Cause == relay.CauseRefused }
