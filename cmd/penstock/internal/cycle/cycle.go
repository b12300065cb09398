package cycle

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// A Hop is a step from a listener to a member's address.
type Hop struct {
	Listener string
	Member   relay.Addr
}

// Listeners finds the daemon's own listener that a member's address leads to. Its methods are safe for concurrent use.
type Listeners struct {
	byAddr    map[relay.Addr][]ownListener // by address without the IP
	addrsOf   func() map[netip.Addr]bool   // addresses of this host, which come and go: with VRRP, a name may lead to one that came later
	mu        sync.Mutex
	hostAddrs map[netip.Addr]bool // as of asked
	asked     time.Time
}

// addrsHold is for how long an address of this host is not known: as long as a flow to it comes back again and again.
const addrsHold = time.Second

type ownListener struct {
	listener string
	ip       netip.Addr // the address that it is bound to
}

// NewListeners indexes listeners by their addresses, as returned by at: one for each port.
// Listeners without an address are left out.
func NewListeners(listeners []*spec.Listener, at func(*spec.Listener) []relay.Addr) *Listeners {
	d := &Listeners{byAddr: map[relay.Addr][]ownListener{}, addrsOf: hostAddrs}
	for _, l := range listeners {
		// Connections from this host to itself arrive on lo.
		if l.Interface != "" && l.Interface != "lo" {
			continue
		}
		for _, a := range at(l) {
			d.byAddr[withoutIP(a)] = append(d.byAddr[withoutIP(a)], ownListener{l.Name, spec.CanonicalAddr(a.AddrPort.Addr())})
		}
	}
	return d
}

// hostAddrs returns the addresses of this host.
func hostAddrs() map[netip.Addr]bool {
	all := map[netip.Addr]bool{}
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				all[spec.CanonicalAddr(ip)] = true
			}
		}
	}
	return all
}

// isHere reports whether connections from this host to an address arrive at it.
func (d *Listeners) isHere(ip netip.Addr) bool {
	if !ip.IsValid() || ip.IsLoopback() || ip.IsUnspecified() {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); d.hostAddrs == nil || now.Sub(d.asked) >= addrsHold {
		d.hostAddrs, d.asked = d.addrsOf(), now
	}
	return d.hostAddrs[ip]
}

// withoutIP returns the address with its IP removed.
func withoutIP(a relay.Addr) relay.Addr {
	a.AddrPort = netip.AddrPortFrom(netip.Addr{}, a.AddrPort.Port())
	return a
}

// ListenerAt returns the name of the listener that accepts connections to an address; empty: none
// does.
func (d *Listeners) ListenerAt(to relay.Addr) string {
	ip := spec.CanonicalAddr(to.AddrPort.Addr())
	for _, o := range d.byAddr[withoutIP(to)] {
		if o.ip == ip || ip.IsUnspecified() && o.ip.IsLoopback() || (!o.ip.IsValid() || o.ip.IsUnspecified()) && d.isHere(ip) {
			return o.listener
		}
	}
	return ""
}

// Member is the address of a member, with the number of ports of its range.
type Member struct {
	relay.Addr
	Ports int
}

// listenerOf returns the name of a listener that accepts connections to one of a member's ports;
// empty: none does.
func (d *Listeners) listenerOf(a Member) string {
	for i := range max(a.Ports, 1) {
		to := a.Addr
		if i > 0 {
			to.AddrPort = netip.AddrPortFrom(to.AddrPort.Addr(), to.AddrPort.Port()+uint16(i))
		}
		if name := d.ListenerAt(to); name != "" {
			return name
		}
	}
	return ""
}

// Find returns the hops that lead a flow back to a listener that it came through, each with the
// names of the listeners on its path. members returns the addresses of a group.
func (d *Listeners) Find(listeners []*spec.Listener, members func(*spec.Group) []Member) map[Hop][]string {
	next := map[string][]string{} // listeners that a listener leads to
	leadsTo := map[relay.Addr]string{}
	var own []Hop
	for _, l := range listeners {
		for _, r := range l.AllRoutes() {
			for g := range r.Groups() {
				for _, a := range members(g) {
					if to := d.listenerOf(a); to != "" {
						own = append(own, Hop{l.Name, a.Addr})
						leadsTo[a.Addr] = to
						next[l.Name] = append(next[l.Name], to)
					}
				}
			}
		}
	}
	found := map[Hop][]string{}
	for _, h := range own {
		if steps := shortestPath(next, leadsTo[h.Member], h.Listener); steps != nil {
			found[h] = append([]string{h.Listener}, steps...)
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

// LiteralMembers returns the addresses of a group's members that need no lookup.
func LiteralMembers(g *spec.Group) (list []Member) {
	for _, m := range g.Members {
		if a, ok := m.To.Literal(); ok {
			list = append(list, Member{a, m.To.Ports()})
		}
	}
	return list
}

// Check returns an error if a listener relays to itself: the flow would take all descriptors
// within a second.
func Check(d *Listeners, listeners []*spec.Listener) error {
	var errs []error
	d.Each(listeners, func(h Hop, steps []string) { errs = append(errs, HopError(h, steps)) })
	return errors.Join(errs...)
}

// Each calls report for each hop that leads back, with the listeners on its path, in the order of their names.
func (d *Listeners) Each(listeners []*spec.Listener, report func(h Hop, steps []string)) {
	found := d.Find(listeners, LiteralMembers)
	for _, h := range slices.SortedFunc(maps.Keys(found), func(a, b Hop) int {
		return cmp.Or(strings.Compare(a.Listener, b.Listener), strings.Compare(a.Member.String(), b.Member.String()))
	}) {
		report(h, found[h])
	}
}

// HopError returns the error of a hop that leads back, through these listeners.
func HopError(h Hop, steps []string) error {
	return fmt.Errorf("%s leads back to listener %s (%s); allowed: members that do not lead back to it", h.Member, h.Listener, strings.Join(steps, " > "))
}

// ConfiguredAddrs returns the addresses of a listener as configured; none: they are not known yet.
func ConfiguredAddrs(l *spec.Listener) (list []relay.Addr) {
	for i := range l.Listen.Ports() {
		if a, ok := l.Listen.At(i).Literal(); ok && l.Inherit == "" && (a.Path != "" || a.AddrPort.Port() != 0) {
			list = append(list, a)
		}
	}
	return list
}
