package config

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// destinationKey is of groups only: what may be connected to is said where it is used.
var destinationKey = comparedByKey(field("destination", pointer(destinationKeys.filled()), "", "Instead of members: each flow goes to the host whose name its client sends, or to the address that it has connected to. See docs/egress.md.",
	func(g *spec.Group) **spec.Destination { return &g.Destination }), destinationKeys, func(g *spec.Group) *spec.Destination { return g.Destination })

var destinationKeys = keysOf("group.destination",
	field("by", oneOf(spec.Destinations...), spec.BySNI, "What says where. sni: the server name in the ClientHello of TLS, or on UDP of QUIC. host: the first request of HTTP/1, in its field Host or its address. original: the address that the client has connected to before its packets were brought here, by TPROXY or on TCP by REDIRECT, at a listener with transparent; or that its PROXY header names.", func(d *spec.Destination) *string { return &d.By }),
	field("port", whole[uint16](1, 65535), "", "The port to connect to, whatever port the client names. With original: the only port to which flows go. Default with original: any.", func(d *spec.Destination) *uint16 { return &d.Port }),
	field("allow", nonEmptyList(destinationName), "", "Names to which flows go; clients that send another one, or none, are refused. A leading *. matches one or more labels; * alone matches every name, which makes the listener an open relay for whoever reaches it.", func(d *spec.Destination) *[]string { return &d.Allow }),
	field("networks", list(prefix), "[]", "Networks to which flows go besides the public Internet. Addresses that are private, loopback, link-local, multicast, for documentation or otherwise reserved, and those of the relay's own listeners, are refused. A server of cloud metadata is let in by its address alone, not by a wider network.", func(d *spec.Destination) *[]netip.Prefix { return &d.Networks }),
	field("timeout", duration(time.Millisecond, ""), "5s", "How long a flow waits until its name is looked up.", func(d *spec.Destination) *time.Duration { return &d.Timeout }),
)

// prefix is a range of addresses.
var prefix = scalar("network", "an address, or a range such as 10.0.0.0/8 or 2001:db8::/32", map[string]any{"type": "string", "pattern": `^` + addressPattern + `(/[0-9]+)?$`}, parsePrefix)

// destinationName is a serverName, or * for all.
var destinationName = func() typ[string] {
	s := &shape{name: "name", allowed: "a name such as www.example.org, *.example.org for all names below example.org, or * for all", schema: map[string]any{"type": "string", "pattern": `^(\*|(\*\.)?[A-Za-z0-9.-]+)$`}}
	return typ[string]{s, func(r *reader, n node, to *string) {
		if n.Value == spec.AnyName && n.Tag == "!!str" {
			*to = spec.AnyName
			return
		}
		serverName.read(r, n, to)
	}, serverName.show}
}()

// checkDestination reports what does not fit a group without members.
func (r *reader) checkDestination(g *spec.Group) {
	if len(g.Members)+len(g.Discover) > 0 {
		r.fail(r.position(&g.Destination), fault{problem: "a group has either members or a destination", allowed: "two groups"})
	}
	switch d := g.Destination; {
	case d.By == spec.ByOriginal:
		for _, key := range []any{&d.Allow, &d.Timeout} {
			if r.isSet(key) {
				r.fail(r.position(key), fault{problem: "with by: original there is no name", allowed: "port and networks"})
			}
		}
	case d.Port == 0 && !r.isSet(&d.Port):
		r.fail(r.position(&g.Destination), fault{problem: "the key port is missing", allowed: "the port to connect to"})
	case len(d.Allow) == 0 && !r.isSet(&d.Allow):
		r.fail(r.position(&g.Destination), fault{problem: "the key allow is missing: it has the names to which flows go", allowed: "names, *.example.org, or * for all, which is an open relay"})
	}
	for _, key := range []any{&g.Balance, &g.Hash, &g.Zone, &g.Lookups, &g.Queue, &g.SlowStart, &g.Check, &g.Agent, &g.Eject, &g.Down, &g.Up, &g.Rebalance, &g.Panic} {
		if r.isSet(key) {
			r.fail(r.position(key), fault{problem: "a group with a destination has no members", allowed: "without this key, or another group"})
		}
	}
}

// checkNamed reports a listener whose clients cannot send what the destination of a group goes by, and one that is an open relay.
// restricted says that only some clients and names come to the group.
func (r *reader) checkNamed(l *listener, at *place, restricted bool, g *spec.Group) {
	d := g.Destination
	switch {
	case d == nil:
		return
	case l.Datagrams && (d.By == spec.ByHost || l.Listen.Kind == spec.Unixgram):
		r.fail(at, fault{problem: "the destination of the group " + plain(g.Name) + " goes by " + d.By + ", which the datagrams of the listener " + l.Name + " do not have", allowed: "a stream listener, or by: sni or original on UDP"})
	case d.By == spec.ByOriginal && !l.Transparent && len(l.ProxyFrom) == 0:
		r.fail(at, fault{problem: "clients of the listener " + l.Name + " connect to its own address, and the destination of the group " + plain(g.Name) + " would lead back to it", allowed: "transparent: true of the listener, for clients that TPROXY or REDIRECT brings here"})
	case d.By == spec.ByHost && (l.TLS != nil || l.StartTLS.Protocol != ""):
		r.fail(at, fault{problem: "the destination of the group " + plain(g.Name) + " goes by the host of HTTP in the clear, and clients of the listener " + l.Name + " begin with TLS", allowed: "by: sni"})
	case slices.Contains(d.Allow, spec.AnyName) && !restricted && len(l.Allow)+len(l.ProxyFrom) == 0 && !l.onThisHost() && !l.asksCertificate():
		r.warn(at, fault{problem: "open relay: whoever reaches the listener " + l.Name + " may connect to port " + count(65535).show(int(d.Port)) + " of every host", allowed: "names in allow of the group " + plain(g.Name) + ", or allow of the listener with the networks of its clients"})
	}
}

// checkOriginal warns of listeners for both IPv4 and IPv6 whose clients over IPv4 may have no original destination: after REDIRECT the kernel
// tells it to sockets of IPv4 only (SO_ORIGINAL_DST is an option of SOL_IP, and finds connections by the addresses of an IPv4 socket).
func (r *reader) checkOriginal(f *file) {
	alone := map[uint16]bool{} // ports that have a listener of IPv4 alone
	for _, l := range f.listeners {
		if l.Listen.Kind == spec.TCP && l.Listen.Host == "0.0.0.0" {
			alone[l.Listen.Port] = true
		}
	}
	for _, l := range f.listeners {
		original := slices.ContainsFunc(l.AllRoutes(), func(route *spec.Route) bool {
			return slices.ContainsFunc(route.To, func(p spec.Part) bool {
				return p.Group != nil && p.Group.Destination != nil && p.Group.Destination.By == spec.ByOriginal
			})
		})
		if original && l.Transparent && l.Listen.Kind == spec.TCP && (l.Listen.Host == "" || l.Listen.Host == "::") && !alone[l.Listen.Port] {
			r.warn(r.position(&l.Listen, l), fault{problem: "clients over IPv4 that REDIRECT or DNAT brings to " + l.Listen.String() + " have no original destination: the kernel tells it at IPv4 sockets only",
				allowed: fmt.Sprintf("another listener at tcp://0.0.0.0:%d beside this one, which then has the clients over IPv6, or an address of IPv6 alone", l.Listen.Port)})
		}
	}
}

// onThisHost reports whether only clients on this host reach a listener.
func (l *listener) onThisHost() bool {
	return l.Listen.Kind == spec.Unix || l.Listen.Host == "localhost" || l.Listen.Kind != 0 && l.Listen.Addr().IsValid() && l.Listen.Addr().Addr().IsLoopback()
}

// asksCertificate reports whether only clients with a certificate come in.
func (l *listener) asksCertificate() bool {
	return l.TLS != nil && l.TLS.Clients != nil && !l.TLS.Clients.Optional
}
