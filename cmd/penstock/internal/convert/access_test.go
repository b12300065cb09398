package convert

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// Random rules: whatever access accepts, the two lists admit the same clients as
// the rules, of which the first that matches decides.
func TestAccess(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	ranges := []string{"10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.2.0.0/16", "192.0.2.0/24", "192.0.2.1/32", "2001:db8::/32"}
	clients := []string{"10.0.0.1", "10.1.0.1", "10.1.2.1", "10.2.0.1", "192.0.2.1", "192.0.2.2", "198.51.100.1", "2001:db8::1", "2001:db9::1"}
	accepted := 0
	for range 20000 {
		var rules []accessRule
		for range 1 + r.IntN(5) {
			rule := accessRule{allow: r.IntN(2) == 0}
			if r.IntN(4) > 0 {
				rule.from = []string{ranges[r.IntN(len(ranges))]}
			}
			rules = append(rules, rule)
		}
		allow, deny, bad := access(rules)
		if bad != nil {
			continue
		}
		accepted++
		for _, client := range clients {
			a := netip.MustParseAddr(client)
			in := func(list []string) bool {
				return slices.ContainsFunc(list, func(s string) bool { return netip.MustParsePrefix(s).Contains(a) })
			}
			want := true
			for _, rule := range rules {
				if rule.from == nil || in(rule.from) {
					want = rule.allow
					break
				}
			}
			if got := (len(allow) == 0 || in(allow)) && !in(deny); got != want {
				t.Fatalf("%s: %v, want %v: rules %v, allow %v, deny %v", client, got, want, fmt.Sprint(rules), allow, deny)
			}
		}
	}
	if accepted < 5000 {
		t.Errorf("only %d of 20000 were accepted", accepted)
	}
}

func TestPrefix(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.1": "10.0.0.1/32", "10.1.2.3/8": "10.0.0.0/8", "10.0.0.0/255.255.0.0": "10.0.0.0/16", "::1": "::1/128", "2001:db8::1/32": "2001:db8::/32",
		"10.0.0.0/255.0.255.0": "", "10.0.0.0/33": "", "host": "", "10.0.0.0/x": "", "fe80::1%eth0": "", "": "",
	} {
		got, ok := prefix(in)
		if ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %v, want %q", in, got, ok, want)
		}
	}
}

// Conditions of HAProxy, and what becomes of them.
func TestConditions(t *testing.T) {
	h := &haproxyPlan{plan: &plan{seen: map[Note]bool{}}}
	x := &proxy{acls: map[string]*acl{}}
	for _, words := range [][]string{
		{"acl", "a", "req.ssl_sni", "-i", "A.example.org"}, {"acl", "sub", "req.ssl_sni", "-m", "end", ".example.org"},
		{"acl", "net", "src", "10.0.0.0/8"}, {"acl", "net", "src", "192.0.2.0/24"}, {"acl", "one", "src", "10.0.0.1"}, {"acl", "bad", "dst_port", "1"},
	} {
		h.acl(x, &line{words: words, read: 1})
	}
	for text, want := range map[string]string{
		"if a":                                 "[{[] [a.example.org] [] true false}] []",
		"if a net":                             "[{[10.0.0.0/8] [a.example.org] [] true false} {[192.0.2.0/24] [a.example.org] [] true false}] []",
		"if a sub":                             "[{[] [a.example.org] [] true false}] []",
		"if net one":                           "[{[10.0.0.1/32] [] [] false false}] []",
		"if a or one":                          "[{[] [a.example.org] [] true false} {[10.0.0.1/32] [] [] false false}] []",
		"if { src 10.0.0.1 } || { src ::1 }":   "[{[10.0.0.1/32] [] [] false false} {[::1/128] [] [] false false}] []",
		"if !net":                              "[{[] [] [] false false}] [10.0.0.0/8 192.0.2.0/24]",
		"if ! one":                             "[{[] [] [] false false}] [10.0.0.1/32]",
		"unless one":                           "[{[] [] [] false false}] [10.0.0.1/32]",
		"unless net":                           "[{[] [] [] false false}] [10.0.0.0/8 192.0.2.0/24]",
		"if a !one":                            "[{[] [a.example.org] [] true false}] [10.0.0.1/32]",
		"if !a":                                "a negated condition has no counterpart",
		"if !one or a":                         "a negated condition together with others has no counterpart",
		"if bad":                               "dst_port has no counterpart (a listener for each port has routes of its own)",
		"if nobody":                            "the acl nobody is not known",
		"if { src 10.0.0.1":                    "a brace does not end",
		"if { req.ssl_sni b.org } { src ::1 }": "[{[::1/128] [b.org] [] true false}] []",
		"if { req.ssl_sni b.org } a":           "[] []",
	} {
		words, _ := h.haproxyWords(at{}, text)
		conds, negated, why := h.conditions(x, at{}, words)
		got := fmt.Sprint(conds, " ", negated)
		if why != "" {
			got = why
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
