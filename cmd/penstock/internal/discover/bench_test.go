package discover

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// BenchmarkKubernetesChange measures one endpoint of 10,000 that changes its readiness: its EndpointSlice of 100 is read and
// compared, and, with list, a new list of members is made.
func BenchmarkKubernetesChange(b *testing.B) {
	d := spec.Discover{Network: spec.TCP, Key: "shop/web"}
	event := func(slice int, ready bool) []byte {
		var endpoints []string
		for i := range 100 {
			endpoints = append(endpoints, fmt.Sprintf(`{"addresses":["10.%d.%d.1"],"conditions":{"ready":%v,"serving":true,"terminating":false},"nodeName":"node-%d","targetRef":{"kind":"Pod","namespace":"shop","name":"web-7d9f-%d-%d","uid":"0c1d"},"zone":"a"}`,
				slice, i, ready || i > 0, i, slice, i))
		}
		return fmt.Appendf(nil, `{"type":"MODIFIED","object":{"metadata":{"name":"web-%d","resourceVersion":"1","labels":{"kubernetes.io/service-name":"web"}},"addressType":"IPv4","ports":[{"name":"http","protocol":"TCP","port":80}],"endpoints":[%s]}}`,
			slice, strings.Join(endpoints, ","))
	}
	for _, list := range []bool{false, true} {
		b.Run(fmt.Sprintf("list=%v", list), func(b *testing.B) {
			f := newFeed(Options{LeftOut: func(spec.Discover, string) {}}, d)
			f.listed = true
			k := &kubeWatch{kubeSource: New(Options{}).kubernetes(d), feed: f, members: newKubeMembers(d, "web", f)}
			apply := func(text []byte) {
				var e watchEvent
				if err := json.Unmarshal(text, &e); err != nil {
					b.Fatal(err)
				}
				if err := k.apply(e); err != nil {
					b.Fatal(err)
				}
			}
			for slice := range 100 {
				apply(event(slice, true))
			}
			f.list()
			states := [2][]byte{event(5, false), event(5, true)}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				apply(states[i%2])
				if list {
					f.list()
				}
			}
		})
	}
}
