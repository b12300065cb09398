package discover

import (
	"io"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// checkTargets fails unless a list of members is one that a Set can take.
func checkTargets(t *testing.T, f *feed) {
	list, _, _ := f.list()
	seen := map[string]bool{}
	for _, m := range list {
		key := m.Addr.AddrPort.String()
		if seen[key] || !m.Addr.AddrPort.IsValid() || m.Addr.AddrPort.Port() == 0 || m.Weight < 1 || m.Weight > maxWeight || len(m.Metadata) > 1<<10 || m.Zone != "" && !spec.ValidNode(m.Zone) {
			t.Fatalf("member %+v", m)
		}
		seen[key] = true
	}
}

func FuzzKubernetesWatch(f *testing.F) {
	f.Add(`{"type":"ADDED","object":{"kind":"EndpointSlice","metadata":{"name":"a","resourceVersion":"7","labels":{"kubernetes.io/service-name":"web"}},"addressType":"IPv4","ports":[{"name":"http","port":80}],"endpoints":[{"addresses":["10.0.0.1"],"zone":"a","conditions":{"ready":true}}]}}
{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}`)
	f.Add(`{"type":"DELETED","object":{"metadata":{"name":"a","resourceVersion":"8"}}}`)
	f.Add(`{"kind":"EndpointSliceList","metadata":{"resourceVersion":"5","continue":"x"},"items":[{"metadata":{"name":"a","labels":{"kubernetes.io/service-name":"web"}},"addressType":"FQDN"},null]}`)
	d := spec.Discover{Network: spec.TCP, Key: "shop/web"}
	f.Fuzz(func(t *testing.T, s string) {
		out := newFeed(Options{LeftOut: func(spec.Discover, string) {}}, d)
		k := &kubeWatch{kubeSource: New(Options{}).kubernetes(d), feed: out}
		k.members = newKubeMembers(d, "web", out)
		if _, err := readList(strings.NewReader(s), func(s *endpointSlice) error {
			_, _, err := k.members.put(s)
			return err
		}); err == nil {
			k.members.tell(true, nil, nil)
			checkTargets(t, out)
		}
		body := &remote.BoundedReader{R: strings.NewReader(s), Left: 1 << 20}
		for r := newEventReader(body); ; {
			e, err := r.next()
			if err != nil {
				if err == io.EOF && strings.TrimSpace(s) != "" && !strings.ContainsAny(s, "{}[]\"0123456789ntf") {
					t.Fatal("the end came without an error")
				}
				return
			}
			if k.apply(e) == nil && k.version == "" {
				t.Fatal("an event without a version was applied")
			}
			checkTargets(t, out)
		}
	})
}

func FuzzConsulAnswer(f *testing.F) {
	f.Add(`[{"Node":{"Node":"n","Address":"10.0.0.1","Meta":{"zone":"a"}},"Service":{"ID":"web","Address":"","Port":80,"Weights":{"Passing":300,"Warning":1}},"Checks":[{"CheckID":"serfHealth","Status":"warning"}]}]`)
	f.Add(`[{"Node":{"Address":"::1"},"Service":{"Port":-1,"Weights":{"Passing":-9223372036854775808},"Locality":{"Zone":"b"}},"Checks":null},null]`)
	f.Add(`null`)
	d := spec.Discover{Network: spec.TCP, Key: "web"}
	f.Fuzz(func(t *testing.T, s string) {
		out := newFeed(Options{LeftOut: func(spec.Discover, string) {}}, d)
		list, err := readInstances(strings.NewReader(s))
		if err != nil {
			return
		}
		if err := tellInstances(out, list, d); err != nil {
			t.Fatal(err)
		}
		checkTargets(t, out)
	})
}

func FuzzKubeconfig(f *testing.F) {
	f.Add(kubeconfigOf("    server: https://10.0.0.1:6443\n    certificate-authority-data: UEVN", "    token: abc"))
	f.Add(kubeconfigOf("    server: https://host/path", "    client-certificate: c\n    client-key: k"))
	f.Add("current-context: a\ncontexts: [{name: a, context: &x {cluster: *x}}]")
	f.Fuzz(func(t *testing.T, s string) {
		a, err := parseKubeconfig([]byte(s), "/etc/kube", "")
		if err != nil {
			return
		}
		if len(a.Servers) != 1 || strings.ContainsAny(a.token, " \r\n") {
			t.Fatalf("%+v", a)
		}
	})
}
