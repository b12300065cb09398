package config

import (
	"net/netip"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

var groupKeys = keysOf("group",
	balanceKey(func(g *spec.Group) *spec.Group { return g }),
	field("hash", hashType, "", "What maglev hashes. source: the client's address; 4-tuple: both addresses and ports; sni: the server name of a TLS client; tlv:0xNN: a TLV of the client's PROXY header. A client without a server name or TLV is hashed by its address. Default: source.", func(g *spec.Group) *string { return &g.Hash }),
	comparedByPart(field("members", list(scalarOr(memberURL, memberKeys.filled())), "", "Upstreams, each a URL or a mapping.", func(g *spec.Group) *[]spec.Member { return &g.Members })),
	field("discover", list(discoverKeys.filled()), "", "Upstreams that are found by DNS or in a registry.", func(g *spec.Group) *[]spec.Discover { return &g.Discover }),
	destinationKey,
	field("zone", oneOf("none", spec.ZonePrefer, spec.ZoneWeighted), "none", "prefer: use members of the relay's own zone (penstock run --zone), and others when those do not suffice. weighted: with xds, localities get flows by their weights. none: zones do not matter.", func(g *spec.Group) *string { return &g.Zone }),
	section("lookups", lookupKeys, "How answers of DNS and registries are used, for discover and for members with a host name.", func(g *spec.Group) *spec.Lookups { return &g.Lookups }),
	section("timeouts", groupTimeoutKeys, "Timeouts of connecting.", func(g *spec.Group) *spec.GroupTimeouts { return &g.Timeouts }),
	retriesKey(func(g *spec.Group) *spec.Group { return g }),
	section("queue", queueKeys, "Where flows wait while every member is down or at its max-flows.", func(g *spec.Group) *spec.Queue { return &g.Queue }),
	slowStartKey(func(g *spec.Group) *spec.Group { return g }),
	checkKey(func(g *spec.Group) *spec.Group { return g }),
	agentKey,
	ejectKey(func(g *spec.Group) *spec.Group { return g }),
	downKey(func(g *spec.Group) *spec.Group { return g }),
	upKey(func(g *spec.Group) *spec.Group { return g }),
	rebalanceKey(func(g *spec.Group) *spec.Group { return g }),
	field("panic", share, "0", "If less than this share of the members is up, ignore checks and ejections and use all members. 0: never. Default with xds: 0.5, for each priority by itself, as in Envoy (docs/xds.md).", func(g *spec.Group) *float64 { return &g.Panic }),
	compositeField("proxy-protocol", readInto(proxyOut, func(g *spec.Group) *spec.Dial { return &g.Dial }), "Send a PROXY header, which tells the upstream the client's address.", func(g *spec.Group) *int { return &g.Dial.Proxy }),
	compositeField("source", readInto(sourceType, func(g *spec.Group) *spec.Dial { return &g.Dial }), "Connect from these addresses in turn. client: from the client's own address (IP_TRANSPARENT; requires CAP_NET_ADMIN).", func(g *spec.Group) *[]netip.Addr { return &g.Dial.Source }),
	field("interface", netInterface, "", "Connect through this interface (SO_BINDTODEVICE).", func(g *spec.Group) *string { return &g.Dial.Interface }),
	field("mark", mark, "0", "SO_MARK of the upstreams' sockets, for routing rules (requires CAP_NET_ADMIN).", func(g *spec.Group) *uint32 { return &g.Dial.Mark }),
	field("dscp", dscp, "0", "Differentiated services code point of packets to upstreams, a number or a name.", func(g *spec.Group) *uint8 { return &g.Dial.DSCP }),
	section("tcp", tcpKeys, "Options of the upstreams' sockets.", func(g *spec.Group) *spec.Socket { return &g.Dial.TCP }),
	quicKey,
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

var memberKeys = keysOf("member",
	required(field("to", upstreamEndpoint, "", "Where to connect.", func(m *spec.Member) *spec.Endpoint { return &m.To })),
	field("name", nameType, "", "The member's name in logs, metrics and commands. Default: the URL.", func(m *spec.Member) *string { return &m.Name }),
	field("weight", whole[int](1, 256), "1", "The member's share of flows relative to the others.", func(m *spec.Member) *int { return &m.Weight }),
	field("backup", boolean(true), "false", "Use the member only when no other one can take the flow.", func(m *spec.Member) *bool { return &m.Backup }),
	field("max-flows", count(maxCount), "0", "Maximum number of open flows. 0: no limit.", func(m *spec.Member) *int { return &m.MaxFlows }),
	field("drained", boolean(true), "false", "The member takes no new flows.", func(m *spec.Member) *bool { return &m.Drained }),
	field("check-port", whole[uint16](1, 65535), "", "The port to check. Default: as the group's check says.", func(m *spec.Member) *uint16 { return &m.CheckPort }),
	field("check-address", address, "", "The address to check. Default: the member's own.", func(m *spec.Member) *netip.Addr { return &m.CheckAddress }),
	field("agent-port", whole[uint16](1, 65535), "", "The port of the member's agent. Default: as the group's agent says.", func(m *spec.Member) *uint16 { return &m.AgentPort }),
	field("agent-address", address, "", "The address of the member's agent. Default: the member's own.", func(m *spec.Member) *netip.Addr { return &m.AgentAddress }),
	field("agent-send", octetString(maxAgentSend), "", "What to send to the member's agent first. Default: as the group's agent says.", func(m *spec.Member) *string { return &m.AgentSend }),
	field("quic-server-id", quicServerID, "", "The member's ID in the connection IDs of QUIC, which the server there writes into them as quic of the group says: hexadecimal digits, with or without 0x.", func(m *spec.Member) *string { return &m.QUICServerID }),
)

var queueKeys = keysOf("queue",
	field("size", count(maxCount), "0", "Maximum number of queued flows. 0: no queue.", func(q *spec.Queue) *int { return &q.Size }),
	field("timeout", duration(time.Millisecond, ""), "5s", "How long a flow may be queued.", func(q *spec.Queue) *time.Duration { return &q.Timeout }),
)

// keepText is for texts that need no more than their pattern.
func keepText(s string) (string, *fault) { return s, nil }
