package hooks

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/admit"
	"github.com/penstock/penstock/cmd/penstock/internal/certs"
	"github.com/penstock/penstock/cmd/penstock/internal/lists"
	"github.com/penstock/penstock/cmd/penstock/internal/route"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/starttls"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/relay"
)

// A Plan is what one listener does with its clients, built from the configuration. It
// never changes; a reload installs another one, and a flow keeps the plan that it was accepted
// under.
type Plan struct {
	Spec         *spec.Listener
	Gate         *admit.Controller
	Certs        *certs.Server // nil: TLS is not terminated
	routes       *route.Table
	choices      map[*spec.Route]*choice
	routesByName map[string]*spec.Route
	starts       starttls.Protocol // how clients agree on TLS; nil: they do not
	quic         []quicTarget      // those of routes whose members speak QUIC, in the routes' order
	divides      bool              // a client's address may have several flows; see Divides
	sniffSeries  *account.Series   // counts flows that are being sniffed and have no route yet; nil: no flows are sniffed
}

// A Target is built from a route and one of its parts: the group to which it leads, and the engine's settings for
// its flows.
type Target struct {
	Route    *spec.Route
	To       *spec.Group    // nil: the part refuses its clients
	Timeouts relay.Timeouts // without the jitter of Life; see TimeoutsOf
	group    *upstream.Group
	dial     *relay.DialConfig
	proxy    *spec.Dial // settings of the PROXY header sent to the upstream; nil: none is sent
	byLocal  bool       // the address that the client connected to is part of the hash
	hashed   hashedKey
	removed  string        // route.Removed, as flows encode it
	tls      *certs.Client // TLS to the members; nil: none
	followed *followed     // the group's destination; nil: it has members
	quic     *quicIDs      // how connections of QUIC are recognised; nil: they are not
	named    *namedHost    // where the only flow of this target goes; nil: to a member
}

// In reports whether a route of the target's name in another configuration leads where the target does. A client that the target refuses has no
// more than its answer to come.
func (w *Target) In(r *spec.Route) bool { return w.To == nil || r.LeadsTo(w.To.Name) }

// RouteNamed returns the route with a name; nil: there is none.
func (s *Plan) RouteNamed(name string) *spec.Route { return s.routesByName[name] }

// needsFirst reports whether a client's first bytes must be read before it is routed.
func (s *Plan) needsFirst(from netip.Addr) bool {
	return s.divides || s.Certs != nil || s.Spec.StartTLS.Protocol != "" || (s.Spec.Sniff.TLS || s.Spec.Sniff.First) && s.routes.Needs(from)
}

// NewPlan returns the plan of a listener whose groups are in set, and whose lists are in all.
func NewPlan(l *spec.Listener, gate *admit.Controller, set *upstream.Set, clients *certs.Clients, counters *account.Counters, all *lists.Table) *Plan {
	s := &Plan{Spec: l, Gate: gate, routes: route.New(l, all), choices: map[*spec.Route]*choice{}, routesByName: map[string]*spec.Route{}}
	s.starts, s.divides = starttls.ByName(l.StartTLS.Protocol), Divides(l)
	for _, r := range l.AllRoutes() {
		s.choices[r] = newChoice(r, l, set, clients)
		s.routesByName[r.Name] = r
		s.addQUIC(r, s.choices[r])
	}
	if s.divides || l.Sniff.TLS || l.Sniff.First || l.TLS != nil || l.StartTLS.Protocol != "" || len(l.ProxyFrom) > 0 {
		s.sniffSeries = counters.Series(account.Key{Listener: l.Name})
	}
	return s
}

func newTarget(r *spec.Route, g *spec.Group, l *spec.Listener, set *upstream.Set, clients *certs.Clients) *Target {
	if g == nil {
		return &Target{Route: r, removed: encodeRemoved(r.Removed)}
	}
	w := &Target{
		Route:    r,
		To:       g,
		group:    set.Group(g.Name),
		dial:     dialConfig(&g.Dial),
		Timeouts: Timeouts(r.Timeouts),
		byLocal:  upstream.UsesLocal(g),
		hashed:   hashedKeyOf(g.Hash),
		removed:  encodeRemoved(r.Removed),
		followed: newFollowed(g.Destination),
		quic:     newQUICIDs(g, l),
	}
	if w.followed != nil {
		w.Timeouts.Queue = w.followed.Timeout
	}
	if g.Timeouts.Connect > 0 {
		w.Timeouts.Connect = g.Timeouts.Connect
	}
	if g.Queue.Timeout > 0 && w.followed == nil {
		w.Timeouts.Queue = g.Queue.Timeout
	}
	if g.Dial.Proxy != 0 {
		w.proxy = &g.Dial
	}
	if g.TLS != nil {
		w.tls = clients.Of(g.TLS)
	}
	return w
}

// TimeoutsOf returns the timeouts of a flow, which are the same after a restart.
func (w *Target) TimeoutsOf(id uint64) relay.Timeouts {
	t := w.Timeouts
	if jitter := w.Route.Timeouts.LifeJitter; jitter > 0 && t.Life > 0 {
		id *= 0x9e3779b97f4a7c15 // a multiplicative hash: IDs count up
		t.Life -= time.Duration(float64(id>>11) / (1 << 53) * float64(jitter))
	}
	return t
}

// Timeouts converts timeouts. Never is 0 in a configuration, and negative in the engine where 0
// means a default.
func Timeouts(t spec.Timeouts) relay.Timeouts {
	never := func(d time.Duration) time.Duration {
		if d == 0 {
			return -1
		}
		return d
	}
	return relay.Timeouts{
		Connect:    t.Connect,
		Idle:       never(t.Idle),
		HalfClosed: never(t.HalfClosed),
		FirstByte:  t.FirstByte,
		Life:       t.Life,
	}
}

func dialConfig(d *spec.Dial) *relay.DialConfig {
	o := SocketOptions(d.TCP)
	o.Interface, o.Mark, o.DSCP = d.Interface, d.Mark, d.DSCP
	return &relay.DialConfig{Socket: o, Source: d.Source, FromClient: d.Transparent, PrefaceEach: !d.ProxyFirst}
}

// SocketOptions returns the engine's settings of a socket.
func SocketOptions(t spec.Socket) relay.SocketOptions {
	return relay.SocketOptions{
		Nagle:             t.Nagle,
		KeepAlive:         t.KeepAlive,
		KeepAliveInterval: t.KeepAliveInterval,
		KeepAliveCount:    t.KeepAliveCount,
		UserTimeout:       t.UserTimeout,
		RecvBuffer:        t.RecvBuffer,
		SendBuffer:        t.SendBuffer,
		Congestion:        t.Congestion,
		FastOpen:          t.FastOpen,
		MPTCP:             t.MPTCP,
	}
}

// A Socket is a listener's socket and its present plan.
type Socket struct {
	*relay.Listener
	Port int // as configured: 0 if it is any free one
	quicKnown
	Plan atomic.Pointer[Plan]
}
