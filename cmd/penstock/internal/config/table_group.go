package config

import (
	"net/netip"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

var groupKeys = keysOf("group",
	balanceKey(func(g *spec.Group) *spec.Group { return g }),
	field("hash", oneOf("source", "4-tuple"), "", "What maglev goes by; source by default.", func(g *spec.Group) *string { return &g.Hash }),
	apart(field("members", list(either(memberURL, memberKeys.filled())), "", "Upstreams: URLs, or mappings.", func(g *spec.Group) *[]spec.Member { return &g.Members })),
	field("discover", list(discoverKeys.filled()), "", "Upstreams that DNS names.", func(g *spec.Group) *[]spec.Discover { return &g.Discover }),
	section("lookups", lookupKeys, "What becomes of names, of members too, that DNS is asked for.", func(g *spec.Group) *spec.Lookups { return &g.Lookups }),
	section("timeouts", groupTimeoutKeys, "Of connecting.", func(g *spec.Group) *spec.GroupTimeouts { return &g.Timeouts }),
	retriesKey(func(g *spec.Group) *spec.Group { return g }),
	section("queue", queueKeys, "Where flows wait while every member is down or at its cap.", func(g *spec.Group) *spec.Queue { return &g.Queue }),
	slowStartKey(func(g *spec.Group) *spec.Group { return g }),
	checkKey(func(g *spec.Group) *spec.Group { return g }),
	ejectKey(func(g *spec.Group) *spec.Group { return g }),
	field("panic", share, "0", "Below this share of members that are well, checks and ejections are not heeded and all take flows; 0: never.", func(g *spec.Group) *float64 { return &g.Panic }),
	part("proxy-protocol", lifted(proxyOut, func(g *spec.Group) *spec.Dial { return &g.Dial }), "Say who the client is in a PROXY header.", func(g *spec.Group) *int { return &g.Dial.Proxy }),
	part("source", lifted(sourceType, func(g *spec.Group) *spec.Dial { return &g.Dial }), "Connect from these addresses in turn, or with client from the client's (IP_TRANSPARENT, CAP_NET_ADMIN).", func(g *spec.Group) *[]netip.Addr { return &g.Dial.Source }),
	field("interface", netInterface, "", "Connect over this interface (SO_BINDTODEVICE).", func(g *spec.Group) *string { return &g.Dial.Interface }),
	field("mark", mark, "0", "SO_MARK of upstreams' sockets, for routing rules (CAP_NET_ADMIN).", func(g *spec.Group) *uint32 { return &g.Dial.Mark }),
	field("dscp", dscp, "0", "Class of service of what goes to upstreams, a number or a name.", func(g *spec.Group) *uint8 { return &g.Dial.DSCP }),
	section("tcp", tcpKeys, "Options of the upstreams' sockets.", func(g *spec.Group) *spec.Socket { return &g.Dial.TCP }),
)

// Keys that defaults and groups have.

func balanceKey[T any](get func(*T) *spec.Group) key[T] {
	return field("balance", oneOf("round-robin", "least-connections", "p2c", "maglev", "random", "first"), "round-robin",
		"How a member is chosen. p2c is the better of two chosen at random; maglev keeps a client at its member; first fills one member after the other.",
		func(t *T) *string { return &get(t).Balance })
}

func retriesKey[T any](get func(*T) *spec.Group) key[T] {
	return field("retries", count(100), "2", "Further members to try after a failed connect.", func(t *T) *int { return &get(t).Retries })
}

func slowStartKey[T any](get func(*T) *spec.Group) key[T] {
	return field("slow-start", duration(0, "0"), "0", "How long a member that comes up takes to its full share.", func(t *T) *time.Duration { return &get(t).SlowStart })
}

func checkKey[T any](get func(*T) *spec.Group) key[T] {
	return field("check", either(none[spec.Check](), pointer(checkKeys)), "", "Ask members whether they are well; that of defaults is for groups that it fits. none: do not, whatever defaults says.",
		func(t *T) **spec.Check { return &get(t).Check })
}

func ejectKey[T any](get func(*T) *spec.Group) key[T] {
	return field("eject", either(none[spec.Eject](), pointer(ejectKeys.filled())), "", "Take out members whose flows fail. {}: with the defaults below; none: do not, whatever defaults says.",
		func(t *T) **spec.Eject { return &get(t).Eject })
}

var memberKeys = keysOf("member",
	must(field("to", upstreamEndpoint, "", "Where to connect.", func(m *spec.Member) *spec.Endpoint { return &m.To })),
	field("name", nameType, "", "In logs, metrics and commands; by default the URL.", func(m *spec.Member) *string { return &m.Name }),
	field("weight", whole[int](1, 256), "1", "Its share beside the others'.", func(m *spec.Member) *int { return &m.Weight }),
	field("backup", truth(true), "false", "Take it only when no other is up.", func(m *spec.Member) *bool { return &m.Backup }),
	field("max-flows", count(many), "0", "At once; 0: no bound.", func(m *spec.Member) *int { return &m.MaxFlows }),
	field("drained", truth(true), "false", "It takes no new flow.", func(m *spec.Member) *bool { return &m.Drained }),
)

var discoverKeys = keysOf("discover",
	field("dns", host, "", "A name whose addresses are members.", func(d *spec.Discover) *string { return &d.Host }),
	field("port", whole[uint16](1, 65535), "", "Of the addresses of dns.", func(d *spec.Discover) *uint16 { return &d.Port }),
	field("srv", service, "", "A service whose SRV records are members.", func(d *spec.Discover) *string { return &d.Service }),
	field("network", choice(networkOf, "tcp", "udp").shown(wordOf), "tcp", "How to connect to the addresses of dns; srv says it itself.", func(d *spec.Discover) *spec.Kind { return &d.Network }),
	field("every", duration(time.Second, ""), "30s", "How often to ask.", func(d *spec.Discover) *time.Duration { return &d.Every }),
	field("weight", count(256), "0", "Of each member; 0: 1, and of srv the record's.", func(d *spec.Discover) *int { return &d.Weight }),
	field("max-flows", count(many), "0", "Of each member at once; 0: no bound.", func(d *spec.Discover) *int { return &d.MaxFlows }),
).oneOf("dns", "srv")

var lookupKeys = keysOf("lookups",
	field("keep", duration(time.Second, "forever"), "30s", "How long members stay after DNS said that their name does not exist or has no address. While the resolver is silent or fails they stay anyway.", func(l *spec.Lookups) *time.Duration { return &l.Keep }),
	field("max-members", whole[int](1, 4096), "4096", "Members that one name may have; more are left out, and the log says so.", func(l *spec.Lookups) *int { return &l.MaxMembers }),
)

func networkOf(word string) spec.Kind {
	if word == "udp" {
		return spec.UDP
	}
	return spec.TCP
}

func wordOf(k spec.Kind) string {
	if k == spec.UDP {
		return "udp"
	}
	return "tcp"
}

var queueKeys = keysOf("queue",
	field("size", count(many), "0", "Flows that may wait; 0: nobody waits.", func(q *spec.Queue) *int { return &q.Size }),
	field("timeout", duration(time.Millisecond, ""), "5s", "How long one may wait.", func(q *spec.Queue) *time.Duration { return &q.Timeout }),
)

// Health checks. Each kind has keys of its own.

var checkKeys = besides(keysOf("check",
	checkKind("tcp", "Connect."),
	checkKind("send-expect", "Connect, send, and look at the answer.", sendExpect(1<<16)...),
	checkKind("http", "Ask over HTTP/1.1.",
		field("method", texts("method", "a method such as GET or HEAD", `^[A-Z]{1,16}$`, same), "GET", "The request's method.", func(c *spec.Check) *string { return &c.Method }),
		field("path", texts("path", "a path that begins with /", `^/[!-~]*$`, same), "/", "The request's path.", func(c *spec.Check) *string { return &c.Path }),
		field("host", texts("host", "a host, with a port or without", `^[A-Za-z0-9_.:\[\]-]{1,255}$`, same), "", "The request's Host; by default the member's address.", func(c *spec.Check) *string { return &c.Host }),
		field("statuses", some(status), "200-399", "Answers that are well.", func(c *spec.Check) *[][2]int { return &c.Statuses })),
	checkKind("udp", "Send a datagram, and look at the answer.", sendExpect(1400)...),
).oneOf("tcp", "send-expect", "http", "udp").typ)

// besides tells the mappings under the keys of another one of each other.
func besides[T any](of typ[T]) typ[T] {
	var all []*shape
	for _, k := range of.keys {
		all = append(all, k.of)
	}
	for _, s := range all {
		s.others = all
	}
	return of
}

// checkKind is the key of one kind of check: what all have, and keys of its own.
func checkKind(kind, doc string, own ...key[spec.Check]) key[spec.Check] {
	keys := append([]key[spec.Check]{
		field("every", duration(100*time.Millisecond, ""), "5s", "From one check to the next.", func(c *spec.Check) *time.Duration { return &c.Every }),
		field("jitter", share, "0.2", "The share of every by which it varies.", func(c *spec.Check) *float64 { return &c.Jitter }),
		field("timeout", duration(time.Millisecond, ""), "2s", "How long an answer may take.", func(c *spec.Check) *time.Duration { return &c.Timeout }),
		field("rise", whole[int](1, 100), "2", "Good answers in a row that bring a member up.", func(c *spec.Check) *int { return &c.Rise }),
		field("fall", whole[int](1, 100), "3", "Bad answers in a row that take it out.", func(c *spec.Check) *int { return &c.Fall }),
		field("port", whole[uint16](1, 65535), "", "Ask there; by default at the member's port.", func(c *spec.Check) *uint16 { return &c.Port }),
	}, own...)
	of := keysOf("check."+kind, keys...)
	return part(kind, typ[spec.Check]{of.shape, func(r *reader, n node, c *spec.Check) {
		c.Kind = kind
		of.read(r, n, c)
		of.fill(r, c, nil)
	}, func(c spec.Check) string {
		if c.Kind != kind {
			return ""
		}
		return of.show(c)
	}}, doc, func(c *spec.Check) *string { return &c.Kind })
}

func sendExpect(most int) []key[spec.Check] {
	return []key[spec.Check]{
		must(field("send", octets(most), "", "What is sent.", func(c *spec.Check) *[]byte { return &c.Send })),
		field("expect", octets(most), "", "What the answer must contain; by default any answer will do.", func(c *spec.Check) *[]byte { return &c.Expect }),
	}
}

func same(s string) (string, *fault) { return s, nil }

var ejectKeys = keysOf("eject",
	field("failures", whole[int](1, many), "5", "Failed flows in a row.", func(e *spec.Eject) *int { return &e.Failures }),
	field("for", duration(100*time.Millisecond, ""), "10s", "The first time; each further time doubles it.", func(e *spec.Eject) *time.Duration { return &e.For }),
	field("max", duration(100*time.Millisecond, ""), "5m", "The longest time.", func(e *spec.Eject) *time.Duration { return &e.Max }),
	field("share", share, "0.5", "The share of the group's members that may be out at most.", func(e *spec.Eject) *float64 { return &e.Share }),
)

// Who the client is, towards upstreams.

var proxyOut = either(
	typ[spec.Dial]{proxyVersion.shape, func(r *reader, n node, d *spec.Dial) { proxyVersion.read(r, n, &d.Proxy) }, nil},
	keysOf("group.proxy-protocol",
		must(field("version", whole[int](1, 2), "", "Of the header.", func(d *spec.Dial) *int { return &d.Proxy })),
		field("tlvs", tlvs, "", "Values to add to version 2, by type.", func(d *spec.Dial) *[]spec.TLV { return &d.ProxyTLVs }),
		field("names", truth(true), "false", "Add the server name and ALPN of a TLS client to version 2.", func(d *spec.Dial) *bool { return &d.ProxySNI }),
	).typ)

var proxyVersion = choice(func(word string) int { return int(word[1] - '0') }, "v1", "v2")
