package app

import (
	"slices"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/admit"
	"github.com/penstock/penstock/cmd/penstock/internal/route"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/relay"
)

// A stand is what one listener does with its clients: a configuration's answer,
// made ready. It never changes; a reload puts another one in its place, and a
// flow keeps the one that it was accepted under.
type listenerPlan struct {
	spec         *spec.Listener
	gate         *admit.Controller
	routes       *route.Table
	targets      map[*spec.Route]*routeTarget
	routesByName map[string]*spec.Route
	sniffSeries  *account.Series // of flows that are sniffed, and have no route yet; nil: none are
}

// A way is a route made ready: the group that it leads to, and what the engine is to
// be told about its flows.
type routeTarget struct {
	route    *spec.Route
	group    *upstream.Group
	dial     *relay.DialConfig
	timeouts relay.Timeouts
	proxy    *spec.Dial // how to tell the upstream who the client is; nil: do not
	byLocal  bool       // the address that the client came to decides about the member
}

// newStand makes a stand of a listener whose groups set has.
func newListenerPlan(l *spec.Listener, gate *admit.Controller, set *upstream.Set, counters *account.Counters) *listenerPlan {
	s := &listenerPlan{spec: l, gate: gate, routes: route.New(l), targets: map[*spec.Route]*routeTarget{}, routesByName: map[string]*spec.Route{}}
	if l.Sniff.TLS || len(l.ProxyFrom) > 0 {
		s.sniffSeries = counters.Series(account.Key{Listener: l.Name})
	}
	for _, r := range routesOf(l) {
		s.targets[r] = newRouteTarget(r, l, set)
		s.routesByName[r.Name] = r
	}
	return s
}

func newRouteTarget(r *spec.Route, l *spec.Listener, set *upstream.Set) *routeTarget {
	g := r.To
	w := &routeTarget{
		route:    r,
		group:    set.Group(g.Name),
		dial:     dialConfig(&g.Dial),
		timeouts: timeouts(r.Timeouts),
		byLocal:  g.Balance == "maglev" && g.Hash == "4-tuple",
	}
	if g.Timeouts.Connect > 0 {
		w.timeouts.Connect = g.Timeouts.Connect
	}
	if g.Queue.Timeout > 0 {
		w.timeouts.Queue = g.Queue.Timeout
	}
	if g.Dial.Proxy != 0 && !l.Datagrams {
		w.proxy = &g.Dial
	}
	return w
}

// timeouts translates: what is never here is 0, and there negative where 0 is a default.
func timeouts(t spec.Timeouts) relay.Timeouts {
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
	o := socketOptions(d.TCP)
	o.Interface, o.Mark, o.DSCP = d.Interface, d.Mark, d.DSCP
	return &relay.DialConfig{Socket: o, Source: d.Source, FromClient: d.Transparent}
}

func socketOptions(t spec.Socket) relay.SocketOptions {
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

// routesOf are a listener's routes, its default last.
func routesOf(l *spec.Listener) []*spec.Route {
	if l.Default == nil {
		return l.Routes
	}
	return append(slices.Clip(l.Routes), l.Default)
}
