package hooks

import (
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/certs"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/starttls"
	"github.com/penstock/penstock/relay"
)

// agreed reports whether a client that should do so has agreed on TLS, or begun with it.
func (p *State) agreed() bool {
	return p.plan.Spec.StartTLS.Protocol == "" || p.start == startRequest || p.start == startDirect
}

// begins are the starts of clients that begin in these ways.
var begins = [...]start{starttls.KindTLS: startDirect, starttls.KindRequest: startRequest, starttls.KindOther: startOther, starttls.KindCancel: startCancel, starttls.KindClear: startClear}

// agree is the part of the hook sniff that agrees with a client on TLS.
func (h *Hooks) agree(f *relay.Flow, p *State, b []byte, last bool) (take int, next relay.SniffNext) {
	kind, n, err := p.plan.starts.Parse(b)
	switch {
	case err == starttls.ErrIncomplete && !last:
		return 0, relay.SniffMore
	case err == starttls.ErrIncomplete:
		p.reason = cutShort(f, p, b, spec.ReasonSniffTimeout)
		return 0, relay.SniffRefuse
	case err != nil, kind == starttls.KindOther && p.start != startNone: // it may ask for that once
		p.reason = spec.ReasonStartTLS
		return 0, relay.SniffRefuse
	}
	p.start = begins[kind]
	taken := p.start.allowed(&p.plan.Spec.StartTLS)
	if reply := p.plan.starts.Reply(kind, taken); reply != nil {
		f.Reply(reply)
	}
	switch {
	case p.start == startDirect:
		return h.hello(f, p, b, last)
	case !p.start.inClear():
		return n, relay.SniffMore
	case !taken:
		p.reason = spec.ReasonStartTLS
		return 0, relay.SniffRefuse
	}
	return 0, h.routed(f, p)
}

// protocolToAsk returns the protocol by which a member is to be asked for TLS: where it begins here if its group says so, and where the
// client's passes through if the client has asked for it, too; nil: it is not asked.
func (p *State) protocolToAsk(to *certs.Client) starttls.Protocol {
	if to != nil {
		return starttls.ByName(to.StartTLS())
	}
	if p.start == startRequest && !p.terminated() {
		return p.plan.starts
	}
	return nil
}

// answered is the hook that is called when a member has answered whether TLS begins.
func (h *Hooks) answered(f *relay.Flow, b []byte, took time.Duration, err error) (more bool) {
	p := stateOf(f)
	if p.plan.Spec.Datagrams {
		return p.shown(f, b)
	}
	h.attempted(p, took, h.explainAnswer(p, err))
	return false
}

// explainAnswer returns an error of a flow, in words if it is that of a member's answer.
func (h *Hooks) explainAnswer(p *State, err error) error {
	if w := p.target.Load(); err != nil && w != nil {
		if asked := p.protocolToAsk(h.tlsOf(w)); asked != nil {
			return asked.Explain(err)
		}
	}
	return err
}
