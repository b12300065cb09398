package hooks

import (
	"crypto/tls"
	"net/netip"
	"sync/atomic"

	"github.com/penstock/penstock/clienthello"
	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/admit"
	"github.com/penstock/penstock/cmd/penstock/internal/certs"
	"github.com/penstock/penstock/cmd/penstock/internal/firstbytes"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/quichello"
	"github.com/penstock/penstock/relay"
)

// A State is the daemon's state of one flow, from accept to accounting. It belongs to the
// flow's loop; other goroutines may read the atomic fields.
type State struct {
	plan      *Plan
	admission admit.Admission
	lease     upstream.Lease
	header    *admit.Header // PROXY header received; nil: none
	local     *relay.Addr   // address that the client connected to; nil: not asked for yet

	hello      atomic.Pointer[clientTLS] // nil: the client has not sent a ClientHello that was read
	target     atomic.Pointer[Target]
	member     atomic.Pointer[upstream.Member]
	series     atomic.Pointer[account.Series] // counts the flow; nil: none yet
	reason     spec.Reason
	start      start         // of a client of a listener with starttls
	connected  bool          // to an upstream; a datagram flow, or one to a built-in upstream, as soon as it has one
	endsTLS    bool          // TLS ends or begins here, so that the flow ends with the worker; see TLSFlows
	downReason atomic.Uint32 // a spec.Reason: see EndFor
}

// A start is how a client of a listener with starttls has begun.
type start uint8

const (
	startNone    start = iota
	startOther         // it has asked for what it does not get, of PostgreSQL encryption by GSSAPI, and may ask for TLS
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

// clientTLS is what is known of a client's TLS, and of its first bytes. It does not change, but for what it is admitted as, and while
// its first bytes are read.
type clientTLS struct {
	clienthello.Hello
	first      *firstbytes.Seen     // what else is known of its first bytes; nil: they are not looked at. It belongs to the flow's loop until the flow has a target
	silences   int                  // how many of the plan's silences are over
	quic       *quichello.Assembler // until the ClientHello is complete; it belongs to the flow's loop
	conn       *quicConn            // nil: the client does not speak QUIC, or nobody looks at its connection IDs
	terminated bool
	identity   *certs.Identity // nil: it has no certificate that was verified
	protocol   string          // that ALPN has chosen, if terminated
	ja4        string          // the fingerprint of its ClientHello; empty: nobody has asked for it, or there is none
	proxied    *admit.TLS      // what members are told of it, if terminated
	admitted   admit.Client    // by its certificate
}

// newClientTLS returns what is known of a client after a handshake.
func newClientTLS(hello *clientTLS, state *tls.ConnectionState) *clientTLS {
	t := &clientTLS{terminated: true, identity: certs.IdentityOf(state), protocol: state.NegotiatedProtocol}
	if hello != nil {
		t.Hello, t.first, t.ja4 = hello.Hello, hello.first, hello.ja4
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
func (p *State) clientTLS() *clientTLS {
	if h := p.hello.Load(); h != nil {
		return h
	}
	return &nothingKnown
}

// terminated reports whether the client's TLS ends here, and its handshake has succeeded.
func (p *State) terminated() bool { return p.clientTLS().terminated }

// Names identify a flow in its record.
type Names struct{ Listener, Route, Group, Member string }

// Names returns the names of a flow. Those that it has not got yet are empty.
func (p *State) Names() Names {
	n := Names{Listener: p.plan.Spec.Name}
	if w := p.target.Load(); w != nil {
		n.Route = w.Route.Name
		if w.To != nil {
			n.Group = w.To.Name
		}
	}
	if m := p.member.Load(); m != nil {
		n.Member = m.Name()
	}
	return n
}

func (n Names) key() account.Key {
	return account.Key{Listener: n.Listener, Route: n.Route, Group: n.Group, Member: n.Member}
}

// Listener returns the configuration of the listener under which the flow was accepted.
func (p *State) Listener() *spec.Listener { return p.plan.Spec }

// SharesPeer reports whether other clients share the peer of a flow: a proxy that names the client of each datagram.
func (p *State) SharesPeer(peer relay.Addr) bool {
	l := p.plan.Spec
	return l.Datagrams && !l.ProxyFirst && len(l.ProxyFrom) > 0 && p.plan.Gate.ExpectsProxy(peer.AddrPort.Addr().Unmap())
}

// Target returns what was made of the flow's route; nil: it has none yet.
func (p *State) Target() *Target { return p.target.Load() }

// Member returns the flow's member; nil: it has none.
func (p *State) Member() *upstream.Member { return p.member.Load() }

// Series returns the series that counts the flow; nil: none yet.
func (p *State) Series() *account.Series { return p.series.Load() }

// Hello returns the server name and protocols in the client's ClientHello, and what is known of its certificate; nil: it has sent
// none, or has no certificate.
func (p *State) Hello() (*clienthello.Hello, *certs.Identity) {
	h := p.hello.Load()
	if h == nil {
		return nil, nil
	}
	return &h.Hello, h.identity
}

// JA4 returns the fingerprint of the client's ClientHello; empty: its listener does not record it, or there is none.
func (p *State) JA4() string { return p.clientTLS().ja4 }

// EndFor notes why the flow is to end by CauseDown.
func (p *State) EndFor(reason spec.Reason) { p.downReason.Store(uint32(reason)) }

// EachFlow calls do with every open flow that the daemon knows.
func EachFlow(engine *relay.Engine, do func(*relay.FlowInfo, *State)) {
	engine.Flows(func(flows []relay.FlowInfo) bool {
		for i := range flows {
			if p, ok := flows[i].Value.(*State); ok {
				do(&flows[i], p)
			}
		}
		return true
	})
}

// stateOf returns the state that the admit hook gave to a flow.
func stateOf(f *relay.Flow) *State { return f.Value().(*State) }

// planOf returns the current plan of the flow's listener.
func planOf(f *relay.Flow) *Plan { return f.Listener().Value().(*Socket).Plan.Load() }

// clientAddr returns the address of a flow's client; zero for a Unix client.
func clientAddr(f *relay.Flow) netip.Addr { return f.Client().AddrPort.Addr() }

// moveTo counts the flow in series s, and no longer in the series before: at any time a flow is in
// one series at most. What it has moved so far stays in the series before.
func (p *State) moveTo(s *account.Series, up, down account.Volume) {
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
func (p *State) localOf(f *relay.Flow) *relay.Addr {
	if p.local == nil {
		at := f.Local()
		p.local = &at
	}
	return p.local
}
