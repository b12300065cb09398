package convert

import (
	"net/netip"
	"slices"
	"strings"
)

// Condition is what a route can ask of a client. Of the lists that are there
// each must match. A tls condition holds for every TLS client.
type Condition struct {
	From, SNI, ALPN []string
	TLS             bool
	Ended           bool // it holds for clients whose TLS ends here only
}

func (c Condition) Empty() bool { return len(c.From)+len(c.SNI)+len(c.ALPN) == 0 && !c.TLS && !c.Ended }

// JoinConditions returns what both conditions ask; ok is false if no client can meet it.
func JoinConditions(a, b Condition) (c Condition, ok bool) {
	c.TLS, c.Ended = a.TLS || b.TLS, a.Ended || b.Ended
	c.From, ok = intersectLists(a.From, b.From, inside)
	if !ok {
		return c, false
	}
	c.SNI, ok = intersectLists(a.SNI, b.SNI, matches)
	if !ok {
		return c, false
	}
	c.ALPN, ok = intersectLists(a.ALPN, b.ALPN, func(s, t string) bool { return s == t })
	return c, ok
}

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
	a, err1 := netip.ParsePrefix(outer)
	b, err2 := netip.ParsePrefix(inner)
	return err1 == nil && err2 == nil && a.Bits() <= b.Bits() && a.Contains(b.Addr())
}
