package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// DatagramIdle is the default idle timeout of datagram flows, which have no other end.
const DatagramIdle = 60 * time.Second

// envoyPanic is the default of panic where members are found in xDS: Envoy's healthy_panic_threshold.
const envoyPanic = 0.5

// resolve fills in defaults, resolves references to groups, and makes the checks that involve
// more than one value.
func (r *reader) resolve(f *file) *spec.Config {
	c, base := &f.Config, &f.defaults
	fileKeys.fill(r, f, nil)
	listenerKeys.fill(r, &base.listener, nil)
	groupKeys.fill(r, &base.group, nil)
	base.group.Dial.TCP = base.listener.TCP // one section of defaults serves both sides

	for _, g := range c.Groups {
		r.group(g, &base.group)
	}
	r.registries(f)
	r.lists(f)
	if f.Names.MinAge > f.Names.MaxAge {
		r.fail(r.position(&f.Names.MinAge, &f.Names.MaxAge), fault{problem: "longer than max-age", allowed: "at most max-age"})
	}
	r.otlp(f)
	for _, l := range f.listeners {
		listenerKeys.fill(r, l, &base.listener)
		if l.Inherit == "" && l.Listen.Kind != 0 && !r.isSet(&l.Datagrams) {
			l.Datagrams = l.Listen.Kind.Datagrams()
		}
		if l.Datagrams && !r.isSet(&l.Timeouts.Idle) && !r.isSet(&base.listener.Timeouts.Idle) {
			l.Timeouts.Idle = DatagramIdle
		}
		l.Timeouts.Connect = base.group.Timeouts.Connect // until the group is known
		from := &spec.Route{SplitBy: spec.SplitRandom, Removed: l.removed, Timeouts: l.Timeouts, Bandwidth: l.Limits.Bandwidth}
		for _, route := range l.Routes {
			routeKeys.fill(r, route, from)
			route.Timeouts.Connect = l.Timeouts.Connect
			l.Sniff.TLS = l.Sniff.TLS || len(route.SNI)+len(route.ALPN) > 0
			l.Sniff.First = l.Sniff.First || route.AsksFirst()
		}
		l.Sniff.TLS = l.Sniff.TLS || (l.TLS != nil || l.StartTLS.Protocol != "") && !l.Datagrams
		if l.StartTLS.Protocol == spec.PostgreSQL && l.TLS != nil && !r.isSet(&l.TLS.ALPN) {
			l.TLS.ALPN = []string{spec.PostgreSQL} // libpq insists on it where TLS begins at once
		}
		c.Listeners = append(c.Listeners, &l.Listener)
	}
	r.references(c, &base.group)
	for _, l := range f.listeners {
		if l.To != nil {
			l.Default = &spec.Route{Name: defaultRoute, To: l.To, SplitBy: l.SplitBy, Removed: l.removed, Timeouts: l.Timeouts, Bandwidth: l.Limits.Bandwidth}
		}
		for _, route := range l.Routes {
			if len(route.To) == 1 && !r.isSet(&route.Name) {
				route.Name = route.To[0].Name()
			}
		}
	}
	for _, l := range f.listeners {
		for _, route := range routesOf(&l.Listener) {
			if route.NeedsSNI() && l.Listen.Kind != spec.Unixgram {
				l.Sniff.TLS = true
			}
			l.Sniff.First = l.Sniff.First || route.NeedsHost() && !l.Datagrams
		}
	}
	r.checkFile(f)
	r.warnFile(f)
	return c
}

// group fills in the defaults of a group. The check of defaults applies to groups that it fits.
func (r *reader) group(g, base *spec.Group) {
	groupKeys.fill(r, g, base)
	for i := range g.Members {
		if m := &g.Members[i]; m.Name == "" && m.To.Kind != 0 {
			m.Name = m.To.String()
		}
	}
	for i := range g.Discover {
		if d := &g.Discover[i]; d.Service != "" && strings.Contains(d.Service, "._udp.") {
			d.Network = spec.UDP
		}
	}
	if bad := misfit(g); (bad != nil || g.Destination != nil) && !r.isSet(&g.Check) {
		g.Check = nil
	}
	if g.Destination != nil && !r.isSet(&g.Eject) {
		g.Eject = nil
	}
	if g.DiscoversIn("xds") && !r.isSet(&g.Panic) {
		g.Panic = envoyPanic
	}
	if spec.BalancerNamed(g.Balance).Hash && g.Hash == "" {
		g.Hash = "source"
	}
}

// references resolves names and URLs to groups. A URL is a group with one member and the URL as
// its name: equal URLs are the same group.
func (r *reader) references(c *spec.Config, base *spec.Group) {
	groups, names := map[string]*spec.Group{}, []string{}
	for _, g := range c.Groups {
		groups[g.Name] = g
		names = append(names, g.Name)
	}
	used := map[*spec.Group]bool{}
	for _, ref := range r.refs {
		g := groups[ref.text]
		if g == nil {
			// Names of groups have no colon.
			if e, err := spec.ParseUpstream(ref.text); err == nil {
				if g = groups[e.String()]; g == nil {
					g = &spec.Group{Name: e.String(), Members: []spec.Member{{To: e, Weight: 1}}}
					r.places[g], r.places[&g.Members] = ref.at, ref.at
					r.group(g, base)
					groups[g.Name] = g
					c.Groups = append(c.Groups, g)
				}
			}
		}
		if g == nil {
			f := fault{problem: "unknown group " + plain(ref.text), near: suggest(ref.text, names)}
			if f.allowed = firstNames(names); len(names) == 0 {
				f.allowed = "a URL; the file defines no groups"
			}
			r.fail(ref.at, f)
			continue
		}
		*ref.to = g
		used[g] = true
	}
	for _, g := range c.Groups {
		if !used[g] {
			r.warn(r.position(g), fault{problem: "unused: no listener and no route leads to this group"})
		}
	}
}

// firstNames lists names, but only the first of them if there are many.
func firstNames(names []string) string {
	const most = 12
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(slices.Clone(names), ", ")
}
