package app

import (
	"crypto/tls"
	"net/netip"
	"sync/atomic"

	"github.com/penstock/penstock/clienthello"
	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/admit"
	"github.com/penstock/penstock/cmd/penstock/internal/certs"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/relay"
)

// A flowState is the daemon's state of one flow, from accept to accounting. It belongs to the
// flow's loop; other goroutines may read the atomic fields.
type flowState struct {
	plan      *listenerPlan
	admission admit.Admission
	lease     upstream.Lease
	header    *admit.Header // PROXY header received; nil: none
	local     *relay.Addr   // address that the client connected to; nil: not asked for yet

	hello        atomic.Pointer[clientTLS] // nil: the client has not sent a ClientHello that was read
	target       atomic.Pointer[routeTarget]
	member       atomic.Pointer[upstream.Member]
	series       atomic.Pointer[account.Series] // counts the flow; nil: none yet
	reason       spec.Reason
	start        start       // of a client of a listener with starttls
	connected    bool        // to an upstream; a datagram flow, or one to a built-in upstream, as soon as it has one
	endsTLS      bool        // TLS ends or begins here, so that the flow ends with the worker; see tlsFlows
	endScheduled atomic.Bool // the flow is in the endSchedule
}

// clientTLS is what is known of a client's TLS. It does not change, but for what it is admitted as.
type clientTLS struct {
	clienthello.Hello
	terminated bool
	identity   *certs.Identity // nil: it has no certificate that was verified
	protocol   string          // that ALPN has chosen, if terminated
	proxied    *admit.TLS      // what members are told of it, if terminated
	admitted   admit.Client    // by its certificate
}

// newClientTLS returns what is known of a client after a handshake.
func newClientTLS(hello *clientTLS, state *tls.ConnectionState) *clientTLS {
	t := &clientTLS{terminated: true, identity: certs.IdentityOf(state), protocol: state.NegotiatedProtocol}
	if hello != nil {
		t.Hello = hello.Hello
	}
	t.proxied = &admit.TLS{Version: state.Version, CipherSuite: state.CipherSuite, Resumed: state.DidResume}
	if id := t.identity; id != nil {
		t.proxied.Verified, t.proxied.CommonName, t.proxied.DER = true, id.CommonName, id.DER
	}
	return t
}

// nothingKnown is what is known of a client that has sent no ClientHello.
var nothingKnown clientTLS

// clientTLS returns what is known of the client's TLS. It is never nil.
func (p *flowState) clientTLS() *clientTLS {
	if h := p.hello.Load(); h != nil {
		return h
	}
	return &nothingKnown
}

// terminated reports whether the client's TLS ends here, and its handshake has succeeded.
func (p *flowState) terminated() bool { return p.clientTLS().terminated }

// names identify a flow in its record.
type names struct{ listener, route, group, member string }

func (p *flowState) names() names {
	n := names{listener: p.plan.spec.Name}
	if w := p.target.Load(); w != nil {
		n.route, n.group = w.route.Name, w.route.To.Name
	}
	if m := p.member.Load(); m != nil {
		n.member = m.Name()
	}
	return n
}

func (n names) key() account.Key {
	return account.Key{Listener: n.listener, Route: n.route, Group: n.group, Member: n.member}
}

// stateOf returns the state that the admit hook gave to a flow.
func stateOf(f *relay.Flow) *flowState { return f.Value().(*flowState) }

// planOf returns the current plan of the flow's listener.
func planOf(f *relay.Flow) *listenerPlan { return f.Listener().Value().(*boundListener).plan.Load() }

// client returns the address of a flow's client; zero for a Unix client.
func client(f *relay.Flow) netip.Addr { return f.Client().AddrPort.Addr() }

// moveTo counts the flow in series s, and no longer in the series before: at any time a flow is in
// one series at most. What it has moved so far stays in the series before.
func (p *flowState) moveTo(s *account.Series, up, down account.Volume) {
	switch was := p.series.Load(); was {
	case s:
		return
	case nil:
		s.Begin()
	default:
		was.Move(s, up, down)
	}
	p.series.Store(s)
}

// localOf returns the address that the client connected to. It asks the engine once.
func (p *flowState) localOf(f *relay.Flow) *relay.Addr {
	if p.local == nil {
		at := f.Local()
		p.local = &at
	}
	return p.local
}
