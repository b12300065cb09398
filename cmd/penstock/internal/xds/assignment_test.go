package xds

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/ads"
)

// located is a LocalityLbEndpoints.
func located(priority int, endpoints ...any) map[string]any {
	return map[string]any{"priority": priority, "lb_endpoints": endpoints}
}

// at is an LbEndpoint, with further fields.
func at(host string, port int, more map[string]any) map[string]any {
	return withKeys(map[string]any{"endpoint": endpoint(host, port)}, more)
}

func parsed(t testing.TB, localities ...any) (*Assignment, error) {
	t.Helper()
	value := encode(t, &assignmentTable, map[string]any{"cluster_name": "web", "endpoints": localities})
	return parseAssignmentResource(ads.Resource{Name: "web", URL: endpointsURL, Value: value}, endpointCache{})
}

// What is wrong with one endpoint leaves it out, with a warning that names it, and the others are members. Of twins one is.
func TestWrongEndpoints(t *testing.T) {
	good := at("10.0.0.1", 80, nil)
	for _, c := range []struct {
		what       string
		localities []any
		want       string   // members, with their priorities
		leftOut    []string // parts of what is said
	}{
		{"twins in a locality", []any{located(0, good, at("10.0.0.1", 80, nil), at("10.0.0.2", 80, nil))}, "10.0.0.1/0 10.0.0.2/0",
			[]string{"endpoints[0].lb_endpoints: tcp://10.0.0.1:80 is there twice; the one of priority 0 is used"}},
		{"twins in two priorities", []any{located(0, good), located(1, good, at("10.0.0.2", 80, nil))}, "10.0.0.1/0 10.0.0.2/1",
			[]string{"endpoints[1].lb_endpoints: tcp://10.0.0.1:80 is there twice; the one of priority 0 is used"}},
		{"twins, the one of the higher priority first", []any{located(7, good), located(2, good), located(3, good)}, "10.0.0.1/2", []string{"the one of priority 2", "the one of priority 2"}},
		{"an IPv4 address, and the same one as IPv6", []any{located(0, good, at("::ffff:10.0.0.1", 80, nil))}, "10.0.0.1/0", []string{"is there twice"}},
		{"an unknown status", []any{located(0, good, at("10.0.0.2", 80, map[string]any{"health_status": 77}))}, "10.0.0.1/0",
			[]string{"endpoints[0].lb_endpoints[1].health_status: unknown value 77; tcp://10.0.0.2:80 is left out"}},
		{"weight 0", []any{located(0, at("10.0.0.2", 80, map[string]any{"load_balancing_weight": 0}), good)}, "10.0.0.1/0",
			[]string{"endpoints[0].lb_endpoints[0].load_balancing_weight: 0 is not a weight; allowed: 1 to 4294967295; tcp://10.0.0.2:80 is left out"}},
		{"a name", []any{located(0, at("app.example", 80, nil), good)}, "10.0.0.1/0", []string{"app.example is not an address; the endpoint is left out"}},
		{"no port, and a port that cannot be", []any{located(0, at("10.0.0.2", 0, nil), good, at("10.0.0.2", 70000, nil))}, "10.0.0.1/0", []string{"needs a port from 1 to 65535", "70000 is not a port"}},
		{"no address", []any{located(0, map[string]any{"health_status": 1}, good)}, "10.0.0.1/0", []string{"endpoints[0].lb_endpoints[0].endpoint: missing; the endpoint is left out"}},
		{"a kind that is not supported", []any{located(0, map[string]any{"endpoint_name": "other"}, map[string]any{"endpoint": map[string]any{"address": map[string]any{"envoy_internal_address": "x"}}}, good)}, "10.0.0.1/0",
			[]string{"endpoint_name: not supported", "envoy_internal_address: not supported"}},
		{"bytes that are no endpoint", []any{map[string]any{"lb_endpoints": []any{[]byte{0xff}, good}}}, "10.0.0.1/0", []string{"endpoints[0].lb_endpoints[0]: "}},
		{"a priority that cannot be", []any{located(128, at("10.0.0.2", 80, nil)), located(0, good)}, "10.0.0.1/0", []string{"endpoints[0].priority: 128 is not a priority; allowed: 0 to 127; the locality is left out"}},
		{"localities without endpoints", []any{located(3), located(0), located(0, good), located(9)}, "10.0.0.1/0", nil},
	} {
		a, err := parsed(t, c.localities...)
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		var got []string
		for _, m := range a.Members {
			got = append(got, fmt.Sprintf("%s/%d", m.To.Host, m.Priority))
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: members %s, want %s", c.what, s, c.want)
		}
		if !slices.EqualFunc(a.LeftOut, c.leftOut, func(p Problem, part string) bool { return strings.Contains(p.String(), part) }) {
			t.Errorf("%s: left out %q, want %q", c.what, a.LeftOut, c.leftOut)
		}
	}
}

// Localities are told apart by region, zone and sub-zone, and have the last weight that is given for their priority; the policy is read.
func TestLocalitiesOfAssignment(t *testing.T) {
	place := func(region, zone, sub string) map[string]any {
		return map[string]any{"region": region, "zone": zone, "sub_zone": sub}
	}
	in := func(l map[string]any, locality map[string]any, weight int64) map[string]any {
		return withKeys(l, map[string]any{"locality": locality, "load_balancing_weight": weight})
	}
	value := encode(t, &assignmentTable, map[string]any{"cluster_name": "web", "policy": map[string]any{"overprovisioning_factor": 200, "weighted_priority_health": true}, "endpoints": []any{
		in(located(0, at("10.0.0.1", 80, nil)), place("r", "z", ""), 3),
		in(located(0, at("10.0.0.2", 80, nil)), place("r", "z", "s"), 1<<32-1),
		in(located(0, at("10.0.0.3", 80, nil)), place("r", "z", ""), 5),
		in(located(1, at("10.0.0.4", 80, nil)), place("r", "z", ""), 7),
		in(located(0, at("10.0.0.5", 80, nil)), place("r/z", "", ""), 1),
		located(0, at("10.0.0.6", 80, nil)),
		in(located(0, at("10.0.0.7", 80, nil)), place(strings.Repeat("r", 300), "z", ""), 2),
	}})
	a, err := parseAssignmentResource(ads.Resource{Name: "web", URL: endpointsURL, Value: value}, endpointCache{})
	if err != nil || a.Factor != 200 || !a.Weighted || len(a.Members) != 7 {
		t.Fatalf("%+v, %v", a, err)
	}
	names := map[string]int{}
	for i, want := range []uint32{5, 1<<32 - 1, 5, 7, 1, 0, 2} {
		m := &a.Members[i]
		names[m.Locality.Name]++
		if m.Locality.Weight != want || len(m.Locality.Name) > maxLocality {
			t.Errorf("%+v, want weight %d", m, want)
		}
	}
	if len(names) != 5 || names["r/z/"] != 3 || names[""] != 1 {
		t.Errorf("localities %v", names)
	}
	if a, err := parsed(t, located(0, at("10.0.0.1", 80, nil))); err != nil || a.Factor != 0 || a.Weighted {
		t.Errorf("without a policy: %+v, %v", a, err)
	}
}

// An assignment of which nothing would be left is refused with what is wrong, so that the members before it stay.
func TestAllEndpointsWrong(t *testing.T) {
	_, err := parsed(t, located(0, at("10.0.0.1", 0, nil), at("app.example", 80, nil)), located(200, at("10.0.0.2", 80, nil)))
	for _, part := range []string{"lb_endpoints[0].endpoint.address.socket_address.port_value: ", "lb_endpoints[1].endpoint.address.socket_address.address: app.example is not", "endpoints[1].priority: 200"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v; want %s", err, part)
		}
	}
	if a, err := parsed(t, located(0)); err != nil || len(a.Members) != 0 {
		t.Errorf("no endpoint at all: %+v, %v", a, err)
	}
}

// What is ignored is told as well.
func TestIgnoredFields(t *testing.T) {
	a, err := parsed(t, located(0, at("10.0.0.1", 80, map[string]any{"endpoint": withKeys(endpoint("10.0.0.1", 80), map[string]any{"additional_addresses": "x"})})))
	if err != nil || len(a.Members) != 1 || len(a.Ignored) != 1 || a.Ignored[0].Path != "endpoints[0].lb_endpoints[0].endpoint.additional_addresses" {
		t.Errorf("%+v, %v", a, err)
	}
}

// Hostile assignments give members within their bounds, and a bounded number of warnings.
func TestHostileAssignments(t *testing.T) {
	const n = 10_000
	var twins, wrong, heavy []any
	for i := range n {
		twins = append(twins, at("10.0.0.1", 80, nil))
		wrong = append(wrong, at("10.0.0.2", 0, nil))
		heavy = append(heavy, at(fmt.Sprintf("10.1.%d.%d", i>>8, i&255), 80, map[string]any{"load_balancing_weight": int64(1<<32-1) - int64(i%2)}))
	}
	var apart []any
	for p := range 128 {
		apart = append(apart, located(p, twins[p*50:p*50+50]...), located(p)) // the same one in all priorities
	}
	for _, c := range []struct {
		what       string
		localities []any
		members    int
		weight     int
	}{
		{"10,000 twins", []any{located(0, twins...)}, 1, 1},
		{"twins in all priorities", apart, 1, 1},
		{"10,000 that are wrong, and one that is not", []any{located(0, wrong...), located(0, at("10.0.0.1", 80, nil))}, 1, 1},
		{"weights whose sum is above 2^32", []any{located(0, heavy...)}, n, 256},
	} {
		a, err := parsed(t, c.localities...)
		if err != nil || len(a.Members) != c.members || a.Members[0].Weight != c.weight || len(a.LeftOut) > maxProblems || len(a.Ignored) > maxProblems {
			t.Errorf("%s: %d members, %d left out, %v", c.what, len(a.Members), len(a.LeftOut), err)
		}
	}
}
