package config

import (
	"net/netip"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Routes inherit from their listener, so that filling a listener leaves them out.
var listenerKeys = keysOf("listener",
	field("listen", listenEndpoint, "", "The address to listen at. Port 0 is any free one.", func(l *listener) *spec.Endpoint { return &l.Listen }),
	field("inherit", nameType, "", "Take over the socket that systemd passes under this name (FileDescriptorName=).", func(l *listener) *string { return &l.Inherit }),
	field("datagrams", truth(true), "false", "Of an inherited socket: it carries datagrams.", func(l *listener) *bool { return &l.Datagrams }),
	field("mode", mode, "", "Permissions of a Unix socket's path; by default the umask's.", func(l *listener) *uint32 { return &l.Mode }),
	field("backlog", count(1<<20), "0", "Clients that may wait to be accepted; 0: the kernel's most.", func(l *listener) *int { return &l.Backlog }),
	field("allow", some(prefix), "", "Clients that may come in; by default everybody.", func(l *listener) *[]netip.Prefix { return &l.Allow }),
	field("deny", list(prefix), "", "Clients that may not, even if allow has them.", func(l *listener) *[]netip.Prefix { return &l.Deny }),
	section("limits", listenerLimitsKeys, "Bounds of this listener.", func(l *listener) *spec.Limits { return &l.Limits }),
	section("proxy-protocol", proxyInKeys, "Clients that say who they are in a PROXY header, version 1 or 2.", func(l *listener) *listener { return l }),
	section("sniff", sniffKeys, "How much is read of a client before it is routed.", func(l *listener) *spec.Sniff { return &l.Sniff }),
	section("timeouts", timeoutKeys, "Of flows that come in here.", func(l *listener) *spec.Timeouts { return &l.Timeouts }),
	section("tcp", tcpKeys, "Options of the clients' sockets.", func(l *listener) *spec.Socket { return &l.TCP }),
	field("transparent", truth(true), "false", "Take clients for addresses that are not this host's (IP_TRANSPARENT, CAP_NET_ADMIN).", func(l *listener) *bool { return &l.Transparent }),
	field("interface", netInterface, "", "Only clients that come in over this interface (SO_BINDTODEVICE).", func(l *listener) *string { return &l.Interface }),
	field("replies", count(many), "0", "Datagrams: end a flow when each of the client's datagrams has had so many replies (DNS: 1); 0: do not.", func(l *listener) *int { return &l.Replies }),
	field("unreachable", oneOf("next", "end", "ignore"), "next", "Datagrams: what an ICMP error of the upstream does: the next upstream, the flow's end, nothing.", func(l *listener) *string { return &l.Unreachable }),
	section("removed", removedKeys, "What happens to live flows of a route or member that a new configuration does not have.", func(l *listener) *spec.Removed { return &l.removed }),
	apart(field("routes", list(pointer(routeKeys.typ)), "", "In order: the first that matches is taken.", func(l *listener) *[]*spec.Route { return &l.Routes })),
	field("to", groupRef, "", "Where a client goes that no route matches: a group's name, or a URL for a group of one. Without it the client is refused.", func(l *listener) **spec.Group { return &l.To }),
).oneOf("listen", "inherit")

var proxyInKeys = keysOf("listener.proxy-protocol",
	must(field("from", some(prefix), "", "Who must begin with a header. Others must not.", func(l *listener) *[]netip.Prefix { return &l.ProxyFrom })),
)

var routeKeys = keysOf("route",
	field("name", nameType, "", "In logs, metrics and what is compared on a reload; by default what to says.", func(r *spec.Route) *string { return &r.Name }),
	field("from", some(prefix), "", "The client's address. Of the conditions that are there each must hold.", func(r *spec.Route) *[]netip.Prefix { return &r.From }),
	field("sni", some(serverName), "", "Server names of a TLS ClientHello. *. stands for one or more labels.", func(r *spec.Route) *[]string { return &r.SNI }),
	field("alpn", some(text("protocol", 255)), "", "Protocols that a ClientHello offers; one of them is enough.", func(r *spec.Route) *[]string { return &r.ALPN }),
	must(field("to", groupRef, "", "A group's name, or a URL for a group of one.", func(r *spec.Route) **spec.Group { return &r.To })),
	section("removed", removedKeys, "What happens to live flows when a new configuration does not have the route, or their member.", func(r *spec.Route) *spec.Removed { return &r.Removed }),
	section("timeouts", timeoutKeys, "Of the route's flows; by default the listener's.", func(r *spec.Route) *spec.Timeouts { return &r.Timeouts }),
	field("bandwidth", bandwidth, "", "Of one flow, each way; by default the listener's.", func(r *spec.Route) *int64 { return &r.Bandwidth }),
)
