package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Warnings about keys that are valid and have no effect. Only keys that a listener or group sets
// itself are reported, not what it inherits from defaults.

// warnNoEffect reports the first of the keys that is set.
func (r *reader) warnNoEffect(why string, keys ...any) {
	for _, k := range keys {
		if r.isSet(k) {
			r.warn(r.position(k), fault{problem: "has no effect: " + why})
			return
		}
	}
}

func (r *reader) warnFile(f *file) {
	if to := f.AccessLog.To; to != "" && !strings.HasPrefix(to, "/") {
		r.warnNoEffect("only a file has permissions", &f.AccessLog.Mode)
	}
	if a := f.Admin.Listen; len(a) > 0 && !slices.ContainsFunc(a, func(e spec.Endpoint) bool { return e.Kind != spec.Unix }) {
		const why = "on a Unix socket, the permissions of its path decide, and no token is needed"
		r.warnNoEffect(why, &f.tokens.all)
		r.warnNoEffect(why, &f.tokens.read)
	}
	for _, g := range f.Groups {
		r.warnGroup(g)
	}
	for _, l := range f.listeners {
		r.warnListener(l)
	}
}

func (r *reader) warnListener(l *listener) {
	unix := l.Listen.Kind == spec.Unix || l.Listen.Kind == spec.Unixgram
	if unix && len(l.ProxyFrom) == 0 {
		const why = "clients of a Unix socket have no address"
		s := &l.Limits.Source
		r.warnNoEffect(why, &s.Flows, &s.NewFlows, &s.Burst)
		for _, route := range l.Routes {
			if r.isSet(&route.From) {
				r.warn(r.position(&route.From), fault{problem: "no client matches: " + why})
			}
		}
	}
	if l.TLS == nil || l.TLS.Clients == nil {
		c := &l.Limits.Client
		r.warnNoEffect("the listener asks no client for a certificate: tls.clients", &c.Flows, &c.NewFlows, &c.Burst)
	}
	if !l.Sniff.TLS && !l.Sniff.First {
		r.warnNoEffect("no ClientHello is read: no route depends on what a client sends, no group hashes sni, and the listener has no tls", &l.Sniff.JA4)
	}
	switch {
	case l.Sniff.TLS, l.Sniff.First, len(l.ProxyFrom) > 0 && !l.Datagrams:
	case l.Datagrams:
		r.warnNoEffect("no route has sni or alpn, and no group hashes sni", &l.Sniff.Max, &l.Sniff.Timeout)
	default:
		r.warnNoEffect("no route has a condition on first bytes, no group hashes sni, and the listener has no tls and accepts no PROXY headers", &l.Sniff.Max, &l.Sniff.Timeout)
	}
	r.warnALPN(l)
	r.warnBuiltIn(l)
	r.warnClear(l)
	r.warnTOS(l)
	if l.Datagrams {
		for _, route := range l.Routes {
			r.warnNoEffect("it does not apply to datagrams", &route.Timeouts.FirstByte)
			r.warnNoEffect("it does not apply to datagrams", &route.Timeouts.HalfClosed)
		}
	}
}

// warnBuiltIn reports timeouts that wait for an upstream where there is none.
func (r *reader) warnBuiltIn(l *listener) {
	const why = "a built-in upstream has no first byte, and no side that closes"
	warn := func(t *spec.Timeouts) {
		r.warnNoEffect(why, &t.FirstByte)
		r.warnNoEffect(why, &t.HalfClosed)
	}
	only := true
	for _, route := range routesOf(&l.Listener) {
		if slices.ContainsFunc(route.To, func(p spec.Part) bool { return p.Group == nil || !onlyBuiltIn(p.Group) }) {
			only = false
		} else if !l.Datagrams {
			warn(&route.Timeouts)
		}
	}
	if only && !l.Datagrams {
		warn(&l.Timeouts)
	}
}

// onlyBuiltIn reports whether a group has only built-in members.
func onlyBuiltIn(g *spec.Group) bool {
	return g.Destination == nil && len(g.Discover) == 0 && !slices.ContainsFunc(g.Members, func(m spec.Member) bool { return !m.To.Kind.BuiltIn() })
}

// warnTOS reports a listener that keeps TOS bytes where no upstream has any.
func (r *reader) warnTOS(l *listener) {
	if !l.Datagrams || l.Listen.Kind == spec.Unixgram || l.TOS == "none" {
		return
	}
	for _, route := range routesOf(&l.Listener) {
		if slices.ContainsFunc(route.To, func(p spec.Part) bool { return !p.Refuse && (p.Group == nil || hasTOS(p.Group)) }) {
			return
		}
	}
	r.warnNoEffect("no route leads to UDP members, and Unix sockets have no TOS byte", &l.TOS)
}

// hasTOS reports whether a group has members whose datagrams have a TOS byte.
func hasTOS(g *spec.Group) bool {
	return slices.ContainsFunc(g.Members, func(m spec.Member) bool { return m.To.Kind == 0 || m.To.Kind == spec.UDP || m.To.Kind == spec.Echo }) ||
		slices.ContainsFunc(g.Discover, func(d spec.Discover) bool { return d.Network == spec.UDP })
}

// warnClear reports groups that ask for TLS as a protocol does whose clients come in the clear: they
// would ask for it, too, inside of that TLS, and a password with SCRAM would be refused.
func (r *reader) warnClear(l *listener) {
	if l.TLS != nil || l.StartTLS.Protocol != "" {
		return
	}
	for _, route := range routesOf(&l.Listener) {
		for g := range route.Groups() {
			if g.TLS == nil || g.TLS.StartTLS == "" {
				continue
			}
			r.warn(r.position(&route.To, &l.To, l), fault{
				problem: "the group " + plain(g.Name) + " asks its members for TLS, and clients of the listener " + l.Name + " come in the clear: PostgreSQL's own ask for TLS themselves, which fails, and without it their passwords with SCRAM are refused",
				allowed: "tls and starttls of the listener too, or a group without tls",
			})
		}
	}
}

func (r *reader) warnGroup(g *spec.Group) {
	has := func(kinds ...spec.Kind) bool {
		return g.Destination != nil || slices.ContainsFunc(g.Members, func(m spec.Member) bool { return m.To.Kind == 0 || slices.Contains(kinds, m.To.Kind) }) ||
			slices.ContainsFunc(g.Discover, func(d spec.Discover) bool { return slices.Contains(kinds, d.Network) })
	}
	if g.Retries == 0 {
		r.warnNoEffect("retries is 0", &g.Timeouts.Retries)
	}
	if g.Queue.Size == 0 {
		r.warnNoEffect("the size of the queue is 0", &g.Queue.Timeout)
	}
	if g.Check == nil && g.Agent == nil && g.Eject == nil && g.Panic > 0 && !g.DiscoversIn("xds") {
		r.warnNoEffect("without check, agent and eject members never go down", &g.Panic)
	}
	for i := range g.Members {
		m, why := &g.Members[i], ""
		switch {
		case g.Check == nil:
			why = "the group has no check"
		case m.To.Kind == spec.Unix || m.To.Kind == spec.Unixgram:
			why = "the member is a Unix socket"
		}
		if why != "" {
			r.warnNoEffect(why, &m.CheckPort)
			r.warnNoEffect(why, &m.CheckAddress)
		}
		if g.Agent == nil {
			for _, k := range []any{&m.AgentPort, &m.AgentAddress, &m.AgentSend} {
				r.warnNoEffect("the group has no agent", k)
			}
		}
	}
	literal := len(g.Discover) == 0 && !slices.ContainsFunc(g.Members, func(m spec.Member) bool { return isName(m.To) })
	if g.Check == nil && g.Agent == nil && g.Eject == nil && len(g.Discover) == 0 {
		r.warnNoEffect("without check, agent and eject members never go down", &g.Down)
	}
	if len(g.Members) == 1 && literal && !g.Down.Keeps() {
		r.warnNoEffect("flows of the only member continue: most of the group is down with it", &g.Down)
	}
	if !g.Up.Keeps() && len(g.Discover) == 0 && !slices.ContainsFunc(g.Members, func(m spec.Member) bool { return m.Backup }) {
		r.warnNoEffect("the group has no backup members", &g.Up)
	}
	if g.Rebalance != nil && !spec.Spreads(g) {
		r.warnNoEffect("a client that comes back gets the same member by hash, first or zone", &g.Rebalance)
	}
	if g.Zone == spec.ZoneWeighted && !g.DiscoversIn("xds") {
		r.warnNoEffect("only localities of xds have weights", &g.Zone)
	}
	if e, n := g.Eject, len(g.Members); e != nil && literal && e.Share*float64(n) < 1-1e-9 {
		r.warnNoEffect(fmt.Sprintf("a share of %v of %s is less than one member", e.Share, Counted(n, "member")), &g.Eject)
	}
	if !has(spec.TCP, spec.UDP, spec.Unix, spec.Unixgram) {
		r.warnNoEffect("built-in members are always up", &g.Check)
		r.warnNoEffect("built-in members have no agents", &g.Agent)
	}
	d := &g.Dial
	if !has(spec.TCP, spec.UDP) {
		const why = "the group has no TCP or UDP members"
		for _, k := range []any{&d.Source, &d.Interface, &d.Mark, &d.DSCP} {
			r.warnNoEffect(why, k)
		}
	}
	if !has(spec.TCP) {
		t := &d.TCP // buffers are set on all sockets
		for _, k := range []any{&t.Nagle, &t.KeepAlive, &t.KeepAliveInterval, &t.KeepAliveCount, &t.UserTimeout, &t.FastOpen, &t.MPTCP, &t.Congestion} {
			r.warnNoEffect("the group has no TCP members", k)
		}
	}
	if c := g.Check; c != nil && d.Transparent && !c.Source.IsValid() && has(spec.TCP, spec.UDP) {
		r.warn(r.position(&g.Check, &d.Source, g), fault{problem: "checks have no client to connect from: they come from an address of this host, which members must answer", allowed: "source of the check to choose the address"})
	}
}

// isName reports whether an endpoint has a host name, which stands for any number of addresses.
func isName(e spec.Endpoint) bool {
	return (e.Kind == spec.TCP || e.Kind == spec.UDP) && !e.Addr().IsValid()
}
