package app

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// A hop is a step from a listener to a member's address.
type hop struct {
	listener string
	member   relay.Addr
}

// ownListeners finds the daemon's own listener that a member's address leads to.
type ownListeners struct {
	byAddr    map[relay.Addr][]ownListener // by address without the IP
	hostAddrs map[netip.Addr]bool          // addresses of this host
}

type ownListener struct {
	listener string
	ip       netip.Addr // the address that it is bound to
}

// newOwnListeners indexes listeners by their addresses, as returned by at: one for each port.
// Listeners without an address are left out.
func newOwnListeners(listeners []*spec.Listener, at func(*spec.Listener) []relay.Addr) *ownListeners {
	d := &ownListeners{byAddr: map[relay.Addr][]ownListener{}, hostAddrs: map[netip.Addr]bool{}}
	for _, l := range listeners {
		// Connections from this host to itself arrive on lo.
		if l.Interface != "" && l.Interface != "lo" {
			continue
		}
		for _, a := range at(l) {
			d.byAddr[withoutIP(a)] = append(d.byAddr[withoutIP(a)], ownListener{l.Name, spec.CanonicalAddr(a.AddrPort.Addr())})
		}
	}
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				d.hostAddrs[spec.CanonicalAddr(ip)] = true
			}
		}
	}
	return d
}

// withoutIP returns the address with its IP removed.
func withoutIP(a relay.Addr) relay.Addr {
	a.AddrPort = netip.AddrPortFrom(netip.Addr{}, a.AddrPort.Port())
	return a
}

// listenerAt returns the name of the listener that accepts connections to an address; empty: none
// does.
func (d *ownListeners) listenerAt(to relay.Addr) string {
	ip := spec.CanonicalAddr(to.AddrPort.Addr())
	here := !ip.IsValid() || ip.IsLoopback() || ip.IsUnspecified() || d.hostAddrs[ip]
	for _, o := range d.byAddr[withoutIP(to)] {
		if o.ip == ip || here && (!o.ip.IsValid() || o.ip.IsUnspecified() || ip.IsUnspecified() && o.ip.IsLoopback()) {
			return o.listener
		}
	}
	return ""
}

// memberAddr is the address of a member, with the number of ports of its range.
type memberAddr struct {
	relay.Addr
	ports int
}

// listenerOf returns the name of a listener that accepts connections to one of a member's ports;
// empty: none does.
func (d *ownListeners) listenerOf(a memberAddr) string {
	for i := range max(a.ports, 1) {
		to := a.Addr
		if i > 0 {
			to.AddrPort = netip.AddrPortFrom(to.AddrPort.Addr(), to.AddrPort.Port()+uint16(i))
		}
		if name := d.listenerAt(to); name != "" {
			return name
		}
	}
	return ""
}

// cycles returns the hops that lead a flow back to a listener that it came through, each with the
// names of the listeners on its path. members returns the addresses of a group.
func (d *ownListeners) cycles(listeners []*spec.Listener, members func(*spec.Group) []memberAddr) map[hop][]string {
	next := map[string][]string{} // listeners that a listener leads to
	leadsTo := map[relay.Addr]string{}
	var own []hop
	for _, l := range listeners {
		for _, r := range l.AllRoutes() {
			for _, a := range members(r.To) {
				if to := d.listenerOf(a); to != "" {
					own = append(own, hop{l.Name, a.Addr})
					leadsTo[a.Addr] = to
					next[l.Name] = append(next[l.Name], to)
				}
			}
		}
	}
	found := map[hop][]string{}
	for _, h := range own {
		if steps := shortestPath(next, leadsTo[h.member], h.listener); steps != nil {
			found[h] = append([]string{h.listener}, steps...)
		}
	}
	return found
}

// shortestPath returns the shortest path from one listener to another, both included; nil: there
// is none.
func shortestPath(next map[string][]string, from, to string) []string {
	before := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if at == to {
			steps := []string{at}
			for at != from {
				at = before[at]
				steps = append(steps, at)
			}
			slices.Reverse(steps)
			return steps
		}
		for _, n := range next[at] {
			if _, seen := before[n]; !seen {
				before[n] = at
				queue = append(queue, n)
			}
		}
	}
	return nil
}

// literalAddrs returns the addresses of a group's members that need no lookup.
func literalAddrs(g *spec.Group) (list []memberAddr) {
	for _, m := range g.Members {
		if a, ok := m.To.Literal(); ok {
			list = append(list, memberAddr{a, m.To.Ports()})
		}
	}
	return list
}

// checkCycles returns an error if a listener relays to itself: the flow would take all descriptors
// within a second.
func checkCycles(d *ownListeners, listeners []*spec.Listener) error {
	var errs []error
	d.eachCycle(listeners, func(h hop, steps []string) { errs = append(errs, cycleError(h, steps)) })
	return errors.Join(errs...)
}

// eachCycle calls report for each hop that leads back, with the listeners on its path, in the order of their names.
func (d *ownListeners) eachCycle(listeners []*spec.Listener, report func(h hop, steps []string)) {
	found := d.cycles(listeners, literalAddrs)
	for _, h := range slices.SortedFunc(maps.Keys(found), func(a, b hop) int {
		return cmp.Or(strings.Compare(a.listener, b.listener), strings.Compare(a.member.String(), b.member.String()))
	}) {
		report(h, found[h])
	}
}

func cycleError(h hop, steps []string) error {
	return fmt.Errorf("%s leads back to listener %s (%s); allowed: members that do not lead back to it", h.member, h.listener, strings.Join(steps, " > "))
}

// reportCycles is checkCycles with the place of what leads back.
func reportCycles(c *spec.Config, p *config.Report) {
	newOwnListeners(c.Listeners, configuredAddrs).eachCycle(c.Listeners, func(h hop, steps []string) {
		for _, l := range c.Listeners {
			if l.Name != h.listener {
				continue
			}
			for _, r := range l.AllRoutes() {
				if slices.ContainsFunc(literalAddrs(r.To), func(a memberAddr) bool { return a.Addr == h.member }) {
					p.Fail(cycleError(h, steps), &r.To, &l.To, l)
					return
				}
			}
		}
	})
}

// configuredAddrs returns the addresses of a listener as configured; none: they are not known yet.
func configuredAddrs(l *spec.Listener) (list []relay.Addr) {
	for i := range l.Listen.Ports() {
		if a, ok := l.Listen.At(i).Literal(); ok && l.Inherit == "" && (a.Path != "" || a.AddrPort.Port() != 0) {
			list = append(list, a)
		}
	}
	return list
}

// updateCycles looks for cycles with the current members, including those found by DNS. From then
// on, flows are refused that would return to their listener.
func (d *daemon) updateCycles() {
	f := d.active.Load()
	members := map[string][]memberAddr{}
	for _, g := range d.set.Snapshot() {
		for _, m := range g.Members {
			members[g.Name] = append(members[g.Name], memberAddr{m.Addr, m.Ports})
		}
	}
	found := f.ownListeners.cycles(f.Listeners, func(g *spec.Group) []memberAddr { return members[g.Name] })
	if len(found) == 0 {
		d.cycles.Store(nil)
		return
	}
	if old := d.cycles.Load(); old == nil || len(*old) != len(found) {
		for h, steps := range found {
			d.log.Error("member leads back to its listener; it gets no flows", "listener", h.listener, "member", h.member.String(), "through", strings.Join(steps, " > "))
		}
	}
	d.cycles.Store(&found)
}

// leadsBack reports whether a flow to a member would return to its listener.
func (d *daemon) leadsBack(p *flowState, to *relay.Addr) bool {
	l := d.cycles.Load()
	if l == nil {
		return false
	}
	_, found := (*l)[hop{p.plan.spec.Name, *to}]
	return found
}
