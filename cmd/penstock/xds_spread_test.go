package main

import (
	"fmt"
	"maps"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/penstock/penstock/internal/testwait"
)

// A spreadCase is endpoints, and which of them serve clients how often. The names of its resources are its number.
type spreadCase struct {
	title   string
	cluster string // more JSON of the Cluster
	policy  string // more JSON of the ClusterLoadAssignment
	// Localities, each with more JSON, and its endpoints after that: the names of those who answer, each with its status.
	localities []string
	want       string // who serves how many of 100 clients; the others nobody
}

const (
	weighted = `, "commonLbConfig": {"localityWeightedLbConfig": {}}`
	noPanic  = `, "commonLbConfig": {"healthyPanicThreshold": {"value": 0}}`
)

// localityOf is the JSON of a locality with a weight.
func localityOf(zone string, weight int) string {
	return fmt.Sprintf(`"locality": {"zone": %q}, "loadBalancingWeight": %d, `, zone, weight)
}

var spreadCases = []spreadCase{
	{"one endpoint, UNHEALTHY", "", "", []string{"one UNHEALTHY"}, "one 100"},
	{"all UNHEALTHY", "", "", []string{"one UNHEALTHY, two UNHEALTHY"}, "one 50, two 50"},
	{"all TIMEOUT", "", "", []string{"one TIMEOUT, two TIMEOUT"}, "one 50, two 50"},
	{"all DRAINING", "", "", []string{"one DRAINING, two DRAINING"}, "one 50, two 50"},
	{"two of three UNHEALTHY", "", "", []string{"one, two UNHEALTHY, three UNHEALTHY"}, "one 33, two 33, three 33"},
	{"two of four UNHEALTHY", "", "", []string{"one, two, three UNHEALTHY, four UNHEALTHY"}, "one 50, two 50"},
	{"two of three DRAINING", "", "", []string{"one, two DRAINING, three DRAINING"}, "one 100"},
	{"two of four UNHEALTHY, one DRAINING", "", "", []string{"one, two DRAINING, three UNHEALTHY, four UNHEALTHY"}, "one 25, two 25, three 25, four 25"},
	{"all UNHEALTHY, and healthy_panic_threshold 0", noPanic, "", []string{"one UNHEALTHY, two UNHEALTHY"}, ""},
	{"two of three UNHEALTHY, and healthy_panic_threshold 0", noPanic, "", []string{"one, two UNHEALTHY, three UNHEALTHY"}, "one 100"},
	{"one of four UNHEALTHY, and healthy_panic_threshold 80", `, "commonLbConfig": {"healthyPanicThreshold": {"value": 80}}`, "", []string{"one, two, three, four UNHEALTHY"}, "one 33, two 33, three 33"},
	{"one of two DEGRADED", "", "", []string{"one, two DEGRADED"}, "one 70, two 30"},
	{"one of two DEGRADED, LEAST_REQUEST", `, "lbPolicy": "LEAST_REQUEST"`, "", []string{"one, two DEGRADED"}, "one 70, two 30"},
	{"one of three DEGRADED", "", "", []string{"one, two, three DEGRADED"}, "one 46, two 46, three 7"},
	{"all DEGRADED", "", "", []string{"one DEGRADED, two DEGRADED"}, "one 50, two 50"},
	{"one DEGRADED, two UNHEALTHY", "", "", []string{"one DEGRADED, two UNHEALTHY, three UNHEALTHY"}, "one 33, two 33, three 33"},
	{"priority 0 with one of two UNHEALTHY, priority 1", "", "", []string{"one, two UNHEALTHY", `"priority": 1, three`}, "one 70, three 30"},
	{"priority 0 UNHEALTHY, priority 1", "", "", []string{"one UNHEALTHY", `"priority": 1, two`}, "two 100"},
	{"priority 0 with two of three UNHEALTHY, priority 1", "", "", []string{"one, two UNHEALTHY, three UNHEALTHY", `"priority": 1, four`}, "one 46, four 54"},
	{"priorities 0 and 1 with one of two UNHEALTHY, priority 2", "", "", []string{"one, two UNHEALTHY", `"priority": 1, three, four UNHEALTHY`, `"priority": 2, five`}, "one 70, three 30"},
	{"priorities 0 and 1 with two of three UNHEALTHY", "", "", []string{"one, two UNHEALTHY, three UNHEALTHY", `"priority": 1, four, five UNHEALTHY, six UNHEALTHY`}, "one 17, two 17, three 17, four 17, five 17, six 17"},
	{"priority 0 UNHEALTHY, priority 1 with one of two", "", "", []string{"one UNHEALTHY, two UNHEALTHY", `"priority": 1, three, four UNHEALTHY`}, "three 100"},
	{"priority 0 of two and 1 of one, all UNHEALTHY", "", "", []string{"one UNHEALTHY, two UNHEALTHY", `"priority": 1, three UNHEALTHY`}, "one 33, two 33, three 33"},
	{"priority 0 DEGRADED, priority 1", "", "", []string{"one DEGRADED", `"priority": 1, two`}, "two 100"},
	{"priority 0 DEGRADED, priority 1 UNHEALTHY", "", "", []string{"one DEGRADED", `"priority": 1, two UNHEALTHY`}, "one 100"},
	{"priority 0 UNHEALTHY, priority 7", "", "", []string{"one UNHEALTHY", `"priority": 7, two`}, "two 100"},
	{"overprovisioning_factor 100, priority 0 with one of two UNHEALTHY, priority 1", "", `, "policy": {"overprovisioningFactor": 100}`, []string{"one, two UNHEALTHY", `"priority": 1, three`}, "one 50, three 50"},
	{"weighted_priority_health, priority 0 with weights 1 and 3 UNHEALTHY, priority 1", "", `, "policy": {"weightedPriorityHealth": true}`, []string{"one, two UNHEALTHY 3", `"priority": 1, three`}, "one 35, three 65"},
	{"localities with weights 3 and 1, locality_weighted_lb_config", weighted, "", []string{localityOf("a", 3) + "one", localityOf("b", 1) + "two"}, "one 75, two 25"},
	{"localities with equal weights, of two endpoints and of one, locality_weighted_lb_config", weighted, "", []string{localityOf("a", 1) + "one, two", localityOf("b", 1) + "three"}, "one 25, two 25, three 50"},
	{"weights 1 and 3 in a locality of weight 1, beside one of weight 1, locality_weighted_lb_config", weighted, "", []string{localityOf("a", 1) + "one 1, two 3", localityOf("b", 1) + "three"}, "one 12, two 38, three 50"},
	{"a locality of weight 1 with one of two UNHEALTHY, and one of weight 2, locality_weighted_lb_config", weighted, "", []string{localityOf("a", 1) + "one, two UNHEALTHY", localityOf("b", 2) + "three"}, "one 26, three 74"},
	{"a locality without weight, locality_weighted_lb_config", weighted, "", []string{`"locality": {"zone": "a"}, one`, localityOf("b", 2) + "two"}, "two 100"},
	{"two of three UNHEALTHY, locality_weighted_lb_config", weighted, "", []string{localityOf("a", 9) + "one, two UNHEALTHY", localityOf("b", 1) + "three UNHEALTHY"}, "one 33, two 33, three 33"},
	{"one of two localities DEGRADED, locality_weighted_lb_config", weighted, "", []string{localityOf("a", 1) + "one", localityOf("b", 9) + "two DEGRADED"}, "one 70, two 30"},
	{"localities with weights 3 and 1", "", "", []string{localityOf("a", 3) + "one", localityOf("b", 1) + "two"}, "one 50, two 50"},
	{"RANDOM, and weights 3 and 1", `, "lbPolicy": "RANDOM"`, "", []string{"one 3, two 1"}, "one 50, two 50"},
	{"one endpoint twice in a locality", "", "", []string{"one, one, two"}, "one 50, two 50"},
	{"one endpoint in priorities 0 and 1", "", "", []string{"one, two UNHEALTHY", `"priority": 1, one, three`}, "one 70, three 30"},
}

// resources returns the Listener, the Cluster and the ClusterLoadAssignment of a case.
func (c *spreadCase) resources(name string, at map[string]net.Addr) []string {
	var localities []string
	for _, text := range c.localities {
		i := strings.LastIndexAny(text, `}"`) // the JSON ends with a value before a comma
		more, rest := "", text
		if i >= 0 {
			j := strings.Index(text[i:], ",")
			more, rest = text[:i+j+1], text[i+j+1:]
		}
		var endpoints []string
		for _, e := range strings.Split(rest, ",") {
			words := strings.Fields(e)
			fields := ""
			for _, w := range words[1:] {
				if strings.Trim(w, "0123456789") == "" {
					fields += `, "loadBalancingWeight": ` + w
				} else {
					fields += fmt.Sprintf(`, "healthStatus": %q`, w)
				}
			}
			endpoints = append(endpoints, endpointAt(at[words[0]], fields))
		}
		localities = append(localities, fmt.Sprintf(`{%s "lbEndpoints": [{%s}]}`, more, strings.Join(endpoints, "}, {")))
	}
	return []string{tcpListener(name, name, 0, ""), edsCluster(name, c.cluster),
		fmt.Sprintf(`{%sconfig.endpoint.v3.ClusterLoadAssignment", "clusterName": %q, "endpoints": [%s] %s}`, typeOf, name, strings.Join(localities, ", "), c.policy)}
}

// shares parses what is wanted.
func (c *spreadCase) shares(t *testing.T) map[string]float64 {
	all, rest := map[string]float64{}, 100.0
	for _, part := range strings.Split(c.want, ", ") {
		var name string
		var share float64
		if part == "" {
			continue
		}
		if _, err := fmt.Sscan(part, &name, &share); err != nil {
			t.Fatal(err)
		}
		all[name] = share / 100
		rest -= share
	}
	if rest > 3 { // what rounding leaves
		all["closed"] = rest / 100
	}
	return all
}

// countServed returns who serves n clients, several at a time.
func countServed(at net.Addr, n int) map[string]int {
	var mu sync.Mutex
	var wg sync.WaitGroup
	count := map[string]int{}
	const clients = 8
	for range clients {
		wg.Go(func() {
			for range n / clients {
				name := greeted(at, nil)
				mu.Lock()
				count[name]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return count
}

// compareShares reports how counts of n clients differ from the shares that are wanted: by more than 6.5 standard deviations, which chance does
// once in 10^10.
func compareShares(t *testing.T, who string, want map[string]float64, got map[string]int, n int) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if want[name] == 0 {
			t.Errorf("%s: %d of %d clients were served by %s; want %v", who, got[name], n, name, want)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		mean := want[name] * float64(n)
		// What is wanted is rounded to whole percents.
		if d := math.Abs(float64(got[name]) - mean); d > 6.5*math.Sqrt(mean*(1-want[name]))+0.01*float64(n) {
			t.Errorf("%s: %d of %d clients were served by %s; want %v", who, got[name], n, name, want)
		}
	}
}

// The endpoints of an assignment serve the same shares of clients here and, with -envoy, with Envoy, whatever their statuses,
// priorities, localities and weights are.
func TestSpreadLikeEnvoy(t *testing.T) {
	t.Parallel()
	at := map[string]net.Addr{}
	for _, name := range []string{"one", "two", "three", "four", "five", "six"} {
		at[name] = speak(t, name).Addr()
	}
	var resources []string
	for i := range spreadCases {
		resources = append(resources, spreadCases[i].resources(fmt.Sprint("case-", i), at)...)
	}
	p := newXDSPlane(t, resources...)
	d := runXDS(t, p, t.TempDir())
	var reference func(t *testing.T, name string) net.Addr
	if *envoy != "" {
		reference = runEnvoy(t, p)
	}
	docs, err := os.ReadFile(filepath.Join("..", "..", "docs", "xds.md"))
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range spreadCases {
		t.Run(strings.ReplaceAll(c.title, " ", "_"), func(t *testing.T) {
			const n = 400
			want, name := c.shares(t), fmt.Sprint("case-", i)
			testwait.Until(t, "members are known", func() bool { return want[greeted(d.at(name), nil)] > 0 })
			compareShares(t, "Penstock", want, countServed(d.at(name), n), n)
			if reference != nil {
				compareShares(t, "Envoy", want, countServed(reference(t, name), n), n)
			}
			shown := c.want
			if shown == "" {
				shown = "closed"
			}
			if row := fmt.Sprintf("| %s | %s |\n", c.title, shown); !strings.Contains(string(docs), row) {
				t.Errorf("docs/xds.md lacks the row %s", row)
			}
		})
	}
}
