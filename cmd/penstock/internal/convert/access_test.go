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
		var rules []AccessRule
		for range 1 + r.IntN(5) {
			rule := AccessRule{Allow: r.IntN(2) == 0}
			if r.IntN(4) > 0 {
				rule.From = []string{ranges[r.IntN(len(ranges))]}
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
				if rule.From == nil || in(rule.From) {
					want = rule.Allow
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
		got, ok := Prefix(in)
		if ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %v, want %q", in, got, ok, want)
		}
	}
}
