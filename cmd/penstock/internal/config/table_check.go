package config

import (
	"net/netip"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

func checkKey[T any](get func(*T) *spec.Group) key[T] {
	return field("check", scalarOr(none[spec.Check](), pointer(checkKeys)), "", "Active health check. In defaults it applies to the groups whose members it fits. none: no check, whatever defaults has.",
		func(t *T) **spec.Check { return &get(t).Check })
}

// checkKeys are those of health checks. Each kind has its own keys.
var checkKeys = withSiblings(keysOf("check",
	checkKind("tcp", "Connect. With TLS: and shake hands."),
	checkKind("send-expect", "Connect, send data, and check the answer.",
		field("send", octets(1<<16), "", "The data to send. Default: nothing is sent first, as the member sends a greeting.", func(c *spec.Check) *[]byte { return &c.Send }),
		field("expect", octets(1<<16), "", expectDoc, func(c *spec.Check) *[]byte { return &c.Expect }),
		field("then", nonEmptyList(exchangeKeys.filled()), "", "Further steps, one after the other, such as a login before what is asked.", func(c *spec.Check) *[]spec.Exchange { return &c.Then })),
	checkKind("http", "Send an HTTP/1.1 request, and check the status and the body.",
		field("method", texts("method", "a method such as GET or HEAD", `^[A-Z]{1,16}$`, keepText), "GET", "The request's method.", func(c *spec.Check) *string { return &c.Method }),
		field("path", texts("path", "a path that begins with /", `^/[!-~]*$`, keepText), "/", "The request's path.", func(c *spec.Check) *string { return &c.Path }),
		field("host", texts("host", "a host, with a port or without", `^[A-Za-z0-9_.:\[\]-]{1,255}$`, keepText), "", "The request's Host. Default: the member's address; with TLS the name in its certificate (server-name, or the member's host).", func(c *spec.Check) *string { return &c.Host }),
		field("statuses", nonEmptyList(status), "200-399", "Statuses of a good answer.", func(c *spec.Check) *[][2]int { return &c.Statuses }),
		field("body", text("text", 1024), "", "What the body of a good answer contains, in its first 64 KiB.", func(c *spec.Check) *string { return &c.Body }),
		field("body-matches", bodyPattern, "", "A regular expression (RE2) that the first 64 KiB of the body of a good answer match, such as \"(?i)status: *ok\".", func(c *spec.Check) *string { return &c.BodyRE })),
	checkKind("postgres", "Begin a session of PostgreSQL: the server asks for a password, or lets the user in. None is sent.",
		databaseUser,
		field("database", text("name", 63), "", "The database of the session. Default: the one called as the user.", func(c *spec.Check) *string { return &c.Database })),
	checkKind("mysql", "Read the greeting of MySQL or MariaDB, and begin a session: the server lets the user in, or asks for a password. None is sent.", databaseUser),
	checkKind("udp", "Send a datagram, and check the answer.",
		required(field("send", octets(1400), "", "The data to send.", func(c *spec.Check) *[]byte { return &c.Send })),
		field("expect", octets(1400), "", expectDoc, func(c *spec.Check) *[]byte { return &c.Expect })),
	checkKind("quic", "Ask for the versions of QUIC that the member speaks: 1 or 2 is among them. With tls: shake hands instead.",
		field("tls", clientTLS, "", "Shake hands, which shows that the member's certificate is right. true: with the default values. Protocols: those of alpn, by default h3. Default: false.", func(c *spec.Check) **spec.ClientTLS { return &c.TLS })),
).oneOf("tcp", "send-expect", "http", "postgres", "mysql", "udp", "quic").typ)

const expectDoc = "What the answer must contain. Default: any answer is good."

var exchangeKeys = keysOf("check.send-expect.then",
	field("send", octets(1<<16), "", "The data to send. Default: nothing; what the member sends is looked for behind what was expected before.", func(e *spec.Exchange) *[]byte { return &e.Send }),
	field("expect", octets(1<<16), "", expectDoc, func(e *spec.Exchange) *[]byte { return &e.Expect }),
)

var databaseUser = field("user", text("name", 63), "penstock", "The user of the session, which the server need not know.", func(c *spec.Check) *string { return &c.User })

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
		field("every-down", duration(100*time.Millisecond, ""), "", "Time from one check to the next while the member is down. Default: every.", func(c *spec.Check) *time.Duration { return &c.EveryDown }),
		field("jitter", share, "0.2", "Random variation of every, as a share of it.", func(c *spec.Check) *float64 { return &c.Jitter }),
		field("timeout", duration(time.Millisecond, ""), "2s", "Maximum time of one check.", func(c *spec.Check) *time.Duration { return &c.Timeout }),
		field("rise", whole[int](1, 100), "2", "Number of successful checks in a row that brings a member up.", func(c *spec.Check) *int { return &c.Rise }),
		field("fall", whole[int](1, 100), "3", "Number of failed checks in a row that takes a member down.", func(c *spec.Check) *int { return &c.Fall }),
		field("source", address, "", "Connect from this address. Default: the group's source; where that is client, an address of this host.", func(c *spec.Check) *netip.Addr { return &c.Source }),
		field("shared", count(100), "0", "In a fleet: how many relays check a member, for all of them. 0: each relay checks for itself, as also one does that has no contact with the fleet.", func(c *spec.Check) *int { return &c.Shared }),
		field("port", whole[uint16](1, 65535), "", "The port to check. Default: the member's, or the first one of its range.", func(c *spec.Check) *uint16 { return &c.Port }),
	}, own...)
	if c := (&spec.Check{Kind: kind}); !c.Datagrams() {
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

// agentKey is not in defaults: agents belong to the members of a group.
var agentKey = comparedByKey(field("agent", pointer(agentKeys.filled()), "", "Ask an agent of each member for its weight and state, beside the check: docs/running.md, Agents of members.",
	func(g *spec.Group) **spec.Agent { return &g.Agent }), agentKeys, func(g *spec.Group) *spec.Agent { return g.Agent })

// maxAgentSend bounds what is sent to an agent.
const maxAgentSend = 1024

var agentKeys = keysOf("agent",
	required(field("port", whole[uint16](1, 65535), "", "The TCP port of the agents, at the members' addresses.", func(a *spec.Agent) *uint16 { return &a.Port })),
	field("every", duration(100*time.Millisecond, ""), "2s", "Time from one question to the next, with a random variation of a tenth.", func(a *spec.Agent) *time.Duration { return &a.Every }),
	field("timeout", duration(time.Millisecond, ""), "2s", "Maximum time of one question.", func(a *spec.Agent) *time.Duration { return &a.Timeout }),
	field("send", octets(maxAgentSend), "", "What to send first. Default: nothing.", func(a *spec.Agent) *[]byte { return &a.Send }),
)

func ejectKey[T any](get func(*T) *spec.Group) key[T] {
	return field("eject", scalarOr(none[spec.Eject](), pointer(ejectKeys.filled())), "", "Eject members whose flows fail to connect. {}: with the default values; none: never, whatever defaults has.",
		func(t *T) **spec.Eject { return &get(t).Eject })
}

// rebalanceKey is of groups and defaults.
func rebalanceKey[T any](get func(*T) *spec.Group) key[T] {
	return field("rebalance", scalarOr(none[spec.Rebalance](), pointer(rebalanceKeys.filled())), "", "End flows of the members that have most of them when another member begins to accept flows. {}: with the default values; none: never, whatever defaults has.",
		func(t *T) **spec.Rebalance { return &get(t).Rebalance })
}

var rebalanceKeys = keysOf("rebalance",
	field("share", someShare, "0.05", "Maximum share of the group's flows that end in a minute.", func(b *spec.Rebalance) *float64 { return &b.Share }),
	field("idle", duration(0, "0"), "0", "Only flows end that have moved no data for this long. Those that have moved none for longest are always the first.", func(b *spec.Rebalance) *time.Duration { return &b.Idle }),
	field("tolerance", share, "0.1", "A member may have this share more flows than its part of all.", func(b *spec.Rebalance) *float64 { return &b.Tolerance }),
)

var ejectKeys = keysOf("eject",
	field("failures", whole[int](1, maxCount), "5", "Number of failed connects in a row that ejects a member.", func(e *spec.Eject) *int { return &e.Failures }),
	field("for", duration(100*time.Millisecond, ""), "10s", "Duration of the first ejection. Each further one doubles it.", func(e *spec.Eject) *time.Duration { return &e.For }),
	field("max", duration(100*time.Millisecond, ""), "5m", "Maximum duration of an ejection.", func(e *spec.Eject) *time.Duration { return &e.Max }),
	field("share", share, "0.5", "Maximum share of the group's members that may be ejected at the same time.", func(e *spec.Eject) *float64 { return &e.Share }),
)
