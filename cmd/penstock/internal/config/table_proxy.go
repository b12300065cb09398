package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

var proxyInKeys = keysOf("listener.proxy-protocol",
	required(field("from", nonEmptyList(network), "", "Addresses of proxies. Connections from them, and datagrams, must begin with a PROXY header; from others, a header is not read.", func(l *listener) *[]spec.Network { return &l.ProxyFrom })),
	field("datagrams", choice(func(word string) bool { return word == "first" }, "each", "first"), "each", "On a UDP listener, which datagrams begin with a header, of version 2 or of Cloudflare's Simple Proxy Protocol: each, and many clients may share an address and port of the proxy, or the first of a flow, in version 2, and the next ones from the same address and port are the same client's.", func(l *listener) *bool { return &l.ProxyFirst }),
)

// proxyOut is the PROXY header that upstreams are sent.
var proxyOut = scalarOr(
	typ[spec.Dial]{proxyVersion.shape, func(r *reader, n node, d *spec.Dial) { proxyVersion.read(r, n, &d.Proxy) }, nil},
	keysOf("group.proxy-protocol",
		required(field("version", whole[int](1, 2), "", "Version of the header.", func(d *spec.Dial) *int { return &d.Proxy })),
		field("datagrams", choice(func(word string) bool { return word == "first" }, "each", "first"), "each", "Version 2, behind a UDP listener: which datagrams of a flow begin with the header: each, as DNS servers and most others expect, or the first.", func(d *spec.Dial) *bool { return &d.ProxyFirst }),
		field("tlvs", tlvs, "", "Version 2: TLVs to add, by type.", func(d *spec.Dial) *[]spec.TLV { return &d.ProxyTLVs }),
		compositeField("forward", forwardType, "Version 2: TLVs to pass on from the PROXY header of the client, by type (0x01 is ALPN, 0x02 the server name); all: all of them. tlvs and names take precedence.", func(d *spec.Dial) *[]uint8 { return &d.ForwardTLVs }),
		field("names", boolean(true), "false", "Version 2: add the server name and ALPN protocol of a TLS client.", func(d *spec.Dial) *bool { return &d.ProxySNI }),
		field("tls", boolean(true), "false", "Version 2, behind a listener that terminates TLS: add its version and cipher, whether the client has a certificate that was verified, and its common name (PP2_TYPE_SSL).", func(d *spec.Dial) *bool { return &d.ProxyTLS }),
		field("certificate", boolean(true), "false", "With tls: add the client's certificate, in DER, if it has at most 3072 bytes.", func(d *spec.Dial) *bool { return &d.ProxyCertificate }),
	).typ)

var proxyVersion = choice(func(word string) int { return int(word[1] - '0') }, "v1", "v2")

// forwardType is a list of TLV types, or all of them.
var forwardType = func() typ[spec.Dial] {
	types := nonEmptyList(tlvType)
	word := choice(func(string) bool { return true }, "all")
	s := &shape{either: []*shape{word.shape, types.shape}}
	return typ[spec.Dial]{s, func(r *reader, n node, d *spec.Dial) {
		if n.Value == "all" {
			word.read(r, n, &d.ForwardAllTLVs)
			return
		}
		before := len(r.errs)
		if types.read(r, n, &d.ForwardTLVs); len(r.errs) > before && n.Content == nil {
			r.errs[before].Allowed = allowedText(s)
		}
	}, func(d spec.Dial) string {
		if d.ForwardAllTLVs {
			return "all"
		}
		return types.show(d.ForwardTLVs)
	}}
}()

// tlvs is a mapping from TLV types to values, in the order of the types. Section 2.2.7 of the
// PROXY protocol reserves these types for private use between sender and receiver.
var tlvs = func() typ[[]spec.TLV] {
	value := octets(maxTLVs)
	return typ[[]spec.TLV]{&shape{name: "TLVs", pairs: value.shape, allowed: allowedTLV}, func(r *reader, n node, to *[]spec.TLV) {
		if n.Content == nil && n.Value != "" || n.Value == "" && n.Content == nil || len(n.Content)%2 != 0 {
			r.fail(n.at, fault{problem: "is " + kindOf(n.tree), allowed: "a mapping of " + allowedTLV})
			return
		}
		var all []spec.TLV
		total := 0
		r.mapping(n, func(at *place, name string, v node) {
			kind, err := strconv.ParseUint(name, 0, 8)
			if err != nil || kind < 0xE0 || kind > 0xF7 {
				r.fail(at, fault{problem: "the TLV type " + plain(name) + " is not available", allowed: allowedTLV})
				return
			}
			if slices.ContainsFunc(all, func(t spec.TLV) bool { return t.Type == uint8(kind) }) {
				r.fail(at, fault{problem: fmt.Sprintf("duplicate TLV type 0x%X", kind), allowed: "each type once"})
				return
			}
			t := spec.TLV{Type: uint8(kind)}
			value.read(r, v, &t.Value)
			all = append(all, t)
			total += 3 + len(t.Value)
		})
		if total > maxTLVs {
			r.fail(n.at, fault{problem: fmt.Sprintf("the TLVs take %d bytes", total), allowed: fmt.Sprintf("up to %d, including 3 bytes of header each", maxTLVs)})
			return
		}
		slices.SortFunc(all, func(a, b spec.TLV) int { return cmp.Compare(a.Type, b.Type) })
		*to = all
	}, func(all []spec.TLV) string {
		var parts []string
		for _, t := range all {
			parts = append(parts, fmt.Sprintf("0x%X: %s", t.Type, value.show(t.Value)))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}}
}()

// tlvType is the type of a TLV.
var tlvType = scalar("TLV type", "a type from 0x01 to 0xFF other than 0x03 and 0x04", map[string]any{"type": "integer", "minimum": 1, "maximum": 255},
	func(text, tag string) (uint8, *fault) {
		kind, err := strconv.ParseUint(text, 0, 8)
		if err != nil || tag != "!!int" || !isTLV(kind) {
			return 0, faultf("invalid TLV type %s", quote(text))
		}
		return uint8(kind), nil
	}).shown(func(kind uint8) string { return fmt.Sprintf("0x%02X", kind) })

// isTLV reports whether a TLV of a type has a meaning beyond its own header: CRC32C and padding
// (NOOP) have none.
func isTLV(kind uint64) bool { return kind > 0 && kind <= 0xFF && kind != 3 && kind != 4 }
