package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock/internal/testwait"
)

// While a control plane changes the statuses, priorities, localities and weights of all endpoints all the time, says one of
// them twice and another one wrong, each client is served: all endpoints work, and Envoy would use them in a panic.
func TestFlappingAssignments(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	var at []net.Addr
	for i := range 6 {
		at = append(at, speak(t, fmt.Sprint("member-", i)).Addr())
	}
	flap := func(name string) string {
		same := ""
		if r.IntN(3) == 0 { // all of them
			same = []string{"UNHEALTHY", "DRAINING", "DEGRADED", "TIMEOUT"}[r.IntN(4)]
		}
		var localities []string
		endpoint := func(a net.Addr) string {
			status := same
			if status == "" {
				status = []string{"UNKNOWN", "HEALTHY", "UNHEALTHY", "DRAINING", "DEGRADED", "TIMEOUT"}[r.IntN(6)]
			}
			return endpointAt(a, fmt.Sprintf(`, "healthStatus": %q, "loadBalancingWeight": %d`, status, 1+r.IntN(1000)))
		}
		for _, i := range r.Perm(len(at)) {
			endpoints := []string{endpoint(at[i])}
			if r.IntN(3) == 0 {
				endpoints = append(endpoints, endpoint(at[r.IntN(len(at))])) // twice
			}
			if r.IntN(3) == 0 {
				endpoints = append(endpoints, endpointAt(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, "")) // without a port
			}
			localities = append(localities, fmt.Sprintf(`{"locality": {"zone": "z%d"}, "loadBalancingWeight": %d, "priority": %d, "lbEndpoints": [{%s}]}`, r.IntN(3), r.IntN(4), []int{0, 1, 9, 127}[r.IntN(4)], strings.Join(endpoints, "}, {")))
		}
		return fmt.Sprintf(`{%sconfig.endpoint.v3.ClusterLoadAssignment", "clusterName": %q, "endpoints": [%s]}`, typeOf, name, strings.Join(localities, ", "))
	}
	clusters := map[string]string{"turns": weighted, "least": `, "lbPolicy": "LEAST_REQUEST"`, "hashed": `, "lbPolicy": "MAGLEV"`}
	var resources []string
	for name, more := range clusters {
		resources = append(resources, tcpListener(name, name, 0, ""), edsCluster(name, more))
	}
	all := func() (list []string) {
		list = append(list, resources...)
		for name := range clusters {
			list = append(list, flap(name))
		}
		return list
	}
	p := newXDSPlane(t, all()...)
	d := runXDS(t, p, t.TempDir())
	for name := range clusters {
		testwait.Until(t, "members are known", func() bool { return greeted(d.at(name), nil) != "closed" })
	}
	var wg sync.WaitGroup
	var served, refused atomic.Int64
	done := make(chan struct{})
	for name := range clusters {
		listener := d.at(name)
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if greeted(listener, nil) == "closed" {
					refused.Add(1)
				}
				served.Add(1)
			}
		})
	}
	for range 40 {
		p.serve(all()...)
		for until := served.Load() + 100; served.Load() < until && refused.Load() == 0; {
			greeted(d.at("turns"), nil)
		}
	}
	close(done)
	wg.Wait()
	if n := refused.Load(); n > 0 {
		t.Errorf("seed %d: %d of %d clients were not served", seed, n, served.Load())
	}
	if n := p.said(`"error"`, "ClusterLoadAssignment"); n > 0 {
		t.Errorf("seed %d: %d assignments were refused", seed, n)
	}
}
