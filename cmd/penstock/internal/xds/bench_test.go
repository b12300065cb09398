package xds

import (
	"fmt"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/ads"
)

// BenchmarkAssignment reads an assignment, as each change of one of its members has it read.
func BenchmarkAssignment(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			list := make([]any, n)
			for i := range list {
				list[i] = map[string]any{"endpoint": endpoint(fmt.Sprintf("10.0.%d.%d", i>>8, i&255), 80), "health_status": 1, "load_balancing_weight": 1 + i%3}
			}
			value := encode(b, &assignmentTable, map[string]any{"cluster_name": "web", "endpoints": map[string]any{"locality": map[string]any{"zone": "a"}, "lb_endpoints": list}})
			cache := endpointCache{}
			b.ReportAllocs()
			b.SetBytes(int64(len(value)))
			for b.Loop() {
				if a, err := parseAssignmentResource(ads.Resource{Name: "web", URL: endpointsURL, Value: value}, cache); err != nil || len(a.Members) != n {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/member")
		})
	}
}
