package convert

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/firstbytes"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Condition is what a route can ask of a client. Of the lists that are there
// each must match.
type Condition struct {
	From, SNI, ALPN []string
	Protocols       []string // by the first bytes
	Prefixes        []string // bytes
	Hosts           []string // of HTTP/1
	Silent          bool     // the client sends nothing for a while
	Content         bool     // it has sent something; no route can ask that
	Ended           bool     // it holds for clients whose TLS ends here only
}

// ByName reports whether c asks for what is in a ClientHello.
func (c *Condition) ByName() bool { return len(c.SNI)+len(c.ALPN) > 0 }

// ByFirst reports whether c asks for what the client sends first, other than for what is in a ClientHello.
func (c *Condition) ByFirst() bool {
	return len(c.Protocols)+len(c.Prefixes)+len(c.Hosts) > 0 || c.Silent
}

// Empty reports whether c holds for every client.
func (c Condition) Empty() bool {
	return len(c.From) == 0 && !c.ByName() && !c.ByFirst() && !c.Ended && !c.Content
}

// sent reports whether c holds only for clients that have sent something.
func (c *Condition) sent() bool {
	return c.Content || c.ByName() && !c.Ended || len(c.Protocols)+len(c.Prefixes)+len(c.Hosts) > 0
}

// speaks returns the protocols of the clients for which c holds; nil: any.
func (c *Condition) speaks() []string {
	switch {
	case len(c.Protocols) > 0:
		return c.Protocols
	case c.ByName() && !c.Ended:
		return []string{spec.ProtocolTLS}
	case len(c.Hosts) > 0:
		return []string{spec.ProtocolHTTP}
	}
	return nil
}

// JoinConditions returns what both conditions ask; ok is false if no client can meet it.
func JoinConditions(a, b Condition) (c Condition, ok bool) {
	c.Ended, c.Silent = a.Ended || b.Ended, a.Silent || b.Silent
	equal := func(s, t string) bool { return s == t }
	for _, l := range []struct {
		to     *[]string
		a, b   []string
		covers func(outer, inner string) bool
	}{
		{&c.From, a.From, b.From, inside},
		{&c.SNI, a.SNI, b.SNI, matches},
		{&c.ALPN, a.ALPN, b.ALPN, equal},
		{&c.Protocols, a.speaks(), b.speaks(), equal},
		{&c.Prefixes, a.Prefixes, b.Prefixes, func(outer, inner string) bool { return strings.HasPrefix(inner, outer) }},
		{&c.Hosts, a.Hosts, b.Hosts, matches},
	} {
		if *l.to, ok = intersectLists(l.a, l.b, l.covers); !ok {
			return c, false
		}
	}
	if len(c.Protocols) > 0 {
		c.Prefixes = slices.DeleteFunc(slices.Clone(c.Prefixes), func(p string) bool { return !begins(p, c.Protocols) })
		if ok = len(c.Prefixes) > 0 || len(a.Prefixes)+len(b.Prefixes) == 0; !ok {
			return c, false
		}
	}
	if c.ByName() && !c.Ended || len(c.Hosts) > 0 {
		c.Protocols = nil // the names say it
	}
	c.Content = (a.Content || b.Content) && !c.sent()
	return c, !c.Silent || !a.sent() && !b.sent() && !c.ByName()
}

// Unknowable reports whether nobody can tell which clients meet both conditions, because one has addresses that were not read.
func Unknowable(a, b Condition) bool {
	return len(a.From) > 0 && len(b.From) > 0 && !slices.Equal(a.From, b.From) && (slices.ContainsFunc(a.From, isList) || slices.ContainsFunc(b.From, isList))
}

// begins reports whether clients of one of the protocols may begin with these bytes.
func begins(prefix string, protocols []string) bool {
	seen := firstbytes.New()
	seen.Add([]byte(prefix), false)
	return slices.ContainsFunc(protocols, func(name string) bool {
		p, ok := firstbytes.ByName(name)
		return ok && seen.May(p)
	})
}

// covers reports whether a holds for every client for which b does.
func (a *Condition) covers(b *Condition) bool {
	if len(a.From) > 0 {
		from := b.From
		if len(from) == 0 {
			from = Everywhere
		}
		if !every(from, func(s string) bool {
			return slices.ContainsFunc(a.From, func(t string) bool { return inside(t, s) })
		}) {
			return false
		}
	}
	for _, l := range []struct {
		a, b   []string
		covers func(outer, inner string) bool
	}{
		{a.SNI, b.SNI, matches},
		{a.ALPN, b.ALPN, func(s, t string) bool { return s == t }},
		{a.Protocols, b.speaks(), func(s, t string) bool { return s == t }},
		{a.Prefixes, b.Prefixes, func(outer, inner string) bool { return strings.HasPrefix(inner, outer) }},
		{a.Hosts, b.Hosts, matches},
	} {
		if len(l.a) > 0 && (len(l.b) == 0 || !every(l.b, func(s string) bool {
			return slices.ContainsFunc(l.a, func(t string) bool { return l.covers(t, s) })
		})) {
			return false
		}
	}
	return (!a.Silent || b.Silent) && (!a.Content || b.sent())
}

// Covers reports whether a holds for every client for which b does, as far as it can be told.
func Covers(a, b Condition) bool { return (!a.Ended || b.Ended) && a.covers(&b) }

// intersectLists returns what is in both lists; an empty list has everything.
func intersectLists(a, b []string, covers func(outer, inner string) bool) ([]string, bool) {
	if len(a) == 0 || len(b) == 0 {
		return append(a[:len(a):len(a)], b...), true
	}
	var in []string
	for _, s := range a {
		if slices.ContainsFunc(b, func(t string) bool { return covers(t, s) }) {
			in = append(in, s)
		}
	}
	for _, t := range b {
		if slices.ContainsFunc(a, func(s string) bool { return covers(s, t) }) && !slices.Contains(in, t) {
			in = append(in, t)
		}
	}
	return in, len(in) > 0
}

// matches reports whether the names of one pattern include those of another.
func matches(pattern, name string) bool {
	end, wild := strings.CutPrefix(pattern, "*")
	return pattern == name || wild && strings.HasSuffix(strings.TrimPrefix(name, "*"), end)
}

// inside reports whether the range outer has all of inner.
func inside(outer, inner string) bool {
	if isList(outer) {
		return outer == inner
	}
	a, err1 := netip.ParsePrefix(outer)
	b, err2 := netip.ParsePrefix(inner)
	return err1 == nil && err2 == nil && a.Bits() <= b.Bits() && a.Contains(b.Addr())
}

// bytesOf writes bytes as a prefix of a route.
func bytesOf(s string) string {
	if OneLine(s) != s || strings.HasPrefix(s, "hex:") {
		return "hex:" + hex.EncodeToString([]byte(s))
	}
	return s
}
