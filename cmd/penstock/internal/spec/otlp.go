package spec

import "time"

// ToOTLP is the target of an access log that goes to the collector of OTLP.
const ToOTLP = "otlp"

// OTLP configures what is sent to an OpenTelemetry collector. It is comparable.
type OTLP struct {
	To        string // URL, http or https; /v1/metrics and /v1/logs are added to it; empty: there is no collector
	TokenFile string // a bearer token
	CA        string
	Instance  string        // service.instance.id; empty: the host's name
	Every     time.Duration // from one time that metrics are sent to the next; 0: they are not sent
}
