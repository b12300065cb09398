package config

import (
	"slices"
	"strconv"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Filling in a listener leaves out its routes, which inherit from the listener.
var listenerKeys = keysOf("listener",
	field("listen", listenEndpoint, "", "The address to listen on. Port 0: any free port; A-B: a range of ports.", func(l *listener) *spec.Endpoint { return &l.Listen }),
	field("inherit", nameType, "", "Use the socket that systemd passes under this name (FileDescriptorName=).", func(l *listener) *string { return &l.Inherit }),
	field("datagrams", boolean(true), "false", "With inherit: the socket carries datagrams.", func(l *listener) *bool { return &l.Datagrams }),
	field("mode", mode, "", "Permissions of a Unix socket's path. Default: set by the umask.", func(l *listener) *uint32 { return &l.Mode }),
	field("backlog", count(1<<20), "0", "Maximum number of connections that wait to be accepted. 0: the kernel's maximum.", func(l *listener) *int { return &l.Backlog }),
	field("allow", nonEmptyList(network), "", "Client addresses that are admitted. Default: all.", func(l *listener) *[]spec.Network { return &l.Allow }),
	field("deny", list(network), "", "Client addresses that are refused, even if allow contains them.", func(l *listener) *[]spec.Network { return &l.Deny }),
	section("limits", listenerLimitsKeys, "Limits of this listener.", func(l *listener) *spec.Limits { return &l.Limits }),
	section("proxy-protocol", proxyInKeys, "Accept PROXY headers, version 1 or 2, from trusted proxies; on UDP version 2, and Cloudflare's Simple Proxy Protocol.", func(l *listener) *listener { return l }),
	section("sniff", sniffKeys, "How much a client may send before it is routed, where its first bytes matter.", func(l *listener) *spec.Sniff { return &l.Sniff }),
	section("timeouts", timeoutKeys, "Timeouts of the listener's flows.", func(l *listener) *spec.Timeouts { return &l.Timeouts }),
	section("tcp", tcpKeys, "Options of the clients' sockets.", func(l *listener) *spec.Socket { return &l.TCP }),
	comparedByKey(field("tls", pointer(serverTLSKeys.filled()), "", "Terminate TLS, on streams. Without it, TLS passes through untouched. See docs/tls.md.", func(l *listener) **spec.ServerTLS { return &l.TLS }), serverTLSKeys, serverTLSOf),
	field("starttls", startTLSType, "", "postgresql: clients may ask for TLS as PostgreSQL's do (SSLRequest), or begin it at once; what is in the clear is refused. {protocol: postgresql, clear: cancel}: requests to cancel may be in the clear. Default: TLS begins at once. See docs/tls.md.", func(l *listener) *spec.StartTLS { return &l.StartTLS }),
	field("transparent", boolean(true), "false", "Accept clients for addresses that are not this host's (IP_TRANSPARENT; requires CAP_NET_ADMIN).", func(l *listener) *bool { return &l.Transparent }),
	field("interface", netInterface, "", "Accept clients on this interface only (SO_BINDTODEVICE).", func(l *listener) *string { return &l.Interface }),
	field("amplification", amplificationType, "0", "Datagrams: send a client at most this many times the bytes that came from it, until it has sent something after the first reply, so that forged addresses receive little. QUIC has 3, answers of DNS need up to 30 and more. {ratio: 3, always: true}: for as long as the flow lasts, also against who sends blindly again and again. 0: no limit.", func(l *listener) *spec.Amplification { return &l.Amplification }),
	field("replies", count(maxCount), "0", "Datagrams: end a flow when each of the client's datagrams has had this many replies (DNS: 1). 0: do not count replies.", func(l *listener) *int { return &l.Replies }),
	field("unreachable", oneOf("next", "end", "ignore"), "next", "Datagrams: what happens on an ICMP error from the upstream, or when this host has no route there. next: go on to the next upstream; where there is no route and no other upstream, the flow stays; end: end the flow; ignore: nothing.", func(l *listener) *string { return &l.Unreachable }),
	field("tos", oneOf("none", "ecn", "copy"), "none", "UDP: what datagrams keep of the TOS byte (IPv6: traffic class) with which they arrive, in both directions. none: nothing; ecn: the marks of congestion (ECN), for QUIC, L4S and RTP; copy: these and the DSCP, so that clients choose it instead of dscp of the group.", func(l *listener) *string { return &l.TOS }),
	section("removed", removedKeys, "What happens to open flows when a reload removes their route or member.", func(l *listener) *spec.LiveFlows { return &l.removed }),
	comparedByPart(field("routes", list(pointer(routeKeys.typ)), "", "Routes in order: a client takes the first one that matches.", func(l *listener) *[]*spec.Route { return &l.Routes })),
	field("to", partsType, "", "Default route: where clients go that match no other route. A group's name, or the URL of a single upstream, or a list of parts that share the clients by weight. Without it such clients are refused.", func(l *listener) *[]spec.Part { return &l.To }),
	splitByKey(func(l *listener) *string { return &l.SplitBy }),
).oneOf("listen", "inherit")

// amplificationType is a ratio, or a mapping with it.
var amplificationType = func() typ[spec.Amplification] {
	keys := keysOf("listener.amplification",
		required(field("ratio", whole[int](1, maxCount), "", "Bytes to a client for each byte from it.", func(a *spec.Amplification) *int { return &a.Ratio })),
		field("always", boolean(true), "false", "Also to clients that have sent something after the first reply: WireGuard, games and DNS with limited answers do with it; downloads do not.", func(a *spec.Amplification) *bool { return &a.Always }),
	)
	number := count(maxCount)
	ratio := typ[spec.Amplification]{number.shape, func(r *reader, n node, a *spec.Amplification) {
		*a = spec.Amplification{}
		number.read(r, n, &a.Ratio)
	}, nil}
	return scalarOr(ratio, keys.filled()).shown(func(a spec.Amplification) string {
		if a.Always {
			return "{ratio: " + strconv.Itoa(a.Ratio) + ", always: true}"
		}
		return strconv.Itoa(a.Ratio)
	})
}()

var routeKeys = keysOf("route", slices.Concat([]key[spec.Route]{
	field("name", nameType, "", "The route's name in logs and metrics. A reload recognizes the route by it. Default: the value of to, if that is one group.", func(r *spec.Route) *string { return &r.Name }),
	field("from", nonEmptyList(network), "", "Client addresses that match. If a route has several conditions, all of them must hold.", func(r *spec.Route) *[]spec.Network { return &r.From }),
	field("sni", nonEmptyList(serverName), "", "Server names of a ClientHello, of TLS or on UDP of QUIC, that match. A leading *. matches one or more labels.", func(r *spec.Route) *[]string { return &r.SNI }),
	field("alpn", nonEmptyList(text("protocol", 255)), "", "Protocols of TLS (ALPN). The route matches a client whose ClientHello offers one of them; where TLS ends at the listener, one with whom the listener has agreed on one of them.", func(r *spec.Route) *[]string { return &r.ALPN }),
}, firstKeys, []key[spec.Route]{
	field("client-names", nonEmptyList(clientName), "", "With tls.clients of the listener: names in a client's certificate that match if it has one of them: a URI such as a SPIFFE ID, a DNS name or common name, an address of mail. A leading *. matches one or more labels of a DNS name, /* at the end of a URI whatever follows.", func(r *spec.Route) *[]string { return &r.ClientNames }),
	field("tls", choice(func(word string) bool { return word == "pass" }, "terminate", "pass").shown(routeTLSWord), "", "pass: TLS passes through untouched, although the listener terminates it. terminate: it does not, which is the default where the listener has tls.", func(r *spec.Route) *bool { return &r.PassTLS }),
	required(field("to", partsType, "", "Where clients go: a group's name, or the URL of a single upstream, or a list of parts that share the clients by weight.", func(r *spec.Route) *[]spec.Part { return &r.To })),
	splitByKey(func(r *spec.Route) *string { return &r.SplitBy }),
	section("removed", removedKeys, "What happens to open flows when a reload removes the route or their member. Default: the listener's.", func(r *spec.Route) *spec.LiveFlows { return &r.Removed }),
	section("timeouts", timeoutKeys, "Timeouts of the route's flows. Default: the listener's.", func(r *spec.Route) *spec.Timeouts { return &r.Timeouts }),
	field("bandwidth", bandwidth, "", "Maximum bandwidth of one flow in each direction. Default: the listener's.", func(r *spec.Route) *int64 { return &r.Bandwidth }),
})...)

var sniffKeys = keysOf("sniff",
	field("max", size(512, 1<<20), "64KiB", "Maximum size of a PROXY header and of what else is read before a client is routed (a ClientHello, the first lines of HTTP) together, or of the datagrams of a QUIC client until its ClientHello is complete.", func(s *spec.Sniff) *int { return &s.Max }),
	field("timeout", duration(time.Millisecond, ""), "5s", "How long a client may take to send them. What its first bytes may still become then counts as not so.", func(s *spec.Sniff) *time.Duration { return &s.Timeout }),
	field("ja4", boolean(true), "false", "Record the JA4 fingerprint of a ClientHello that is read, of TLS or QUIC: as ja4 in the access log and in the details of a flow.", func(s *spec.Sniff) *bool { return &s.JA4 }),
)

// downKey and upKey are of groups and defaults.
func downKey[T any](get func(*T) *spec.Group) key[T] {
	return section("down", removedKeys, "What happens to open flows of a member that goes down or is ejected, unless most of the group does so at about the same time. after begins when the member goes down, and a member that is up again keeps its flows.", func(t *T) *spec.LiveFlows { return &get(t).Down })
}

func upKey[T any](get func(*T) *spec.Group) key[T] {
	return section("up", removedKeys, "What happens to open flows of backup members when another member is up again after none was.", func(t *T) *spec.LiveFlows { return &get(t).Up })
}

var removedKeys = keysOf("removed",
	field("live-flows", oneOf("keep", "drain", "close"), "keep", "keep: they continue. drain: they continue until a deadline. close: they end at once.", func(r *spec.LiveFlows) *string { return &r.What }),
	field("after", duration(0, "0"), "30s", "drain: how long flows may continue.", func(r *spec.LiveFlows) *time.Duration { return &r.After }),
	field("jitter", duration(0, "0"), "0", "drain: spread the ends of flows over this long before the deadline.", func(r *spec.LiveFlows) *time.Duration { return &r.Jitter }),
)
