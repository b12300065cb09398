package discover

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// members returns what a service's slices make, put in any order, or the error. The slices are named s0, s1, ...
func membersOf(t *testing.T, d spec.Discover, bodies ...string) (got string, wrong []string) {
	t.Helper()
	f := newFeed(Options{LeftOut: func(_ spec.Discover, problem string) { wrong = append(wrong, problem) }}, d)
	m := newKubeMembers(d, "web", f)
	if err := m.tell(true, nil, nil); err != nil {
		t.Fatal(err)
	}
	for _, i := range rand.Perm(len(bodies)) {
		if err := m.change(parseSlice(t, fmt.Sprintf("s%d", i), bodies[i])); err != nil {
			t.Fatal(err)
		}
	}
	list, _, err := f.list()
	if err != nil {
		return "error: " + err.Error(), wrong
	}
	return showTargets(list), wrong
}

func parseSlice(t *testing.T, name, body string) *endpointSlice {
	t.Helper()
	s := new(endpointSlice)
	if err := json.Unmarshal([]byte(body), s); err != nil {
		t.Fatal(err)
	}
	s.Metadata.Name = name
	s.Metadata.Labels = map[string]string{serviceLabel: "web"}
	return s
}

func TestKubernetesConditions(t *testing.T) {
	const address = `{"addresses":["10.0.0.1"],"conditions":{%s}}`
	for conditions, want := range map[string]string{
		``:                                 "10.0.0.1:80", // absent: ready
		`"ready":null`:                     "10.0.0.1:80",
		`"ready":true`:                     "10.0.0.1:80",
		`"ready":true,"terminating":false`: "10.0.0.1:80",
		`"ready":false`:                    "",
		`"ready":false,"serving":true`:     "",                     // not ready without terminating: Kubernetes does not send that
		`"ready":false,"terminating":true`: "10.0.0.1:80 draining", // serving is absent: as ready
		`"ready":false,"serving":true,"terminating":true`:  "10.0.0.1:80 draining",
		`"ready":false,"serving":false,"terminating":true`: "10.0.0.1:80 draining",
		`"ready":true,"serving":true,"terminating":true`:   "10.0.0.1:80 draining", // publishNotReadyAddresses
	} {
		want = strings.TrimSuffix(want+", 10.0.0.2:80", ", ")
		if want[0] == ',' {
			want = want[2:]
		}
		if got, _ := membersOf(t, spec.Discover{Network: spec.TCP}, slice(80, fmt.Sprintf(address, conditions), up("10.0.0.2"))); got != want {
			t.Errorf("%s: %q, want %q", conditions, got, want)
		}
	}
}

// TestKubernetesOnlyTerminating: while no endpoint is ready, those that terminate but still serve get flows, as with kube-proxy.
func TestKubernetesOnlyTerminating(t *testing.T) {
	d := spec.Discover{Network: spec.TCP}
	serving, last := endpoint("10.0.0.1", false, true, true), endpoint("10.0.0.2", false, false, true)
	if got, _ := membersOf(t, d, slice(80, serving, last)); got != "10.0.0.1:80, 10.0.0.2:80 draining" {
		t.Errorf("none ready: %s", got)
	}
	if got, _ := membersOf(t, d, slice(80, serving, last), slice(80, up("10.0.0.3"))); got != "10.0.0.1:80 draining, 10.0.0.2:80 draining, 10.0.0.3:80" {
		t.Errorf("one ready: %s", got)
	}
}

func TestKubernetesSlices(t *testing.T) {
	twoPorts := `{"addressType":"IPv4","ports":[{"name":"http","port":80},{"name":"admin","port":81},{"name":"dns","port":53,"protocol":"UDP"}],"endpoints":[{"addresses":["10.0.0.1"]}]}`
	for _, c := range []struct {
		name   string
		d      spec.Discover
		bodies []string
		want   string
	}{
		{"two families, of no pods", spec.Discover{Network: spec.TCP}, []string{slice(80, up("10.0.0.1")), slice6(80, up("fd00::1"))}, "10.0.0.1:80, [fd00::1]:80"},
		{"an endpoint in two slices", spec.Discover{Network: spec.TCP}, []string{slice(80, up("10.0.0.1")), slice(80, endpoint("10.0.0.1", false, true, true), up("10.0.0.2"))}, "10.0.0.1:80 draining, 10.0.0.2:80"},
		{"an endpoint twice in a slice", spec.Discover{Network: spec.TCP}, []string{slice(80, up("10.0.0.1"), up("10.0.0.1"))}, "10.0.0.1:80"},
		{"a named port with two numbers", spec.Discover{Network: spec.TCP}, []string{slice(80, up("10.0.0.1")), slice(8080, up("10.0.0.1"), up("10.0.0.2"))}, "10.0.0.1:80, 10.0.0.1:8080, 10.0.0.2:8080"},
		{"the only port", spec.Discover{Network: spec.UDP}, []string{twoPorts}, "10.0.0.1:53"},
		{"a port by name", spec.Discover{Network: spec.TCP, PortName: "admin"}, []string{twoPorts}, "10.0.0.1:81"},
		{"a port by number", spec.Discover{Network: spec.TCP, Port: 80}, []string{twoPorts}, "10.0.0.1:80"},
		{"several ports", spec.Discover{Network: spec.TCP, Key: "shop/web"}, []string{twoPorts}, `error: the service shop/web has several TCP ports, and port or port-name must say which: "admin", "http"`},
		{"no such port", spec.Discover{Network: spec.TCP, Key: "shop/web", PortName: "https"}, []string{twoPorts}, `error: no TCP port of the service shop/web fits; it has "admin" (81), "http" (80)`},
		{"a name of another protocol", spec.Discover{Network: spec.UDP, Key: "shop/web", PortName: "http"}, []string{twoPorts}, `error: no UDP port of the service shop/web fits; it has "dns" (53)`},
		{"no ports", spec.Discover{Network: spec.TCP, Port: 9}, []string{`{"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}]}`}, "10.0.0.1:9"},
		{"no ports, and none given", spec.Discover{Network: spec.TCP, Key: "a/b"}, []string{`{"addressType":"IPv4","ports":null,"endpoints":[{"addresses":["10.0.0.1"]}]}`}, "error: the service a/b has no TCP port; port can give a number"},
		{"a port without a number", spec.Discover{Network: spec.TCP, Port: 9}, []string{`{"addressType":"IPv4","ports":[{"name":"any"}],"endpoints":[{"addresses":["10.0.0.1","10.0.0.2"]}]}`}, "10.0.0.1:9"},
		{"a slice without endpoints", spec.Discover{Network: spec.TCP}, []string{slice(80, up("10.0.0.1")), `{"addressType":"IPv4","ports":[],"endpoints":null}`}, "10.0.0.1:80"},
		{"nothing ready", spec.Discover{Network: spec.TCP}, []string{slice(80, endpoint("10.0.0.1", false, false, false))}, ""},
	} {
		if got, wrong := membersOf(t, c.d, c.bodies...); got != c.want || len(wrong) != 0 {
			t.Errorf("%s: %s, wrong %q; want %s", c.name, got, wrong, c.want)
		}
	}
}

func TestKubernetesWrongEndpoints(t *testing.T) {
	got, wrong := membersOf(t, spec.Discover{Network: spec.TCP},
		slice(80, up("10.0.0.1"), up("fd00::1"), up("web.example"), up("0.0.0.0"), up("224.0.0.1"), `{"addresses":[]}`),
		`{"addressType":"FQDN","ports":[{"port":80}],"endpoints":[{"addresses":["web.example"]}]}`)
	if got != "10.0.0.1:80" || len(wrong) != 6 || !strings.Contains(strings.Join(wrong, "\n"), "FQDN") {
		t.Errorf("%s; said %q", got, wrong)
	}
}

// TestKubernetesChanges compares members that were changed step by step with those of a new list.
func TestKubernetesChanges(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	d := spec.Discover{Network: spec.TCP}
	f := newFeed(Options{LeftOut: func(spec.Discover, string) {}}, d)
	m := newKubeMembers(d, "web", f)
	now := map[string]*endpointSlice{}
	for step := range 2000 {
		name := fmt.Sprintf("s%d", r.IntN(4))
		if r.IntN(5) == 0 {
			delete(now, name)
			if err := m.remove(name); err != nil {
				t.Fatal(err)
			}
		} else {
			var list []string
			for range r.IntN(4) {
				list = append(list, endpoint(fmt.Sprintf("10.0.0.%d", r.IntN(5)), r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(2) == 0))
			}
			now[name] = parseSlice(t, name, slice(80+r.IntN(2), list...))
			if err := m.change(now[name]); err != nil {
				t.Fatal(err)
			}
		}
		if r.IntN(3) == 0 {
			continue // so that several changes come together
		}
		fresh := newFeed(Options{}, d)
		all := newKubeMembers(d, "web", fresh)
		for _, s := range now {
			if _, _, err := all.put(s); err != nil {
				t.Fatal(err)
			}
		}
		if err := all.tell(true, nil, nil); err != nil {
			t.Fatal(err)
		}
		want, _, _ := fresh.list()
		f.listed = true
		got, _, _ := f.list()
		if showTargets(got) != showTargets(want) || all.ready != m.ready || all.total != m.total {
			t.Fatalf("step %d: %s, want %s", step, showTargets(got), showTargets(want))
		}
	}
}

func TestKubernetesTooManyEndpoints(t *testing.T) {
	d := spec.Discover{Network: spec.TCP}
	m := newKubeMembers(d, "web", newFeed(Options{}, d))
	s := &endpointSlice{AddressType: "IPv4"}
	s.Metadata.Labels = map[string]string{serviceLabel: "web"}
	for i := range maxEndpoints {
		s.Endpoints = append(s.Endpoints, sliceEndpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)}})
	}
	s.Metadata.Name = "a"
	if _, _, err := m.put(s); err != nil {
		t.Fatal(err)
	}
	s.Metadata.Name = "b"
	if _, _, err := m.put(s); err == nil {
		t.Error("twice as many are taken")
	}
	s.Metadata.Name = ""
	if _, _, err := m.put(s); err == nil {
		t.Error("a slice without a name is taken")
	}
}

// A service with as many endpoints as are allowed can still change them.
func TestFullServiceChanges(t *testing.T) {
	m := newKubeMembers(spec.Discover{Network: spec.TCP, Port: 80}, "web", newTestFeed())
	put := func(slice, last int) error {
		s := endpointSlice{Metadata: objectMeta{Name: fmt.Sprint(slice), Labels: map[string]string{serviceLabel: "web"}}, AddressType: "IPv4", Endpoints: make([]sliceEndpoint, 1024)}
		for i := range s.Endpoints {
			s.Endpoints[i].Addresses = []string{fmt.Sprintf("10.%d.%d.%d", slice, i>>8, i&255)}
		}
		s.Endpoints[1023].Addresses[0] = fmt.Sprintf("10.%d.200.%d", slice, last)
		_, _, err := m.put(&s)
		return err
	}
	for i := range maxEndpoints / 1024 {
		if err := put(i, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := put(3, 1); err != nil {
		t.Error(err)
	}
	if put(64, 0) == nil {
		t.Error("there may be more than maxEndpoints")
	}
}

// What changes while it is not clear which port is meant is not forgotten.
func TestChangesWhilePortsAreUnclear(t *testing.T) {
	f := newTestFeed()
	m := newKubeMembers(spec.Discover{Network: spec.TCP}, "web", f)
	change := func(name, body string) {
		t.Helper()
		if err := m.change(parseSlice(t, name, body)); err != nil {
			t.Fatal(err)
		}
	}
	admin := strings.Replace(slice(81, up("10.0.0.2")), `"http"`, `"admin"`, 1)
	if err := m.tell(true, nil, nil); err != nil {
		t.Fatal(err)
	}
	change("s0", slice(80, up("10.0.0.1")))
	f.list()
	change("s1", admin)
	if m.err == nil {
		t.Fatal("two ports are no error")
	}
	change("s2", slice(80, up("10.0.0.4")))
	if err := m.remove("s1"); err != nil {
		t.Fatal(err)
	}
	if list, _, err := f.list(); err != nil || showTargets(list) != "10.0.0.1:80, 10.0.0.4:80" {
		t.Errorf("%s, %v", showTargets(list), err)
	}
}
