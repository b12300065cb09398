package xds

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/ads"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

const (
	listenerWeb = `{"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "web",
		"address": {"socketAddress": {"address": "127.0.0.1", "portValue": 18080}},
		"filterChains": [{"filters": [{"name": "tcp", "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "statPrefix": "x", "cluster": "web"}}]}]}`
	listenerBad = `{"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "web",
		"address": {"socketAddress": {"address": "127.0.0.1", "portValue": 18080}},
		"filterChains": [{"filters": [{"name": "tcp", "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "statPrefix": "x", "cluster": "web", "tunnelingConfig": {"hostname": "x"}}}]}]}`
	clusterWeb   = `{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "web", "type": "EDS", "edsClusterConfig": {"edsConfig": {"ads": {}, "resourceApiVersion": "V3"}}, "connectTimeout": "1s"}`
	endpointsWeb = `{"@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", "clusterName": "web", "endpoints": [
		{"locality": {"zone": "a"}, "lbEndpoints": [{"endpoint": {"address": {"socketAddress": {"address": "127.0.0.1", "portValue": 9001}}}, "loadBalancingWeight": 3, "metadata": {"filterMetadata": {"x": {"k": "v", "n": 1}}}}]},
		{"locality": {"zone": "b"}, "priority": 1, "lbEndpoints": [{"endpoint": {"address": {"socketAddress": {"address": "127.0.0.1", "portValue": 9002}}}, "healthStatus": "DRAINING"}]}]}`
)

// endpointsOn returns an assignment with one member.
func endpointsOn(port string) string {
	return `{"@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", "clusterName": "web", "endpoints": [{"lbEndpoints": [{"endpoint": {"address": {"socketAddress": {"address": "127.0.0.1", "portValue": ` + port + `}}}}]}]}`
}

// A configuration comes from a real control plane, changes, is refused with a reason that the control plane sees, and
// goes on after a restart of the control plane, without anything being sent again.
func TestPlane(t *testing.T) {
	testnet.CheckLeaks(t)
	p := newPlane(t, clusterWeb, listenerWeb, endpointsWeb)
	c := newTestClient(t, ads.Options{Registry: registryOf(p.URL)})
	f := follow(t, c, "", false)
	first := f.next(t)
	for _, want := range []string{`listen: "tcp://127.0.0.1:18080"`, `discover: [{xds: "web", registry: control-plane}]`, `to: "web"`} {
		if !strings.Contains(string(first.YAML), want) {
			t.Errorf("%s is missing in:\n%s", want, first.YAML)
		}
	}
	testwait.Until(t, "both types are acknowledged", func() bool {
		return len(p.find(func(e exchange) bool {
			return e.Kind == "request" && e.Nonce != "" && e.Error == "" && e.Type != endpointsURL
		})) == 2
	})
	node := p.exchanges()[1].Node
	if node["id"] != "relay-1" || node["userAgentName"] != "penstock" || node["locality"].(map[string]any)["zone"] != "a" {
		t.Errorf("node %v", node)
	}

	p.serve(clusterWeb, listenerBad, endpointsWeb)
	testwait.Until(t, "the reason is seen by the control plane", func() bool {
		return len(p.find(func(e exchange) bool {
			return e.Type == listenerURL && strings.Contains(e.Error, "Listener web: filter_chains[0].filters[0].typed_config.tunneling_config: not supported")
		})) == 1
	})
	p.serve(clusterWeb, strings.Replace(listenerWeb, "18080", "18081", 1), endpointsWeb)
	if next := f.next(t); !strings.Contains(string(next.YAML), "18081") {
		t.Errorf("not the next one:\n%s", next.YAML)
	}

	acknowledged := func(e exchange) bool { return e.Kind == "request" && e.Nonce != "" && e.Error == "" }
	resources := func(e exchange) bool { return e.Kind == "response" && len(e.Resources)+len(e.Removed) > 0 }
	testwait.Until(t, "the last one is acknowledged", func() bool {
		sent := p.find(resources)
		nonce := sent[len(sent)-1].Nonce
		return len(p.find(func(e exchange) bool { return acknowledged(e) && e.Nonce == nonce })) > 0
	})

	before := len(p.find(resources))
	p.Restart()
	testwait.Until(t, "the client comes back with what it has", func() bool {
		return len(p.find(func(e exchange) bool { return len(e.Known) > 0 })) >= 3
	})
	p.serve(clusterWeb, listenerWeb, endpointsWeb)
	if next := f.next(t); !strings.Contains(string(next.YAML), "18080") {
		t.Errorf("not the one after the restart:\n%s", next.YAML)
	}
	// What has changed since is all that came.
	if after := p.find(resources)[before:]; len(after) != 1 || after[0].Type != listenerURL {
		t.Errorf("with resources after the restart: %+v", after)
	}
}

// Members come, change and go without the configuration.
func TestPlaneEndpoints(t *testing.T) {
	testnet.CheckLeaks(t)
	p := newPlane(t, endpointsWeb)
	c := newTestClient(t, ads.Options{Registry: registryOf(p.URL)})
	e := NewEndpoints(c)
	ctx, cancel := context.WithCancel(context.Background())
	answers, errs, done := make(chan *Assignment, 100), make(chan error, 100), make(chan struct{})
	go func() {
		defer close(done)
		e.Watch(ctx, "web", func(a *Assignment, err error) {
			if err != nil {
				errs <- err
			} else {
				answers <- a
			}
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	// until waits for an answer with these members; an answer may come twice.
	until := func(ports ...uint16) *Assignment {
		t.Helper()
		for end := time.After(patience); ; {
			select {
			case a := <-answers:
				if slices.EqualFunc(a.Members, ports, func(m Member, port uint16) bool { return m.To.Port == port }) {
					return a
				}
			case <-end:
				t.Fatalf("no answer with %v; %+v", ports, p.exchanges())
			}
		}
	}
	fails := func(want string) {
		t.Helper()
		for {
			select {
			case err := <-errs:
				if strings.Contains(err.Error(), want) {
					return
				}
			case <-time.After(patience):
				t.Fatalf("no error %q", want)
			}
		}
	}
	a := until(9001, 9002)
	if a.Members[0].To.String() != "tcp://127.0.0.1:9001" || a.Members[0].Weight != 3 || a.Members[0].Zone != "a" || a.Members[0].Metadata != `{"x":{"k":"v","n":1}}` ||
		a.Members[1].Health != Draining || a.Members[1].Priority != 1 || a.Members[1].Zone != "b" {
		t.Errorf("%+v", a.Members)
	}
	p.serve(endpointsOn("9003"))
	until(9003)
	p.serve(endpointsOn("70000"))
	fails("endpoints[0].lb_endpoints[0].endpoint.address.socket_address.port_value: 70000 is not a port")
	testwait.Until(t, "the reason is seen by the control plane", func() bool {
		return len(p.find(func(e exchange) bool { return strings.Contains(e.Error, "ClusterLoadAssignment web: endpoints[0]") })) == 1
	})
	p.serve(endpointsOn("9004"))
	until(9004)
	p.serve()
	until() // an assignment that was removed has no members
	p.Kill()
	fails("stream")
	p.Restart()
	p.serve(endpointsOn("9005"))
	until(9005)
}

// Penstock's own type, as text and as a Struct.
func TestPlaneOwnType(t *testing.T) {
	testnet.CheckLeaks(t)
	p := newPlane(t, `{"@type": "type.googleapis.com/penstock.v1.Configuration", "name": "edge", "text": "listeners:\n  a: {listen: 'tcp://127.0.0.1:1', to: 'echo:'}\n"}`)
	c := newTestClient(t, ads.Options{Registry: registryOf(p.URL)})
	f := follow(t, c, "edge", false)
	if text := f.next(t); !strings.Contains(string(text.YAML), "127.0.0.1:1'") {
		t.Errorf("%s", text.YAML)
	}
	p.serve(`{"@type": "type.googleapis.com/penstock.v1.Configuration", "name": "edge", "value": {"listeners": {"a": {"listen": "tcp://127.0.0.1:2", "to": "echo:", "backlog": 100}}}}`)
	if text := f.next(t); !strings.Contains(string(text.YAML), `127.0.0.1:2"`) || !strings.Contains(string(text.YAML), `"backlog": 100`) {
		t.Errorf("%s", text.YAML)
	}
	p.serve(`{"@type": "type.googleapis.com/penstock.v1.Configuration", "name": "edge", "text": "listenrs: {}"}`)
	testwait.Until(t, "the reason is seen by the control plane", func() bool {
		return len(p.find(func(e exchange) bool { return strings.Contains(e.Error, "did you mean listeners?") })) == 1
	})
}

// Per resource: what is wrong stays as it was, or is left out, and the rest is applied.
func TestPlanePartial(t *testing.T) {
	testnet.CheckLeaks(t)
	other := strings.NewReplacer(`"name": "web"`, `"name": "other"`, "18080", "18090").Replace(listenerWeb)
	p := newPlane(t, clusterWeb, listenerBad, other, endpointsWeb)
	c := newTestClient(t, ads.Options{Registry: registryOf(p.URL)})
	f := follow(t, c, "", true)
	if text := string(f.next(t).YAML); strings.Contains(text, "18080") || !strings.Contains(text, "18090") {
		t.Errorf("not only the good one:\n%s", text)
	}
	refused := func(n int) {
		t.Helper()
		testwait.Until(t, "the wrong one is refused", func() bool {
			return len(p.find(func(e exchange) bool { return e.Type == listenerURL && strings.HasPrefix(e.Error, "Listener web: ") })) == n
		})
		if n := len(p.find(func(e exchange) bool { return e.Type == clusterURL && e.Error != "" })); n > 0 {
			t.Errorf("%d refusals of Clusters", n)
		}
	}
	refused(1)
	p.serve(clusterWeb, listenerWeb, other, endpointsWeb)
	if text := string(f.next(t).YAML); !strings.Contains(text, "18080") || !strings.Contains(text, "18090") {
		t.Errorf("not both:\n%s", text)
	}
	p.serve(clusterWeb, listenerBad, strings.Replace(other, "18090", "18091", 1), endpointsWeb)
	if text := string(f.next(t).YAML); !strings.Contains(text, "18080") || !strings.Contains(text, "18091") {
		t.Errorf("not the good one before, and the new one:\n%s", text)
	}
	refused(2)
	// What only package config finds.
	p.serve(clusterWeb, strings.Replace(listenerWeb, `"filterChains"`, `"tcpFastOpenQueueLength": 100000, "filterChains"`, 1), other, endpointsWeb)
	if text := string(f.next(t).YAML); !strings.Contains(text, "18080") || !strings.Contains(text, "18090") || strings.Contains(text, "100000") {
		t.Errorf("not the good one before, and the new one:\n%s", text)
	}
	refused(3)
}
