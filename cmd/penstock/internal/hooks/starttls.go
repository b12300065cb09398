package hooks

import (
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/certs"
	"github.com/penstock/penstock/cmd/penstock/internal/postgres"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// A start is how a client of a listener with starttls has begun.
type start uint8

const (
	startNone    start = iota
	startGSS           // it has asked for encryption by GSSAPI, which it does not get, and may ask for TLS
	startRequest       // it has asked for TLS, and was told yes
	startDirect        // with TLS
	startCancel        // with a request to cancel, in the clear
	startClear         // with a session in the clear
)

// String returns the name of a start in the access log.
func (s start) String() string {
	return [...]string{startRequest: "request", startDirect: "direct", startCancel: "cancel", startClear: "clear"}[s]
}

// inClear reports whether the client chose to go without TLS.
func (s start) inClear() bool { return s == startCancel || s == startClear }

// allowed reports whether a listener takes clients that begin like this.
func (s start) allowed(on *spec.StartTLS) bool {
	switch s {
	case startCancel:
		return on.Clear != "refuse"
	case startClear:
		return on.Clear == "allow"
	}
	return true
}

// agreed reports whether a client that should do so has agreed on TLS, or begun with it.
func (p *State) agreed() bool {
	return p.plan.Spec.StartTLS.Protocol == "" || p.start == startRequest || p.start == startDirect
}

// agree is the part of the hook sniff that agrees with a client on TLS.
func (h *Hooks) agree(f *relay.Flow, p *State, b []byte, last bool) (take int, next relay.SniffNext) {
	kind, n, err := postgres.Parse(b)
	switch {
	case err == postgres.ErrIncomplete && !last:
		return 0, relay.SniffMore
	case err == postgres.ErrIncomplete:
		p.reason = cutShort(f, p, b, spec.ReasonSniffTimeout)
		return 0, relay.SniffRefuse
	case kind == postgres.KindTLS:
		p.start = startDirect
		return h.hello(f, p, b, last)
	case kind == postgres.KindRequest:
		p.start = startRequest
		f.Reply(postgres.Yes)
		return n, relay.SniffMore
	case kind == postgres.KindGSS && p.start == startNone:
		p.start = startGSS
		f.Reply(postgres.No)
		return n, relay.SniffMore
	case kind == postgres.KindCancel:
		p.start = startCancel // which nobody answers
	case kind == postgres.KindClear:
		if p.start = startClear; !p.start.allowed(&p.plan.Spec.StartTLS) {
			f.Reply(postgres.Refusal)
		}
	}
	if !p.start.inClear() || !p.start.allowed(&p.plan.Spec.StartTLS) {
		p.reason = spec.ReasonStartTLS
		return 0, relay.SniffRefuse
	}
	return 0, h.routed(f, p)
}

// asks reports whether a member is to be asked for TLS: where it begins here if its group says so, and where the
// client's passes through if the client has asked for it, too.
func (p *State) asks(to *certs.Client) bool {
	if to != nil {
		return to.StartTLS() != ""
	}
	return p.start == startRequest && !p.terminated()
}

// answered is the hook that is called when a member has answered whether TLS begins.
func (h *Hooks) answered(f *relay.Flow, took time.Duration, err error) {
	h.attempted(stateOf(f), took, postgres.Explain(err))
}
