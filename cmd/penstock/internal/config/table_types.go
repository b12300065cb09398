package config

import (
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
			r.errs[before].Allowed = allowedText(s)
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

// netInterface is the name of a network interface. IFNAMSIZ of net/if.h is 16 with the
// terminating zero.
var netInterface = texts("interface", "a name of 1 to 15 bytes without slashes or spaces", `^[^/\s\x00-\x1f]{1,15}$`, func(s string) (string, *fault) {
	if len(s) > 15 {
		return "", faultf("invalid interface name %s", quote(s))
	}
	return s, nil
})

// maxTLVs bounds the TLVs that are added to a PROXY header. The header's length field has 16
// bits, but receivers accept far less.
const maxTLVs = 4096

const (
	tlvPattern = `^(0x[0-9A-Fa-f]{2}|[0-9]{3})$`
	allowedTLV = "types from 0xE0 to 0xF7 (custom and experimental), each with a string, or hex: and digits"
)

// hashType is what a balancer hashes.
var hashType = hashWord("hash", "source", "4-tuple", "sni")

// hashWord returns the type of what is hashed: one of the words, or a TLV.
func hashWord(name string, words ...string) typ[string] {
	return texts(name, strings.Join(words, ", ")+", or a TLV such as tlv:0xEA", `^(`+strings.Join(words, "|")+`|tlv:0x[0-9A-Fa-f]{2})$`, func(s string) (string, *fault) {
		digits, ok := strings.CutPrefix(s, "tlv:")
		kind, err := strconv.ParseUint(digits, 0, 8)
		switch {
		case ok && err == nil && isTLV(kind):
			return fmt.Sprintf("tlv:0x%02X", kind), nil
		case ok:
			return "", faultf("%s is not the type of a TLV", quote(digits))
		}
		if !slices.Contains(words, s) {
			return "", &fault{problem: "unknown value " + quote(s), near: suggest(s, words)}
		}
		return s, nil
	})
}
