package hooks

import (
	"crypto/tls"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/clienthello"
	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/admit"
	"github.com/penstock/penstock/cmd/penstock/internal/certs"
	"github.com/penstock/penstock/cmd/penstock/internal/cycle"
	"github.com/penstock/penstock/cmd/penstock/internal/destination"
	"github.com/penstock/penstock/cmd/penstock/internal/ja4"
	"github.com/penstock/penstock/cmd/penstock/internal/route"
	"github.com/penstock/penstock/cmd/penstock/internal/sandboxneeds"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/starttls"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/relay"
)

// Hooks is what the functions that the engine calls need of the daemon. It is made once, before the first listener.
type Hooks struct {
	Accounting *Accounting
	Clients    *certs.Clients     // TLS towards members
	Groups     *upstream.Set      // those of flows of earlier workers, also if the configuration has them no longer
	TLS        *TLSFlows          // counts the flows that end with this worker
	Names      *destination.Cache // of groups with a destination
	QUICCounts QUICCounts
	Sandbox    *sandboxneeds.Current // by which errors of connecting are explained; nil: none
	// Cycles are the members that lead back to their listener; nil: there are none.
	Cycles atomic.Pointer[map[cycle.Hop][]string]
	// OwnListener returns the name of the listener that accepts connections to an address; empty: none does.
	OwnListener func(relay.Addr) string
	// End ends a flow, once the hook that calls it has returned; nil: nothing does.
	End func(id uint64, c relay.Cause) bool

	Watchers Watchers

	decoded atomic.Int64
	quicIDs atomic.Int64 // that flows use
}

// Reentered returns how many flows of earlier workers were decoded.
func (h *Hooks) Reentered() int64 { return h.decoded.Load() }

// Funcs returns the daemon's part of the path of a flow: which package is asked at which step. The
// steps between are the engine's. Hooks run on its event loops, so nothing here may block.
//
//	accepted    the engine accepts the client, or its first datagram begins a flow
//	admitted    admit.Controller: access lists and limits
//	told apart  quicid: the connections of QUIC that come from one address and port, of which each is a flow
//	sniffed     admit.ParseProxy, clienthello.Parse, quichello: the original client, and the server name
//	agreed      starttls: whether TLS begins, on both sides
//	secured     certs.Server: the client's TLS is terminated, and the names of its certificate
//	routed      route.Table: to a group
//	connected   upstream.Group: to a member, and to another one after a failure; certs.Client: over TLS
//	relayed     the engine copies or splices streams, and sends datagrams in runs
//	recorded    account: counters, access log, a line in the log
//	closed      the engine
//
// The daemon's state of a flow is a State.
func (h *Hooks) Funcs() relay.Hooks {
	return relay.Hooks{
		Admit:     h.admit,
		Sniff:     h.sniff,
		Answered:  h.answered,
		Choose:    h.choose,
		Secured:   h.secured,
		Upstream:  h.upstream,
		Connected: h.connected,
		Encode:    h.encode,
		Decode:    h.decode,
		Done:      h.done,
	}
}

// admit is the hook for a new client.
func (h *Hooks) admit(f *relay.Flow) relay.Cause {
	s := planOf(f)
	p := &State{plan: s}
	header, _ := f.Value().(*admit.Header) // of a datagram
	f.SetValue(p)
	if h.Accounting.wantsLocal() {
		p.localOf(f)
	}
	peer := f.Peer().AddrPort.Addr()
	if p.admission, p.reason = s.Gate.Admit(peer, time.Now()); p.reason != spec.ReasonNone {
		return relay.CauseRefused
	}
	if s.Spec.Datagrams {
		if p.reason = h.identifyDatagrams(f, p, header); p.reason != spec.ReasonNone {
			return relay.CauseRefused
		}
	}
	if p.admission.ExpectsProxy() && !s.Spec.Datagrams || s.needsFirst(clientAddr(f)) {
		p.moveTo(s.sniffSeries, account.Volume{}, account.Volume{})
		patience := s.Spec.Sniff.Timeout
		if !p.admission.ExpectsProxy() {
			patience = p.firstWait()
		}
		f.StartSniff(s.Spec.Sniff.Max, patience)
		return relay.CauseNone
	}
	if !h.route(f, p) {
		return relay.CauseRefused
	}
	return relay.CauseNone
}

// sniff is the hook for the first bytes of a client: a PROXY header, if one is due, and then a
// ClientHello, or what else the route depends on. A client that sends nothing in time, or no TLS, has no
// name. Of datagrams it is the ClientHello of QUIC.
func (h *Hooks) sniff(f *relay.Flow, b []byte, last bool) (take int, next relay.SniffNext) {
	p := stateOf(f)
	if p.plan.Spec.Datagrams {
		return h.quic(f, p, b, last)
	}
	if p.admission.ExpectsProxy() && p.header == nil {
		header, n, more, err := admit.ParseProxy(b)
		switch {
		case more && !last:
			return 0, relay.SniffMore
		case more:
			p.reason = cutShort(f, p, b, spec.ReasonProxyTimeout)
			return 0, relay.SniffRefuse
		case err != nil:
			p.reason = spec.ReasonProxyHeader
			return 0, relay.SniffRefuse
		}
		p.header = &header
		if header.Client.IsValid() {
			f.SetClient(relay.Addr{Network: f.Peer().Network, AddrPort: header.Client})
			p.local = &relay.Addr{Network: f.Peer().Network, AddrPort: header.To}
		}
		if p.reason = p.plan.Gate.Identify(&p.admission, clientAddr(f), time.Now()); p.reason != spec.ReasonNone {
			return n, relay.SniffRefuse
		}
		if p.plan.needsFirst(clientAddr(f)) && (n < len(b) || !last || !p.agreed()) {
			if p.plan.Spec.Sniff.First {
				f.StartSniff(p.plan.Spec.Sniff.Max, p.firstWait())
			}
			return n, relay.SniffMore
		}
		return n, h.routed(f, p)
	}
	if !p.agreed() {
		return h.agree(f, p, b, last)
	}
	return h.hello(f, p, b, last)
}

// hello is the part of the hook sniff that reads a ClientHello, and what else the route depends on.
func (h *Hooks) hello(f *relay.Flow, p *State, b []byte, last bool) (take int, next relay.SniffNext) {
	hello, err := clienthello.Parse(b)
	if err == nil {
		p.hello.Store(&clientTLS{Hello: hello, first: p.clientTLS().first, silences: p.clientTLS().silences, ja4: p.fingerprint(b)})
	}
	if h.waits(f, p, b, last, err == clienthello.ErrIncomplete) {
		return 0, relay.SniffMore
	}
	if err != clienthello.ErrIncomplete && p.plan.Certs != nil && h.terminates(f, p) {
		if inHTTP(b) {
			f.Reply(useTLS)
		}
		if h.terminate(f, p, p.plan.Certs.Config(hello.ServerName)) != nil { // what is not TLS gets an alert
			return 0, relay.SniffRefuse
		}
		return 0, relay.SniffDone
	}
	if err != nil && p.start != startNone { // what was agreed on is TLS
		p.reason = spec.ReasonStartTLS
		if err == clienthello.ErrIncomplete {
			p.reason = cutShort(f, p, b, spec.ReasonSniffTimeout)
		}
		return 0, relay.SniffRefuse
	}
	next = h.routed(f, p)
	if next == relay.SniffRefuse && p.plan.Certs != nil && inHTTP(b) {
		f.Reply(useTLS)
	}
	if last && err == clienthello.ErrIncomplete && p.reason == spec.ReasonNoRoute {
		p.reason = cutShort(f, p, b, spec.ReasonSniffTimeout)
	}
	return 0, next
}

// fingerprint returns the fingerprint of the ClientHello that the first bytes of a client are.
func (p *State) fingerprint(b []byte) string {
	if known := p.JA4(); known != "" || !p.plan.Spec.Sniff.JA4 {
		return known
	}
	return ja4.TLS(b)
}

// terminates reports whether the TLS of a client ends at its listener, where some may pass through, and others
// have no route.
func (h *Hooks) terminates(f *relay.Flow, p *State) bool {
	m := h.describeClient(f, p)
	m.Protocol, _ = p.plan.Spec.TLS.Agree(m.ALPN)
	r, ok := p.plan.routes.Find(m)
	return ok && !r.PassTLS
}

// terminate makes the engine the server of the client's TLS.
func (h *Hooks) terminate(f *relay.Flow, p *State, cfg *tls.Config) error {
	err := f.Terminate(cfg)
	if err == nil {
		h.TLS.begin(p)
	}
	return err
}

// secured is the hook that is called when a TLS handshake has ended. A client is routed now that the names of
// its certificate are known.
func (h *Hooks) secured(f *relay.Flow, side relay.Side, state *tls.ConnectionState, took time.Duration, err error) relay.Cause {
	p := stateOf(f)
	switch {
	case side == relay.SideUpstream:
		h.attempted(p, took, certs.Explain(err))
		// HTTPS in and out, without a word of ALPN, joined clients that had agreed on h2 with members that had agreed on http/1.1, and
		// half of them broke without a word (92f3711).
		if ours := p.clientTLS().protocol; err == nil && ours != "" && state.NegotiatedProtocol != "" && state.NegotiatedProtocol != ours {
			p.reason = spec.ReasonProtocolMismatch
			return relay.CauseRefused
		}
		return relay.CauseNone
	case err != nil:
		return relay.CauseNone
	}
	t := newClientTLS(p.hello.Load(), state)
	p.hello.Store(t)
	if t.identity != nil {
		if t.admitted, p.reason = p.plan.Gate.AdmitClient(t.identity.Who(), time.Now()); p.reason != spec.ReasonNone {
			return relay.CauseRefused
		}
	}
	if !h.route(f, p) {
		return relay.CauseRefused
	}
	return relay.CauseNone
}

// cutShort returns the reason for an incomplete PROXY header or ClientHello.
func cutShort(f *relay.Flow, p *State, b []byte, timeout spec.Reason) spec.Reason {
	switch {
	case f.ClientEnded():
		return spec.ReasonClientEnded
	case len(b) >= p.plan.Spec.Sniff.Max:
		return spec.ReasonSniffMax
	}
	return timeout
}

func (h *Hooks) routed(f *relay.Flow, p *State) relay.SniffNext {
	if !h.route(f, p) {
		return relay.SniffRefuse
	}
	return relay.SniffDone
}

// route finds a flow's route in the running configuration, and applies its settings to the flow.
func (h *Hooks) route(f *relay.Flow, p *State) bool {
	s := planOf(f)
	r, ok := s.routes.Take(h.describeClient(f, p))
	if !ok || !s.mayTake(p, r) {
		p.reason = spec.ReasonNoRoute
		return false
	}
	return h.lead(f, p, s.choices[r].target(f, p))
}

// lead gives a flow its target, and applies the settings of its route to it.
func (h *Hooks) lead(f *relay.Flow, p *State, w *Target) bool {
	if w.To == nil {
		p.target.CompareAndSwap(nil, w)
		p.reason = spec.ReasonSplit
		return false
	}
	was := p.target.Swap(w)
	again := was != nil
	if again && was.named != nil {
		h.Names.Leave(&was.named.wait)
	}
	if w.followed != nil && !h.identify(f, p, w) {
		return false
	}
	f.SetTimeouts(w.TimeoutsOf(f.ID()))
	f.SetDial(w.dial)
	if w.Route.Bandwidth > 0 || again {
		f.SetBandwidth(w.Route.Bandwidth)
	}
	return true
}

// mayTake reports whether a route may take a client: what is to be encrypted never goes in the clear, unless the
// configuration says so.
func (s *Plan) mayTake(p *State, r *spec.Route) bool {
	if p.start.inClear() && s.Spec.StartTLS.Protocol != "" {
		return p.start.allowed(&s.Spec.StartTLS)
	}
	return s.Certs == nil || p.terminated() || r.PassTLS
}

// describeClient returns what is known of a client.
func (h *Hooks) describeClient(f *relay.Flow, p *State) route.Meta {
	m := route.Meta{Client: clientAddr(f), Secured: p.start.inClear()} // no route that passes TLS, and no client's names
	if h := p.hello.Load(); h != nil {
		m.SNI, m.ALPN, m.Protocol, m.Secured, m.First = h.ServerName, h.SupportedProtos, h.protocol, h.terminated, h.first
		if h.identity != nil {
			m.Names = h.identity.Matches
		}
	}
	return m
}

// upstream is the hook that chooses where to connect. If a reload has removed the group of a flow
// that is not connected yet, the flow goes where the new configuration says.
func (h *Hooks) upstream(f *relay.Flow, attempt int) *relay.Addr {
	p := stateOf(f)
	if p.target.Load().outdated() && attempt == 0 {
		p.lease.Release()
		if !h.route(f, p) {
			return nil
		}
	}
	if n := p.named(); n != nil {
		return h.follow(f, p, n)
	}
	m, reason := h.pick(f, p)
	if w := p.target.Load(); m == nil && (w.group.Removed() || w.outdated()) {
		p.lease.Release()
		if !h.route(f, p) {
			return nil
		}
		if n := p.named(); n != nil {
			return h.follow(f, p, n)
		}
		m, reason = h.pick(f, p)
	}
	// A flow ended at the first member that leads back, though others of its group did not (52f7a4b).
	var looping *upstream.Member
	for skips := 0; m != nil && h.leadsBack(p, m.Addr()); skips++ {
		looping = m
		if skips == maxSkips {
			m, reason = nil, spec.ReasonLoop
			break
		}
		p.lease.Skip()
		m, reason = h.pick(f, p)
	}
	if looping != nil && m == nil && reason != spec.ReasonNone && attempt == 0 { // after an attempt, the reason is what failed, not the loop
		p.member.Store(looping)
		reason = spec.ReasonLoop
	}
	if m == nil && attempt > 0 && p.plan.Spec.Datagrams {
		m = p.lease.Back() // its socket is still there
	}
	up, down := f.Transfers() // with the members before, which a datagram flow may have had
	switch {
	case m != nil:
		p.member.Store(m)
		p.moveTo(h.series(p), Moved(&up), Moved(&down))
		p.connected = p.plan.Spec.Datagrams || m.Addr().Network.BuiltIn() // connected tells of no more than an answer
		if w := p.target.Load(); w.proxy != nil && p.plan.Spec.Datagrams {
			f.Preface(proxyHeader(f, p, w.proxy))
		}
		return m.AddrAt(portOffset(f, p))
	case reason == spec.ReasonNone:
		p.moveTo(h.series(p), Moved(&up), Moved(&down))
		f.Queue() // nil ends a datagram flow, which cannot be queued
		return nil
	}
	p.reason = reason
	return nil
}

// maxSkips bounds how many members that lead back to the listener a flow passes over.
const maxSkips = 16

// portOffset returns which port of the listener's range a client came to.
func portOffset(f *relay.Flow, p *State) int {
	if p.plan.Spec.Listen.LastPort == 0 {
		return 0
	}
	return f.Listener().Value().(*Socket).Port - int(p.plan.Spec.Listen.Port)
}

// pick chooses a member of the flow's group. With no member and no reason the flow is queued.
func (h *Hooks) pick(f *relay.Flow, p *State) (*upstream.Member, spec.Reason) {
	w := p.target.Load()
	c := upstream.Client{Addr: f.Client().AddrPort}
	if w.byLocal {
		c.Local = p.localOf(f).AddrPort
	}
	c.Key = p.key(w.hashed)
	m, reason := p.returned(w, c)
	if m == nil && reason == spec.ReasonNone {
		m, reason = w.group.Pick(&p.lease, c)
	}
	switch {
	case m != nil || reason != spec.ReasonNone:
		return m, reason
	case !p.plan.Spec.Datagrams:
	case w.group.Open(): // datagram flows are not queued
		return nil, spec.ReasonQueueFull
	default:
		return nil, spec.ReasonNoMember
	}
	return w.group.Wait(&p.lease, f.Ref())
}

// connected is the hook that is called when an attempt to connect has ended.
func (h *Hooks) connected(f *relay.Flow, to *relay.Addr, took time.Duration, err error) {
	p, w := stateOf(f), stateOf(f).target.Load()
	p.noteRoute(f, to, err)
	err = h.explainConnect(err, to)
	if err == nil && w.proxy != nil && !p.plan.Spec.Datagrams {
		f.Preface(proxyHeader(f, p, w.proxy))
	}
	tls := h.tlsOf(w)
	var asked starttls.Protocol // nil: the member is not asked
	if err == nil {
		asked = p.protocolToAsk(tls)
	}
	if asked != nil {
		send, expect := asked.Request()
		f.Preface(send)
		f.Expect(expect)
	}
	if err == nil && tls != nil {
		h.TLS.begin(p)
		f.Originate(originate(tls, p.clientTLS(), p.host(), to))
	} else if asked == nil {
		h.attempted(p, took, err) // if not, answered or secured says how the attempt ends
	}
	h.Watchers.connected(f, p, took, tls != nil)
}

// tlsOf returns the TLS to the members of a target's group; nil: there is none, or no group. A reload may have changed it since the
// flow was routed, and the members with it.
func (h *Hooks) tlsOf(w *Target) *certs.Client {
	if w.To == nil {
		return nil
	}
	now, then := w.group.Config().TLS, w.To.TLS
	if now == nil || then != nil && *now == *then {
		return w.tls
	}
	return h.Clients.Of(now)
}

// originate returns the settings of a handshake with a member. If there are none, those that it returns fail with
// the reason, before anything of the client is sent.
func originate(c *certs.Client, client *clientTLS, host string, to *relay.Addr) *tls.Config {
	cfg, err := c.Config(client.ServerName, client.protocol, host, to)
	if err != nil {
		return &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(tls.ConnectionState) error { return err }}
	}
	return cfg
}

// attempted notes how an attempt to connect has ended.
func (h *Hooks) attempted(p *State, took time.Duration, err error) {
	p.lease.Connected(err, took)
	if n := p.named(); n != nil && err != nil {
		n.took += took
	}
	p.series.Load().Attempt(err)
	if !p.plan.Spec.Datagrams { // of these upstream says so: one that ignores an error stays where it is
		p.connected = err == nil
	}
}

// series returns the series that counts a flow while it has its present member.
func (h *Hooks) series(p *State) *account.Series {
	return h.Accounting.counters.Series(p.Names().key())
}

// leadsBack reports whether a flow to a member would return to its listener.
func (h *Hooks) leadsBack(p *State, to *relay.Addr) bool {
	l := h.Cycles.Load()
	if l == nil {
		return false
	}
	_, found := (*l)[cycle.Hop{Listener: p.plan.Spec.Name, Member: *to}]
	return found
}

// explainConnect returns an error of a connection to an address, and says that it is the sandbox's if it is.
func (h *Hooks) explainConnect(err error, to *relay.Addr) error {
	if h.Sandbox == nil || err == nil {
		return err
	}
	return h.Sandbox.Load().ExplainConnect(err, spec.Endpoint{Kind: to.Network, Host: to.AddrPort.Addr().String(), Port: to.AddrPort.Port(), Path: to.Path})
}
