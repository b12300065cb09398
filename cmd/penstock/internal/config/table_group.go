package config

import (
	"strings"

	"net/netip"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

var groupKeys = keysOf("group",
	balanceKey(func(g *spec.Group) *spec.Group { return g }),
	field("hash", hashType, "", "What maglev hashes. source: the client's address; 4-tuple: both addresses and ports; sni: the server name of a TLS client; tlv:0xNN: a TLV of the client's PROXY header. A client without a server name or TLV is hashed by its address. Default: source.", func(g *spec.Group) *string { return &g.Hash }),
	comparedByPart(field("members", list(scalarOr(memberURL, memberKeys.filled())), "", "Upstreams, each a URL or a mapping.", func(g *spec.Group) *[]spec.Member { return &g.Members })),
	field("discover", list(discoverKeys.filled()), "", "Upstreams that are found by DNS or in a registry.", func(g *spec.Group) *[]spec.Discover { return &g.Discover }),
	field("zone", oneOf("none", spec.ZonePrefer, spec.ZoneWeighted), "none", "prefer: use members of the relay's own zone (penstock run --zone), and others when those do not suffice. weighted: with xds, localities get flows by their weights. none: zones do not matter.", func(g *spec.Group) *string { return &g.Zone }),
	section("lookups", lookupKeys, "How answers of DNS and registries are used, for discover and for members with a host name.", func(g *spec.Group) *spec.Lookups { return &g.Lookups }),
	section("timeouts", groupTimeoutKeys, "Timeouts of connecting.", func(g *spec.Group) *spec.GroupTimeouts { return &g.Timeouts }),
	retriesKey(func(g *spec.Group) *spec.Group { return g }),
	section("queue", queueKeys, "Where flows wait while every member is down or at its max-flows.", func(g *spec.Group) *spec.Queue { return &g.Queue }),
	slowStartKey(func(g *spec.Group) *spec.Group { return g }),
	checkKey(func(g *spec.Group) *spec.Group { return g }),
	ejectKey(func(g *spec.Group) *spec.Group { return g }),
	field("panic", share, "0", "If less than this share of the members is up, ignore checks and ejections and use all members. 0: never. Default with xds: 0.5, for each priority by itself, as in Envoy (docs/xds.md).", func(g *spec.Group) *float64 { return &g.Panic }),
	compositeField("proxy-protocol", readInto(proxyOut, func(g *spec.Group) *spec.Dial { return &g.Dial }), "Send a PROXY header, which tells the upstream the client's address.", func(g *spec.Group) *int { return &g.Dial.Proxy }),
	compositeField("source", readInto(sourceType, func(g *spec.Group) *spec.Dial { return &g.Dial }), "Connect from these addresses in turn. client: from the client's own address (IP_TRANSPARENT; requires CAP_NET_ADMIN).", func(g *spec.Group) *[]netip.Addr { return &g.Dial.Source }),
	field("interface", netInterface, "", "Connect through this interface (SO_BINDTODEVICE).", func(g *spec.Group) *string { return &g.Dial.Interface }),
	field("mark", mark, "0", "SO_MARK of the upstreams' sockets, for routing rules (requires CAP_NET_ADMIN).", func(g *spec.Group) *uint32 { return &g.Dial.Mark }),
	field("dscp", dscp, "0", "Differentiated services code point of packets to upstreams, a number or a name.", func(g *spec.Group) *uint8 { return &g.Dial.DSCP }),
	section("tcp", tcpKeys, "Options of the upstreams' sockets.", func(g *spec.Group) *spec.Socket { return &g.Dial.TCP }),
	comparedByKey(field("tls", clientTLS, "false", "Originate TLS to the members, and check them with it. true, or {}: with the default values.", func(g *spec.Group) **spec.ClientTLS { return &g.TLS }), clientTLSKeys, func(g *spec.Group) *spec.ClientTLS { return g.TLS }),
)

// Keys that defaults and groups share.

func balanceKey[T any](get func(*T) *spec.Group) key[T] {
	var names, docs []string
	for _, b := range spec.Balancers {
		names = append(names, b.Name)
		if b.Doc != "" {
			docs = append(docs, b.Name+": "+b.Doc)
		}
	}
	return field("balance", oneOf(names...), names[0], "How a member is chosen. "+strings.Join(docs, "; ")+".",
		func(t *T) *string { return &get(t).Balance })
}

func retriesKey[T any](get func(*T) *spec.Group) key[T] {
	return field("retries", count(100), "2", "Further members to try after a failed connect.", func(t *T) *int { return &get(t).Retries })
}

func slowStartKey[T any](get func(*T) *spec.Group) key[T] {
	return field("slow-start", duration(0, "0"), "0", "How long a member that has come up takes to reach its full share of flows. 0: no time.", func(t *T) *time.Duration { return &get(t).SlowStart })
}

func checkKey[T any](get func(*T) *spec.Group) key[T] {
	return field("check", scalarOr(none[spec.Check](), pointer(checkKeys)), "", "Active health check. In defaults it applies to the groups whose members it fits. none: no check, whatever defaults has.",
		func(t *T) **spec.Check { return &get(t).Check })
}

func ejectKey[T any](get func(*T) *spec.Group) key[T] {
	return field("eject", scalarOr(none[spec.Eject](), pointer(ejectKeys.filled())), "", "Eject members whose flows fail to connect. {}: with the default values; none: never, whatever defaults has.",
		func(t *T) **spec.Eject { return &get(t).Eject })
}

var memberKeys = keysOf("member",
	required(field("to", upstreamEndpoint, "", "Where to connect.", func(m *spec.Member) *spec.Endpoint { return &m.To })),
	field("name", nameType, "", "The member's name in logs, metrics and commands. Default: the URL.", func(m *spec.Member) *string { return &m.Name }),
	field("weight", whole[int](1, 256), "1", "The member's share of flows relative to the others.", func(m *spec.Member) *int { return &m.Weight }),
	field("backup", boolean(true), "false", "Use the member only when no other one can take the flow.", func(m *spec.Member) *bool { return &m.Backup }),
	field("max-flows", count(maxCount), "0", "Maximum number of open flows. 0: no limit.", func(m *spec.Member) *int { return &m.MaxFlows }),
	field("drained", boolean(true), "false", "The member takes no new flows.", func(m *spec.Member) *bool { return &m.Drained }),
)

var discoverKeys = keysOf("discover",
	field("dns", host, "", "A host name whose addresses become members.", func(d *spec.Discover) *string { return &d.Host }),
	field("srv", service, "", "A service whose SRV records become members.", func(d *spec.Discover) *string { return &d.Service }),
	registryKey("etcd", "A prefix of keys in etcd. Each key below it is a member: its value is an address, or JSON.", `^/[^\x00-\x1f\x7f]+$`, "a prefix that begins with /"),
	registryKey("consul", "A service in Consul. Its healthy instances become members.", `^[A-Za-z0-9_.-]{1,253}$`, "the name of a service"),
	registryKey("kubernetes", "A service in Kubernetes, NAMESPACE/SERVICE. The endpoints of its EndpointSlices become members.", `^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`, "NAMESPACE/SERVICE"),
	registryKey("xds", "A ClusterLoadAssignment of an xDS control plane (EDS).", `^[^\x00-\x1f\x7f]+$`, "a name"),
	field("registry", nameType, "", "Which of registries to use. Default: the only one of this kind.", func(d *spec.Discover) *string { return &d.Registry.Name }),
	field("port", whole[uint16](1, 65535), "", "With dns: the members' port. With kubernetes: the port to use, where the service has several.", func(d *spec.Discover) *uint16 { return &d.Port }),
	field("port-name", texts("port name", "the name of a port", `^[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?$`, keepText), "", "With kubernetes: the name of the port to use.", func(d *spec.Discover) *string { return &d.PortName }),
	field("tags", tagList, "", "With consul: tags that an instance must have.", func(d *spec.Discover) *string { return &d.Tags }),
	field("datacenter", consulName("datacenter"), "", "With consul: where to look. Default: the datacenter of the agent.", func(d *spec.Discover) *string { return &d.Datacenter }),
	field("namespace", consulName("namespace"), "", "With consul: the namespace of the service (Consul Enterprise). Default: that of the token.", func(d *spec.Discover) *string { return &d.Namespace }),
	field("partition", consulName("partition"), "", "With consul: the admin partition of the service (Consul Enterprise). Default: that of the agent.", func(d *spec.Discover) *string { return &d.Partition }),
	field("peer", consulName("peer"), "", "With consul: the peer from which the service is imported (cluster peering).", func(d *spec.Discover) *string { return &d.Peer }),
	field("family", oneOf("ipv4", "ipv6", "any"), "", "With kubernetes: which addresses of a service with two stacks are members. any: both. Default: one of each pod, IPv4 unless this host has a route to the IPv6 address only.", func(d *spec.Discover) *string { return &d.Family }),
	field("stale", boolean(true), "false", "With consul: any server may answer, not only the leader.", func(d *spec.Discover) *bool { return &d.Stale }),
	field("network", choice(networkOf, "tcp", "udp").shown(wordOf), "tcp", "The members' protocol. srv names its own.", func(d *spec.Discover) *spec.Kind { return &d.Network }),
	field("every", duration(time.Second, ""), "30s", "Time between look-ups in DNS.", func(d *spec.Discover) *time.Duration { return &d.Every }),
	field("weight", count(256), "0", "Weight of each member. 0: what the source says, or 1.", func(d *spec.Discover) *int { return &d.Weight }),
	field("max-flows", count(maxCount), "0", "Maximum number of open flows per member. 0: no limit.", func(d *spec.Discover) *int { return &d.MaxFlows }),
).oneOf(append([]string{"dns", "srv"}, spec.RegistryKinds...)...)

// consulName is the name of something in Consul.
func consulName(what string) typ[string] {
	return texts(what, "the name of a "+what, `^[A-Za-z0-9_-]{1,128}$`, keepText)
}

var lookupKeys = keysOf("lookups",
	field("keep", duration(time.Second, "forever"), "30s", "How long members stay after DNS has said that their name does not exist or has no address. As long as the resolver fails or does not answer, they stay.", func(l *spec.Lookups) *time.Duration { return &l.Keep }),
	field("max-members", whole[int](1, 65536), "10000", "Maximum number of members per name or source. Further ones are left out, and the log says so.", func(l *spec.Lookups) *int { return &l.MaxMembers }),
	field("vanish", someShare, "0.5", "If an answer has so few members that more than this share of them is gone, or none at all, they stay until the answers have been so for keep. One of several may always go.", func(l *spec.Lookups) *float64 { return &l.Vanish }),
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
	field("size", count(maxCount), "0", "Maximum number of queued flows. 0: no queue.", func(q *spec.Queue) *int { return &q.Size }),
	field("timeout", duration(time.Millisecond, ""), "5s", "How long a flow may be queued.", func(q *spec.Queue) *time.Duration { return &q.Timeout }),
)

// Health checks. Each kind has its own keys.

var checkKeys = withSiblings(keysOf("check",
	checkKind("tcp", "Connect. With TLS: and shake hands."),
	checkKind("send-expect", "Connect, send data, and check the answer.", sendExpect(1<<16)...),
	checkKind("http", "Send an HTTP/1.1 request, and check the status and the body.",
		field("method", texts("method", "a method such as GET or HEAD", `^[A-Z]{1,16}$`, keepText), "GET", "The request's method.", func(c *spec.Check) *string { return &c.Method }),
		field("path", texts("path", "a path that begins with /", `^/[!-~]*$`, keepText), "/", "The request's path.", func(c *spec.Check) *string { return &c.Path }),
		field("host", texts("host", "a host, with a port or without", `^[A-Za-z0-9_.:\[\]-]{1,255}$`, keepText), "", "The request's Host. Default: the member's address; with TLS the name in its certificate (server-name, or the member's host).", func(c *spec.Check) *string { return &c.Host }),
		field("statuses", nonEmptyList(status), "200-399", "Statuses of a good answer.", func(c *spec.Check) *[][2]int { return &c.Statuses }),
		field("body", text("text", 1024), "", "What the body of a good answer contains, in its first 64 KiB.", func(c *spec.Check) *string { return &c.Body }),
		field("body-matches", bodyPattern, "", "A regular expression (RE2) that the first 64 KiB of the body of a good answer match, such as \"(?i)status: *ok\".", func(c *spec.Check) *string { return &c.BodyRE })),
	checkKind("udp", "Send a datagram, and check the answer.", sendExpect(1400)...),
).oneOf("tcp", "send-expect", "http", "udp").typ)

// withSiblings makes the mappings under the keys of a mapping siblings of each other.
func withSiblings[T any](of typ[T]) typ[T] {
	var all []*shape
	for _, k := range of.keys {
		all = append(all, k.of)
	}
	for _, s := range all {
		s.siblings = all
	}
	return of
}

// checkKind returns the key of one kind of check, with the common keys and its own.
func checkKind(kind, doc string, own ...key[spec.Check]) key[spec.Check] {
	keys := append([]key[spec.Check]{
		field("every", duration(100*time.Millisecond, ""), "5s", "Time from one check to the next.", func(c *spec.Check) *time.Duration { return &c.Every }),
		field("jitter", share, "0.2", "Random variation of every, as a share of it.", func(c *spec.Check) *float64 { return &c.Jitter }),
		field("timeout", duration(time.Millisecond, ""), "2s", "Maximum time of one check.", func(c *spec.Check) *time.Duration { return &c.Timeout }),
		field("rise", whole[int](1, 100), "2", "Number of successful checks in a row that brings a member up.", func(c *spec.Check) *int { return &c.Rise }),
		field("fall", whole[int](1, 100), "3", "Number of failed checks in a row that takes a member down.", func(c *spec.Check) *int { return &c.Fall }),
		field("source", address, "", "Connect from this address. Default: the group's source; where that is client, an address of this host.", func(c *spec.Check) *netip.Addr { return &c.Source }),
		field("shared", count(100), "0", "In a fleet: how many relays check a member, for all of them. 0: each relay checks for itself, as also one does that has no contact with the fleet.", func(c *spec.Check) *int { return &c.Shared }),
		field("port", whole[uint16](1, 65535), "", "The port to check. Default: the member's, or the first one of its range.", func(c *spec.Check) *uint16 { return &c.Port }),
	}, own...)
	if kind != "udp" {
		keys = append(keys, compositeField("tls", checkClientTLS, "Check with TLS: as tls of a group, for groups that pass TLS through. false: without. Default: as the group's tls says.", func(c *spec.Check) **spec.ClientTLS { return &c.TLS }))
	}
	of := keysOf("check."+kind, keys...)
	return compositeField(kind, typ[spec.Check]{of.shape, func(r *reader, n node, c *spec.Check) {
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
		required(field("send", octets(most), "", "The data to send.", func(c *spec.Check) *[]byte { return &c.Send })),
		field("expect", octets(most), "", "What the answer must contain. Default: any answer is good.", func(c *spec.Check) *[]byte { return &c.Expect }),
	}
}

// keepText is for texts that need no more than their pattern.
func keepText(s string) (string, *fault) { return s, nil }

var ejectKeys = keysOf("eject",
	field("failures", whole[int](1, maxCount), "5", "Number of failed connects in a row that ejects a member.", func(e *spec.Eject) *int { return &e.Failures }),
	field("for", duration(100*time.Millisecond, ""), "10s", "Duration of the first ejection. Each further one doubles it.", func(e *spec.Eject) *time.Duration { return &e.For }),
	field("max", duration(100*time.Millisecond, ""), "5m", "Maximum duration of an ejection.", func(e *spec.Eject) *time.Duration { return &e.Max }),
	field("share", share, "0.5", "Maximum share of the group's members that may be ejected at the same time.", func(e *spec.Eject) *float64 { return &e.Share }),
)

// PROXY headers to upstreams.

var proxyOut = scalarOr(
	typ[spec.Dial]{proxyVersion.shape, func(r *reader, n node, d *spec.Dial) { proxyVersion.read(r, n, &d.Proxy) }, nil},
	keysOf("group.proxy-protocol",
		required(field("version", whole[int](1, 2), "", "Version of the header.", func(d *spec.Dial) *int { return &d.Proxy })),
		field("tlvs", tlvs, "", "Version 2: TLVs to add, by type.", func(d *spec.Dial) *[]spec.TLV { return &d.ProxyTLVs }),
		compositeField("forward", forwardType, "Version 2: TLVs to pass on from the PROXY header of the client, by type (0x01 is ALPN, 0x02 the server name); all: all of them. tlvs and names take precedence.", func(d *spec.Dial) *[]uint8 { return &d.ForwardTLVs }),
		field("names", boolean(true), "false", "Version 2: add the server name and ALPN protocol of a TLS client.", func(d *spec.Dial) *bool { return &d.ProxySNI }),
		field("tls", boolean(true), "false", "Version 2, behind a listener that terminates TLS: add its version and cipher, whether the client has a certificate that was verified, and its common name (PP2_TYPE_SSL).", func(d *spec.Dial) *bool { return &d.ProxyTLS }),
		field("certificate", boolean(true), "false", "With tls: add the client's certificate, in DER, if it has at most 3072 bytes.", func(d *spec.Dial) *bool { return &d.ProxyCertificate }),
	).typ)

var proxyVersion = choice(func(word string) int { return int(word[1] - '0') }, "v1", "v2")
