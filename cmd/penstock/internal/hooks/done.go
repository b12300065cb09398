package hooks

import (
	"errors"
	"fmt"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/hold"
)

// done is the hook for a flow's record. It releases everything that the flow holds.
func (h *Hooks) done(r *relay.Record) {
	p := r.Value.(*State)
	p.lease.Answered(r.FirstByte)
	p.lease.Release()
	p.admission.Release()
	if t := p.hello.Load(); t != nil {
		t.admitted.Release()
	}
	h.TLS.end(p, r)
	n := p.Names()
	e := account.Entry{
		Record: *r, ListenerName: n.Listener, Route: n.Route, Group: n.Group, Member: n.Member,
		Reason: p.reason, Datagrams: p.plan.Spec.Datagrams, StartTLS: p.start.String(),
		Protocol: p.Protocol(),
	}
	switch {
	case e.Err != nil:
		e.Err = h.explainConnect(h.explainAnswer(p, e.Err), &r.Upstream)
	case p.reason == spec.ReasonProtocolMismatch:
		e.Err = fmt.Errorf("TLS: the client has agreed on %s with the listener, and the member on %s with the relay", r.ClientTLS.Protocol, r.UpstreamTLS.Protocol)
	}
	if p.local != nil {
		e.Local = *p.local
	}
	e.Reason = p.reasonOf(r, e.Datagrams)
	h.leave(p, &e)
	e.QUIC = p.QUIC()
	h.forgetIDs(p)
	if h := p.hello.Load(); h != nil {
		e.SNI, e.ALPN, e.JA4 = h.ServerName, strings.Join(h.SupportedProtos, ","), h.ja4
		if id := h.identity; id != nil {
			e.Identity = account.Identity{Subject: id.Subject, Names: id.Names(), Serial: id.Serial}
		}
		if r.Cause == relay.CauseClientTLS && h.ServerName != "" && !h.terminated && p.plan.Certs != nil {
			e.Err = p.plan.Certs.Refused(h.ServerName, e.Err)
		}
	}
	if p.series.Load() != nil && p.member.Load() == nil {
		p.moveTo(h.series(p), Moved(&r.Up), Moved(&r.Down)) // it may have got a route since, but no member
	}
	h.Watchers.ended(&e, p)
	h.Accounting.record(p.series.Load(), &e)
}

// reasonOf returns why a flow has ended, where its cause alone does not say so.
func (p *State) reasonOf(r *relay.Record, datagrams bool) spec.Reason {
	switch r.Cause {
	case relay.CauseUpstreamRefused:
		return spec.ReasonNone // it had an upstream: that none is left is no refusal
	case relay.CauseNoDescriptors, relay.CauseNoPorts:
		return spec.ReasonNone // it was not the member's fault that connecting failed
	case relay.CauseRefused:
		if p.reason == spec.ReasonNone && datagrams {
			return spec.ReasonProxyHeader // the engine has ended it: another client was named; see origin.Config
		}
	case relay.CauseQueueTimeout:
		return spec.ReasonQueueTimeout
	case relay.CauseRemoved:
		return spec.ReasonRemoved
	case relay.CauseClientTLS, relay.CauseUpstreamTLS:
		if errors.Is(r.Err, hold.ErrKeyUpdate) {
			return spec.ReasonKeyUpdate
		}
	case relay.CauseDown:
		return spec.Reason(p.downReason.Load())
	case relay.CauseKilled:
		return spec.ReasonKilled
	}
	return p.reason
}
