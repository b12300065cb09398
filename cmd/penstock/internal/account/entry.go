// Package account counts the daemon's flows, and writes a line for each to the access
// log or to the daemon's own log. It runs on the event loops that carry the flows and
// never blocks them.
package account

import (
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// Entry is the record of an ended flow: the engine's record, and what the daemon adds.
type Entry struct {
	relay.Record

	ListenerName string
	Datagrams    bool
	Route        string
	Group        string
	Member       string // the member that served the flow, or was tried last
	Reason       spec.Reason
	Local        relay.Addr // the address that the client connected or wrote to; see Log.WantsLocal
	SNI, ALPN    string     // of the ClientHello; the names of ALPN are separated by commas
	JA4          string     // the fingerprint of the ClientHello; empty: nobody has asked for it, or there is none
	QUIC         QUIC
	Identity     Identity
	Protocol     string // that its first bytes are of; empty: not looked at, or not known
	StartTLS     string // how a client has begun that agrees on TLS first: request, direct, cancel, clear; empty: it does not
}

// QUIC is what is known of a flow's connection of QUIC; zero: nothing.
type QUIC struct {
	Version string // 1, 2, or another one as 0x and eight hexadecimal digits; empty: not known
	ID      string // the connection ID that the client used last, as far as it was seen, in hexadecimal digits
	Came    string // how a client was recognised that has moved: see docs/observing.md
}

// Identity is who a client is by its certificate, which was verified; zero: it has none.
type Identity struct {
	Subject string
	Names   string // its DNS names, addresses of mail and URIs, separated by commas
	Serial  string // in hexadecimal digits
}

// Retries returns the number of members that were tried after the first.
func (e *Entry) Retries() int { return max(e.Attempts-1, 0) }

// Failed reports whether the flow ended because the relay could not do its job, as
// opposed to one side or an operator having ended it.
func (e *Entry) Failed() bool {
	switch e.Cause {
	case relay.CauseNoUpstream, relay.CauseConnectTimeout, relay.CauseNoDescriptors, relay.CauseNoPorts, relay.CauseQueueTimeout, relay.CauseFirstByte,
		relay.CauseClientFailed, relay.CauseUpstreamFailed, relay.CauseUpstreamRefused, relay.CauseCrashed, relay.CauseOverload, relay.CauseUpstreamTLS, relay.CauseInternal:
		return true
	}
	return false
}

// Problem reports whether an operator should look, or the client was turned away.
func (e *Entry) Problem() bool {
	return e.Failed() || e.Cause == relay.CauseRefused || e.Cause == relay.CauseClientTLS
}
