package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/quicid"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// quicKey is of groups only: IDs are those of servers.
var quicKey = comparedByKey(field("quic", pointer(quicKeys.filled()), "", "The members speak QUIC, and a connection stays at its member when its client changes its port or address. {}: with the default values. See docs/quic.md.",
	func(g *spec.Group) **spec.QUIC { return &g.QUIC }), quicKeys, func(g *spec.Group) *spec.QUIC { return g.QUIC })

var quicKeys = keysOf("group.quic",
	compositeField("ids", quicIDs, "The servers write their IDs, quic-server-id of the members, into the connection IDs that they give to clients. cloud: 8 bytes behind the first one, in the clear, as cloud load balancers want it. A list: up to seven configurations of draft-ietf-quic-load-balancers-21, with different numbers, so that a new one can take the place of an old one while connections of both exist.", func(q *spec.QUIC) *[]spec.QUICLayout { return &q.IDs }),
	field("learn", boolean(true), "true", "Learn the connection IDs that clients use with this group, so that a client is recognised whose server writes no ID of its own into them. Default: true; without quic: true where the route depends on sni or alpn of QUIC.", func(q *spec.QUIC) *bool { return &q.Learn }),
)

var quicLayoutKeys = keysOf("group.quic.ids",
	required(field("config", count(quicid.Configs-1), "", "The number of the configuration: the first three bits of a connection ID.", func(l *spec.QUICLayout) *int { return &l.Config })),
	required(field("server-id", whole[int](1, quicid.MaxServer), "", "The length of server IDs, in bytes.", func(l *spec.QUICLayout) *int { return &l.ServerID })),
	required(field("nonce", whole[int](quicid.MinNonce, quicid.MaxBlock-1), "", "The length of the nonce, in bytes; with the server ID at most 19.", func(l *spec.QUICLayout) *int { return &l.Nonce })),
	field("key", quicLayoutKey, "", "The key of AES-128 that server IDs are encrypted with, 32 hexadecimal digits. A variable, such as ${QUIC_LB_KEY}, keeps it out of the file. Default: they are in the clear, and whoever sees two paths of a client can tell that they are of one.", func(l *spec.QUICLayout) *string { return &l.Key }),
)

// quicIDs is a word, or a list of configurations.
var quicIDs = func() typ[spec.QUIC] {
	word := choice(func(string) bool { return true }, "cloud")
	layouts := nonEmptyList(quicLayoutKeys.filled())
	s := &shape{either: []*shape{word.shape, layouts.shape}}
	return typ[spec.QUIC]{s, func(r *reader, n node, q *spec.QUIC) {
		if n.Value == "cloud" {
			word.read(r, n, &q.Cloud)
			return
		}
		before := len(r.errs)
		if layouts.read(r, n, &q.IDs); len(r.errs) > before && n.Content == nil {
			r.errs[before].Allowed = allowedText(s)
		}
	}, func(q spec.QUIC) string {
		if q.Cloud {
			return "cloud"
		}
		return layouts.show(q.IDs)
	}}
}()

// hexBytes returns the type of bytes that are written as hexadecimal digits.
func hexBytes(name, allowed string, least, most int) typ[string] {
	pattern := fmt.Sprintf("^(0x)?([0-9A-Fa-f]{2}){%d,%d}$", least, most)
	return texts(name, allowed, pattern, func(s string) (string, *fault) {
		b, err := hex.DecodeString(strings.TrimPrefix(s, "0x"))
		if err != nil || len(b) < least || len(b) > most {
			return "", faultf("invalid %s", name)
		}
		return string(b), nil
	})
}

var quicServerID = hexBytes("server ID", "pairs of hexadecimal digits, of up to 15 bytes, in quotes", 1, quicid.MaxServer).shown(func(s string) string { return fmt.Sprintf("0x%x", s) })

// quicLayoutKey is a secret: whoever reads that it has changed need not read what it is.
var quicLayoutKey = hexBytes("key", "32 hexadecimal digits, in quotes", quicid.KeySize, quicid.KeySize).shown(func(s string) string {
	if s == "" {
		return "none"
	}
	sum := sha256.Sum256([]byte(s))
	return fmt.Sprintf("sha256:%x", sum[:4])
})

// checkQUIC reports connection IDs in which no server could be found.
func (r *reader) checkQUIC(g *spec.Group) {
	q := g.QUIC
	if q == nil {
		for i := range g.Members {
			r.warnNoEffect("the group has no quic with ids", &g.Members[i].QUICServerID)
		}
		return
	}
	lengths, configs := map[int]bool{}, map[int]bool{}
	if q.Cloud {
		lengths[quicid.Cloud.ServerLen()] = true
	}
	for i := range q.IDs {
		l := &q.IDs[i]
		lengths[l.ServerID] = true
		if configs[l.Config] && r.isSet(&l.Config) {
			r.fail(r.position(&l.Config), fault{problem: fmt.Sprintf("a second configuration %d", l.Config), allowed: "one for each number"})
		}
		if configs[l.Config] = true; l.ServerID+l.Nonce > quicid.MaxBlock {
			r.fail(r.position(&l.Nonce), fault{problem: fmt.Sprintf("a server ID of %d bytes and a nonce of %d have no room in a connection ID", l.ServerID, l.Nonce), allowed: fmt.Sprintf("together at most %d", quicid.MaxBlock)})
		}
	}
	members, named := map[string]string{}, false
	for i := range g.Members {
		m := &g.Members[i]
		id := m.QUICServerID
		switch other, twice := members[id]; {
		case id == "":
			continue
		case !q.Routable():
			r.warnNoEffect("the group has no quic with ids", &m.QUICServerID)
		case twice:
			r.fail(r.position(&m.QUICServerID), fault{problem: "the member " + plain(other) + " already has this ID", allowed: "one for each server"})
		case !lengths[len(id)] && len(lengths) > 0:
			r.fail(r.position(&m.QUICServerID), fault{problem: fmt.Sprintf("has %s, and ids of the group has no configuration with such server IDs", Counted(len(id), "byte")), allowed: "the length that server-id of one of ids says, or 8 with ids: cloud"})
		}
		members[id], named = m.Name, true
	}
	if q.Routable() && !named && len(g.Discover) == 0 && r.isSet(&q.IDs) {
		r.warn(r.position(&q.IDs), fault{problem: "has no effect: no member has a quic-server-id"})
	}
}
