package spec

// Reason tells why the daemon refused a flow, or ended it, where the engine's
// cause alone does not. docs/causes.md explains each to operators.
type Reason uint8

// The reasons.
const (
	ReasonNone          Reason = iota
	ReasonDenied               // the source is in deny, or not in allow
	ReasonFlows                // the limit on flows of all listeners
	ReasonListenerFlows        // the listener's limit on flows
	ReasonSourceFlows          // a source's limit on flows
	ReasonRate                 // the limit on new flows a second, of all listeners
	ReasonListenerRate         // the same of a listener
	ReasonSourceRate           // the same of a source
	ReasonProxyHeader          // a bad PROXY header
	ReasonProxyTimeout         // no whole PROXY header in time
	ReasonNoRoute              // no route matches, and the listener has no default
	ReasonNoMember             // no member of the group is up
	ReasonQueueFull            // every member is down or at its cap, and the queue is full
	ReasonQueueTimeout         // it waited in the queue for too long
	ReasonRetries              // the retry budget is used up
	ReasonRemoved              // a new configuration has no such route or member
	ReasonKilled               // an operator ended it
	ReasonSourceTable          // the table of sources is full
	ReasonLoop                 // the member leads back to the listener
	ReasonSniffTimeout         // no route for a client that has not said its whole ClientHello in time
	ReasonSniffMax             // its PROXY header or ClientHello is longer than sniff.max
	ReasonClientEnded          // it ended in the middle of its PROXY header or ClientHello
	ReasonConnectFailed        // no attempt to connect succeeded, and there is no further member to try
	NumReasons
)

var reasonNames = [NumReasons]string{"", "denied", "flows", "listener-flows", "source-flows", "rate", "listener-rate", "source-rate",
	"proxy-header", "proxy-timeout", "no-route", "no-member", "queue-full", "queue-timeout", "retries", "removed", "killed", "source-table", "loop",
	"sniff-timeout", "sniff-max", "client-ended", "connect-failed"}

// String is the reason's name, lower-case with hyphens; empty for ReasonNone.
func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return "unknown"
}
