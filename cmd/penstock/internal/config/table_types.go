package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Types of value that are used in one place.

// groupRef is a reference to a group: its name, or the URL of a single upstream. It is resolved
// when the whole file has been read.
var groupRef = func() typ[*spec.Group] {
	t := texts("group", "the name of a group, or a URL", strings.TrimSuffix(namePattern, "$")+"$|"+upstreamPattern, func(s string) (string, *fault) {
		if strings.Contains(s, ":") {
			if _, f := parseUpstream(s); f != nil {
				return "", f
			}
		}
		return s, nil
	})
	return typ[*spec.Group]{t.shape, func(r *reader, n node, g **spec.Group) {
		var s string
		before := len(r.errs)
		if t.read(r, n, &s); len(r.errs) == before {
			r.refs = append(r.refs, reference{g, s, n.at})
		}
	}, func(g *spec.Group) string {
		if g == nil {
			return "none"
		}
		return g.Name
	}}
}()

// memberURL is a member written as a URL.
var memberURL = typ[spec.Member]{upstreamEndpoint.shape, func(r *reader, n node, m *spec.Member) {
	r.places[&m.To] = n.at
	upstreamEndpoint.read(r, n, &m.To)
	m.Weight = 1
}, nil}

// none is the word for a nil pointer.
func none[V any]() typ[*V] { return choice(func(string) *V { return nil }, "none") }

// readInto reads into a part of a T.
func readInto[T, V any](of typ[V], get func(*T) *V) typ[T] {
	return typ[T]{of.shape, func(r *reader, n node, t *T) { of.read(r, n, get(t)) }, func(t T) string { return of.show(*get(&t)) }}
}

var sourceType = func() typ[spec.Dial] {
	addresses := list(address)
	word := choice(func(string) bool { return true }, "client")
	s := &shape{either: []*shape{word.shape, addresses.shape}}
	return typ[spec.Dial]{s, func(r *reader, n node, d *spec.Dial) {
		if n.Value == "client" {
			word.read(r, n, &d.Transparent)
			return
		}
		before := len(r.errs)
		if addresses.read(r, n, &d.Source); len(r.errs) > before && n.Content == nil {
			r.errs[before].Allowed = s.allowedText()
		}
	}, func(d spec.Dial) string {
		if d.Transparent {
			return "client"
		}
		return addresses.show(d.Source)
	}}
}()

// The least and the most that engine.memory may be. A daemon without flows takes about 25 MiB.
const (
	minMemory = 32 << 20
	maxMemory = 1 << 50
)

// memoryType is a number of bytes, auto or none.
var memoryType = scalar("memory", "auto, none, or at least 32MiB, as a number or with KiB, MiB, GiB or TiB", map[string]any{"anyOf": []any{
	map[string]any{"enum": []any{"auto", "none"}},
	map[string]any{"type": "integer", "minimum": int64(minMemory), "maximum": int64(maxMemory)},
	map[string]any{"type": "string", "pattern": spec.SizePattern}}},
	func(text, tag string) (int64, *fault) {
		switch {
		case text == "auto":
			return spec.MemoryAuto, nil
		case text == "none":
			return spec.MemoryNone, nil
		case tag == "!!float" || tag == "!!bool":
			return 0, faultf("invalid size %s", quote(text))
		}
		n, f := parseSize(text)
		switch {
		case f != nil && f.near == "":
			f.near = suggest(text, []string{"auto", "none"})
		case f == nil && (n < minMemory || n > maxMemory):
			f = faultf("%s is out of range", quote(text))
		}
		return n, f
	}).shown(func(n int64) string {
	switch n {
	case spec.MemoryAuto:
		return "auto"
	case spec.MemoryNone:
		return "none"
	}
	return spec.FormatSize(n)
})

var congestion = texts("congestion control", "a name such as cubic or bbr", `^[a-z0-9_-]{1,15}$`, keepText)

// netInterface is the name of a network interface. IFNAMSIZ of net/if.h is 16 with the
// terminating zero.
var netInterface = texts("interface", "a name of 1 to 15 bytes without slashes or spaces", `^[^/\s\x00-\x1f]{1,15}$`, func(s string) (string, *fault) {
	if len(s) > 15 {
		return "", faultf("invalid interface name %s", quote(s))
	}
	return s, nil
})

var logTarget = paths(texts("target", "stdout, stderr, a path, syslog:HOST:PORT (UDP), syslog:tcp://HOST:PORT or syslog:unix:///PATH", `^(stdout|stderr|syslog:.+|[^:\x00-\x1f\x7f]*[^:/\x00-\x1f\x7f])$`,
	func(s string) (string, *fault) {
		f := faultf("invalid log target %s", quote(s))
		if s == "stdout" || s == "stderr" {
			return s, nil
		}
		if to, ok := strings.CutPrefix(s, "syslog:"); ok {
			if !strings.HasPrefix(to, "unix:") && !strings.HasPrefix(to, "tcp://") {
				to = "udp://" + to
			}
			if _, err := spec.ParseUpstream(to); err != nil {
				return "", f
			}
			return s, nil
		}
		if !strings.HasPrefix(s, "/") {
			f.near = suggest(s, []string{"stdout", "stderr"})
		}
		if f.near != "" || s == "" || strings.HasSuffix(s, "/") || strings.ContainsAny(s, ":\x00") && !strings.HasPrefix(s, "/") || strings.ContainsRune(s, 0) {
			return "", f
		}
		return s, nil
	}), func(s string) bool { return s != "stdout" && s != "stderr" && !strings.HasPrefix(s, "syslog:") })

// maxTLVs bounds the TLVs that are added to a PROXY header. The header's length field has 16
// bits, but receivers accept far less.
const maxTLVs = 4096

const (
	tlvPattern = `^(0x[0-9A-Fa-f]{2}|[0-9]{3})$`
	allowedTLV = "types from 0xE0 to 0xF7 (custom and experimental), each with a string, or hex: and digits"
)

// isTLV reports whether a TLV of a type has a meaning beyond its own header: CRC32C and padding
// (NOOP) have none.
func isTLV(kind uint64) bool { return kind > 0 && kind <= 0xFF && kind != 3 && kind != 4 }

// hashType is what a balancer hashes.
var hashType = texts("hash", "source, 4-tuple, sni, or a TLV such as tlv:0xEA", `^(source|4-tuple|sni|tlv:0x[0-9A-Fa-f]{2})$`, func(s string) (string, *fault) {
	digits, ok := strings.CutPrefix(s, "tlv:")
	kind, err := strconv.ParseUint(digits, 0, 8)
	switch {
	case ok && err == nil && isTLV(kind):
		return fmt.Sprintf("tlv:0x%02X", kind), nil
	case ok:
		return "", faultf("%s is not the type of a TLV", quote(digits))
	}
	if words := []string{"source", "4-tuple", "sni"}; !slices.Contains(words, s) {
		return "", &fault{problem: "unknown value " + quote(s), near: suggest(s, words)}
	}
	return s, nil
})

// tlvType is the type of a TLV.
var tlvType = scalar("TLV type", "a type from 0x01 to 0xFF other than 0x03 and 0x04", map[string]any{"type": "integer", "minimum": 1, "maximum": 255},
	func(text, tag string) (uint8, *fault) {
		kind, err := strconv.ParseUint(text, 0, 8)
		if err != nil || tag != "!!int" || !isTLV(kind) {
			return 0, faultf("invalid TLV type %s", quote(text))
		}
		return uint8(kind), nil
	}).shown(func(kind uint8) string { return fmt.Sprintf("0x%02X", kind) })

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
			r.errs[before].Allowed = s.allowedText()
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
