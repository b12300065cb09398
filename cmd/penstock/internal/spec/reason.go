package spec

// A Reason says why the daemon refused or ended a flow, where the engine's cause alone does not.
// docs/causes.md explains each to operators.
type Reason uint8

// The reasons.
const (
	ReasonNone             Reason = iota
	ReasonDenied                  // the source is in deny, or not in allow
	ReasonFlows                   // the limit of flows of all listeners
	ReasonListenerFlows           // the listener's limit of flows
	ReasonSourceFlows             // a source's limit of flows
	ReasonRate                    // the limit of new flows per second of all listeners
	ReasonListenerRate            // the same for the listener
	ReasonSourceRate              // the same for a source
	ReasonProxyHeader             // an invalid PROXY header
	ReasonProxyTimeout            // no complete PROXY header in time
	ReasonNoRoute                 // no route matches, and the listener has no default
	ReasonNoMember                // no member of the group is up
	ReasonQueueFull               // every member is down or at its cap, and the queue is full
	ReasonQueueTimeout            // it was queued for too long
	ReasonRetries                 // the maximum number of retries was reached
	ReasonRemoved                 // a reload removed its route or member
	ReasonKilled                  // an operator ended it
	ReasonSourceTable             // the table of sources is full
	ReasonLoop                    // the member leads back to the listener
	ReasonSniffTimeout            // no complete ClientHello in time, and no route without one
	ReasonSniffMax                // its PROXY header or ClientHello is longer than sniff.max
	ReasonClientEnded             // the client ended in the middle of its PROXY header or ClientHello
	ReasonConnectFailed           // no attempt to connect succeeded, and no member is left to try
	ReasonStartTLS                // it began neither with TLS nor by asking for it, as starttls of the listener demands
	ReasonClientFlows             // the limit of flows of one client certificate
	ReasonClientRate              // the same of new flows per second
	ReasonProtocolMismatch        // the client and the member have agreed on different protocols of TLS
	ReasonQUICInvalid             // its first datagram is of QUIC, and breaks the rules of it
	ReasonCheckFailed             // of a flow that was ended: the checks of its member fail, or its agent says that it is down
	ReasonUnhealthy               // the same: its registry says that its member is unhealthy
	ReasonEjected                 // the same: its member is ejected
	ReasonSplit                   // the part of its route that it has got refuses
	ReasonBanned                  // its network is banned
	ReasonNoName                  // its group goes by a name, and the client has sent none that is valid
	ReasonNameDenied              // the name is not in allow of its group's destination
	ReasonNameFailed              // the name has no address, or the resolver fails
	ReasonNameTimeout             // the resolver did not answer in time
	ReasonNameLimit               // too many names are being looked up, for this client or for all
	ReasonAddressDenied           // every address of the name is one of networks that are refused
	ReasonKeyUpdate               // of a flow that was ended: a peer has changed its keys of TLS, and the kernel has the connection
	NumReasons
)

var reasonNames = [NumReasons]string{
	ReasonDenied:           "denied",
	ReasonFlows:            "flows",
	ReasonListenerFlows:    "listener-flows",
	ReasonSourceFlows:      "source-flows",
	ReasonRate:             "rate",
	ReasonListenerRate:     "listener-rate",
	ReasonSourceRate:       "source-rate",
	ReasonProxyHeader:      "proxy-header",
	ReasonProxyTimeout:     "proxy-timeout",
	ReasonNoRoute:          "no-route",
	ReasonNoMember:         "no-member",
	ReasonQueueFull:        "queue-full",
	ReasonQueueTimeout:     "queue-timeout",
	ReasonRetries:          "retries",
	ReasonRemoved:          "removed",
	ReasonKilled:           "killed",
	ReasonSourceTable:      "source-table",
	ReasonLoop:             "loop",
	ReasonSniffTimeout:     "sniff-timeout",
	ReasonSniffMax:         "sniff-max",
	ReasonClientEnded:      "client-ended",
	ReasonConnectFailed:    "connect-failed",
	ReasonStartTLS:         "starttls",
	ReasonClientFlows:      "client-flows",
	ReasonClientRate:       "client-rate",
	ReasonProtocolMismatch: "protocol-mismatch",
	ReasonQUICInvalid:      "quic-invalid",
	ReasonCheckFailed:      "check-failed",
	ReasonUnhealthy:        "unhealthy",
	ReasonEjected:          "ejected",
	ReasonSplit:            "split",
	ReasonBanned:           "banned",
	ReasonNoName:           "no-name",
	ReasonNameDenied:       "name-denied",
	ReasonNameFailed:       "name-failed",
	ReasonNameTimeout:      "name-timeout",
	ReasonNameLimit:        "name-limit",
	ReasonAddressDenied:    "address-denied",
	ReasonKeyUpdate:        "key-update",
}

// String returns the reason's name, lower-case with hyphens; empty for ReasonNone.
func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return "unknown"
}
