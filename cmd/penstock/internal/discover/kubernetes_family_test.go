package discover

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testnet"
)

// slice6 is slice with IPv6.
func slice6(port int, endpoints ...string) string {
	return strings.Replace(slice(port, endpoints...), `"addressType":"IPv4"`, `"addressType":"IPv6"`, 1)
}

// podAt returns an endpoint of a pod.
func podAt(ip, uid string) string {
	return fmt.Sprintf(`{"addresses":[%q],"targetRef":{"kind":"Pod","name":"web-%s","uid":%q}}`, ip, uid, uid)
}

// A pod with an address of each family is one member, at the one that this host has a route to.
func TestKubernetesFamilies(t *testing.T) {
	two := []string{slice(80, podAt("10.0.0.1", "a"), podAt("10.0.0.2", "b")), slice6(80, podAt("fd00::1", "a"), podAt("fd00::2", "b"))}
	only4, only6, none, all := "10.", "fd00", "-", ""
	for _, c := range []struct {
		what, family, routes string // routes is what an address with a route begins with
		bodies               []string
		want                 string
	}{
		{"routes to both", "", all, two, "10.0.0.1:80, 10.0.0.2:80"},
		{"a route to IPv4", "", only4, two, "10.0.0.1:80, 10.0.0.2:80"},
		{"a route to IPv6", "", only6, two, "[fd00::1]:80, [fd00::2]:80"},
		{"no route", "", none, two, "10.0.0.1:80, 10.0.0.2:80"},
		{"family: any", "any", only4, two, "10.0.0.1:80, 10.0.0.2:80, [fd00::1]:80, [fd00::2]:80"},
		{"family: ipv4", "ipv4", only6, two, "10.0.0.1:80, 10.0.0.2:80"},
		{"family: ipv6", "ipv6", only4, two, "[fd00::1]:80, [fd00::2]:80"},
		{"family: ipv6, and there is none", "ipv6", all, two[:1], "error: the service shop/web has no IPv6 addresses; allowed: another family, or none"},
		{"family: ipv6, and none is ready", "ipv6", all, []string{two[0], slice6(80, endpoint("fd00::1", false, false, false))}, ""},
		{"one family", "", only4, two[1:], "[fd00::1]:80, [fd00::2]:80"},
		{"a pod that one of the slices does not have yet", "", all, []string{two[0], slice6(80, podAt("fd00::1", "a"), podAt("fd00::3", "c"))}, "10.0.0.1:80, 10.0.0.2:80"},
		{"endpoints of no pods beside pods", "", only4, append([]string{slice6(80, up("fd00::9")), slice(80, up("10.0.0.9"))}, two...), "10.0.0.1:80, 10.0.0.2:80, 10.0.0.9:80, [fd00::9]:80"},
		{"different pods in both", "", only4, []string{slice(80, podAt("10.0.0.1", "a")), slice6(80, podAt("fd00::2", "b"))}, "10.0.0.1:80, [fd00::2]:80"},
	} {
		d := spec.Discover{Network: spec.TCP, Family: c.family, Key: "shop/web"}
		f := newFeed(Options{LeftOut: func(spec.Discover, string) {}}, d)
		m := newKubeMembers(d, "web", f)
		if m.stack != nil {
			m.stack.routed = func(a netip.Addr) bool { return strings.HasPrefix(a.String(), c.routes) }
		}
		for _, i := range rand.Perm(len(c.bodies)) {
			if err := m.change(parseSlice(t, fmt.Sprintf("s%d", i), c.bodies[i])); err != nil {
				t.Fatal(err)
			}
		}
		list, _, err := f.list()
		got := showTargets(list)
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}

// The slices of both families change one after the other: a pod that goes, or comes, is never a member twice, and no other one changes.
func TestKubernetesFamiliesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		k := testfleet.NewMemoryKubernetes(t, network)
		k.Put("shop", "web-4", "web", slice(80, podAt("127.0.0.1", "a"), podAt("127.0.0.2", "b")))
		k.Put("shop", "web-6", "web", slice6(80, podAt("fd00::1", "a"), podAt("fd00::2", "b")))
		w := watchFor(t, network, shopWeb(k))
		w.wants("127.0.0.1:80, 127.0.0.2:80")
		k.Put("shop", "web-6", "web", slice6(80, podAt("fd00::1", "a"), podAt("fd00::2", "b"), podAt("fd00::3", "c")))
		k.Put("shop", "web-4", "web", slice(80, podAt("127.0.0.1", "a"), podAt("127.0.0.2", "b"), podAt("127.0.0.3", "c")))
		w.wants("127.0.0.1:80, 127.0.0.2:80, 127.0.0.3:80")
		k.Put("shop", "web-4", "web", slice(80, podAt("127.0.0.3", "c")))
		w.wants("127.0.0.3:80")
		k.Delete("shop", "web-4") // what becomes of members is the group's decision
		w.wants("")
		if w.seen().six {
			t.Error("an IPv6 address was a member")
		}
	})
}

// What is counted of pods is what a look at all endpoints finds, after any changes.
func TestStack(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 9))
	d := spec.Discover{Network: spec.TCP}
	m := newKubeMembers(d, "web", newFeed(Options{LeftOut: func(spec.Discover, string) {}}, d))
	m.stack.routed = func(netip.Addr) bool { return true }
	for range 500 {
		var list []string
		for range r.IntN(6) {
			list = append(list, podAt(fmt.Sprintf("10.0.0.%d", 1+r.IntN(9)), fmt.Sprint(r.IntN(5))))
		}
		body := slice(80, list...)
		name := fmt.Sprint("s", r.IntN(6))
		if name > "s2" {
			body = strings.NewReplacer("10.0.0.", "fd00::", "IPv4", "IPv6").Replace(body)
		}
		if r.IntN(5) == 0 {
			m.remove(name)
		} else if err := m.change(parseSlice(t, name, body)); err != nil {
			t.Fatal(err)
		}
		pods := map[string]*[2]int{}
		for at, found := range m.found {
			for _, e := range found {
				if pods[e.pod] == nil {
					pods[e.pod] = &[2]int{}
				}
				if at.Addr().Is6() {
					pods[e.pod][1]++
				} else {
					pods[e.pod][0]++
				}
			}
		}
		both := 0
		for uid, has := range pods {
			if has[0] > 0 && has[1] > 0 {
				both++
			}
			if got := m.stack.pods[uid]; got == nil || *got != *has {
				t.Fatalf("seed %d: pod %s has %v endpoints, counted %v", seed, uid, *has, got)
			}
		}
		if len(pods) != len(m.stack.pods) || both != m.stack.both {
			t.Fatalf("seed %d: %d pods, %d with both families; counted %d, %d", seed, len(pods), both, len(m.stack.pods), m.stack.both)
		}
	}
}
