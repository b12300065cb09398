package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// partKeys are those of one part of a route.
var partKeys = keysOf("part",
	field("group", groupRef, "", "Where the clients of this part go: a group's name, or the URL of a single upstream.", func(p *spec.Part) **spec.Group { return &p.Group }),
	field("refuse", choice(func(string) bool { return true }, "true").shown(func(b bool) string { return fmt.Sprint(b) }), "", "true: the clients of this part are refused.", func(p *spec.Part) *bool { return &p.Refuse }),
	required(field("weight", count(spec.MaxPartWeight), "", "The part's share is its weight divided by the sum of all parts. 0: no clients, until penstock split or a reload gives it some.", func(p *spec.Part) *int { return &p.Weight })),
).oneOf("group", "refuse")

// partsType is where a route leads: a group, or a list of parts.
var partsType = func() typ[[]spec.Part] {
	one := typ[[]spec.Part]{groupRef.shape, func(r *reader, n node, to *[]spec.Part) {
		*to = spec.Only(nil)
		groupRef.read(r, n, &(*to)[0].Group)
	}, nil}
	several := nonEmptyList(partKeys.filled().shown(func(p spec.Part) string {
		what := "refuse: true"
		if g := p.Group; g != nil {
			what = "group: " + g.Name
			if strings.Contains(g.Name, ":") {
				what = "group: " + strconv.Quote(g.Name)
			}
		}
		return "{" + what + ", weight: " + strconv.Itoa(p.Weight) + "}"
	}))
	return scalarOr(one, several).shown(func(parts []spec.Part) string {
		switch {
		case len(parts) == 0:
			return "none"
		case len(parts) == 1 && !parts[0].Refuse:
			return groupRef.show(parts[0].Group)
		}
		return several.show(parts)
	})
}()

// PartsText returns parts as the configuration has them, on one line.
func PartsText(parts []spec.Part) string { return partsType.show(parts) }

// splitByKey is of listeners and routes.
func splitByKey[T any](get func(*T) *string) key[T] {
	return field("split-by", hashWord("split-by", spec.SplitRandom, "source", "sni"), spec.SplitRandom, "How a part is chosen where to is a list. random: anew for each flow. source, sni, tlv:0xEA: by a hash of the client's address, of its server name, or of a TLV of its PROXY header, so that a client stays in its part, and as the weight of a part grows, clients move into it and none out of it.", get)
}

// checkSplit reports parts that do not fit together.
func (r *reader) checkSplit(l *listener, to *[]spec.Part, by *string) {
	parts, names, total, whole := *to, map[string]bool{}, 0, true
	for i := range parts {
		p := &parts[i]
		name := p.Name()
		if names[name] && name != "" {
			r.fail(r.position(&p.Group, &p.Refuse, p), fault{problem: "there is a second part " + plain(name), allowed: "one part for each group, and one that refuses"})
		}
		names[name] = true
		whole = whole && name != ""
		total += p.Weight
	}
	switch {
	case len(parts) > spec.MaxParts:
		r.fail(r.position(to), fault{problem: fmt.Sprintf("%d parts", len(parts)), allowed: fmt.Sprintf("up to %d", spec.MaxParts)})
	case len(parts) > 0 && total == 0 && whole: // what could not be read has been reported
		r.fail(r.position(to), fault{problem: "all weights are 0: no client would have a part", allowed: "a weight of at least 1 for one part"})
	}
	switch _, tlv := spec.HashTLV(*by); {
	case *by == spec.SplitRandom:
	case len(parts) == 1:
		r.warnNoEffect("to has one part", by)
	case *by == "source" && (l.Listen.Kind == spec.Unix || l.Listen.Kind == spec.Unixgram) && len(l.ProxyFrom) == 0:
		r.warn(r.position(by), fault{problem: "clients of a Unix socket have no address: parts are chosen at random"})
	case tlv && len(l.ProxyFrom) == 0:
		r.warn(r.position(by), fault{problem: "the listener " + l.Name + " accepts no PROXY headers, and hashes the client's address"})
	case *by == "sni" && l.Listen.Kind == spec.Unixgram:
		r.warn(r.position(by), fault{problem: "datagrams of a Unix socket have no server name: parts are chosen at random"})
	}
}
