package xds

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/ads"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
)

// A scenario is a Listener and a Cluster, and lines of what becomes of them: of the text, of warnings (begins with
// "warning: "), or of the error ("error: ").
type scenario struct {
	name              string
	listener, cluster map[string]any
	want              []string
}

// dynamicCluster is a cluster of hosts that clients name.
var dynamicCluster = map[string]any{"name": "web", "connect_timeout": time.Second, "lb_policy": clusterProvided, "cluster_type": map[string]any{"typed_config": packed{&dynamicClusterTable, map[string]any{"dns_cache_config": map[string]any{"name": "cache", "max_hosts": 10}}}}}

// forwarding is a listener whose clients name their hosts.
func forwarding(port int) map[string]any {
	chain := tcpChain(nil, nil)
	chain["filters"] = []any{map[string]any{"typed_config": packed{&sniForwardTable, map[string]any{"dns_cache_config": map[string]any{"name": "cache"}, "port_value": port}}}, chain["filters"]}
	return withKeys(plainListener, map[string]any{"filter_chains": chain})
}

var scenarios = []scenario{
	{"plain", plainListener, plainCluster, []string{`listen: "tcp://127.0.0.1:8080"`, `to: "web"`, `timeouts: {idle: 1h, half-closed: 1h}`, `discover: [{xds: "web", registry: control-plane}]`, "connect: 1s", "retries: 0", "balance: round-robin", "panic: 0.5"}},
	{"SNI, ALPN and addresses, the most specific first", map[string]any{"name": "web", "address": socket("127.0.0.1", 8080),
		"listener_filters": map[string]any{"typed_config": packed{&tlsInspectorTable, map[string]any{"max_client_hello_size": 8192}}},
		"filter_chains": []any{
			withKeys(tcpChain(map[string]any{"server_names": []any{"*.example.com", "www.Example.com"}, "transport_protocol": "tls"}, nil), map[string]any{"name": "names"}),
			withKeys(tcpChain(map[string]any{"application_protocols": "h2"}, map[string]any{"idle_timeout": time.Minute, "max_downstream_connection_duration": time.Hour}), map[string]any{"name": "h2"}),
			withKeys(tcpChain(map[string]any{"source_prefix_ranges": []any{map[string]any{"address_prefix": "10.0.0.0", "prefix_len": 8}, map[string]any{"address_prefix": "10.1.0.0", "prefix_len": 16}}}, nil), map[string]any{"name": "near by"}),
		}, "default_filter_chain": tcpChain(nil, map[string]any{"max_connect_attempts": 3})}, plainCluster, []string{
		"max: 8192", "timeout: 15s",
		`- {name: "names", sni: ["www.example.com"], to: "web", timeouts: {idle: 1h, half-closed: 1h}}`,
		`- {name: "names.2", sni: ["*.example.com"], to: "web", timeouts: {idle: 1h, half-closed: 1h}}`,
		`- {name: "h2", alpn: ["h2"], to: "web", timeouts: {idle: 1m, half-closed: 1m, life: 1h}}`,
		`- {name: "near-by-b1914ddc", from: ["10.1.0.0/16"], to: "web", timeouts: {idle: 1h, half-closed: 1h}}`,
		`"web.attempts-3":`, "retries: 2"}},
	{"by the first bytes", map[string]any{"name": "web", "address": socket("127.0.0.1", 8080),
		"listener_filters": []any{map[string]any{"typed_config": packed{&tlsInspectorTable, nil}}, map[string]any{"typed_config": packed{&httpInspectorTable, nil}}},
		"filter_chains": []any{
			withKeys(tcpChain(map[string]any{"transport_protocol": "raw_buffer", "application_protocols": []any{"http/1.0", "http/1.1", "h2c"}}, nil), map[string]any{"name": "clear"}),
			withKeys(tcpChain(map[string]any{"transport_protocol": "raw_buffer"}, map[string]any{"idle_timeout": time.Minute}), map[string]any{"name": "rest"}),
			withKeys(tcpChain(map[string]any{"application_protocols": []any{"http/1.1", "h2"}}, nil), map[string]any{"name": "both"}),
			withKeys(tcpChain(map[string]any{"source_prefix_ranges": map[string]any{"address_prefix": "10.0.0.0", "prefix_len": 8}}, nil), map[string]any{"name": "wide"}),
			withKeys(tcpChain(map[string]any{"transport_protocol": "tls"}, nil), map[string]any{"name": "tls"}),
			withKeys(tcpChain(map[string]any{"transport_protocol": "tls", "server_names": "a.example"}, nil), map[string]any{"name": "a"}),
			withKeys(tcpChain(map[string]any{"transport_protocol": "tls", "application_protocols": "h2", "source_prefix_ranges": map[string]any{"address_prefix": "10.0.0.0", "prefix_len": 8}}, nil), map[string]any{"name": "near"}),
		}, "default_filter_chain": tcpChain(nil, map[string]any{"idle_timeout": 2 * time.Minute})}, plainCluster, []string{
		"timeout: 15s",
		`- {name: "a", sni: ["a.example"], to: "web"`,
		`- {name: "near", from: ["10.0.0.0/8"], alpn: ["h2"], to: "web"`,
		`- {name: "clear", protocol: ["http", "http2"], to: "web"`,
		`- {name: "tls", protocol: ["tls"], to: "web"`,
		"timeouts: {idle: 1m, half-closed: 1m}\n",
		"warning: Listener web: filter_chains[2].filter_chain_match: no client gets to this chain", "warning: Listener web: filter_chains[3].filter_chain_match: no client gets to this chain",
		"warning: Listener web: filter_chains[2].filter_chain_match.application_protocols: without TLS, http/1.0 and http/1.1 are one protocol here"}},
	{"protocols behind TLS", withKeys(plainListener, map[string]any{"filter_chains": []any{withKeys(tcpChain(map[string]any{"application_protocols": "h2"}, nil), map[string]any{"name": "h2"}),
		withKeys(tcpChain(map[string]any{"transport_protocol": "tls"}, nil), map[string]any{"name": "tls"})}, "default_filter_chain": tcpChain(nil, nil)}), plainCluster,
		[]string{`- {name: "tls", protocol: ["tls"], to: "web"`, "warning: Listener web: filter_chains[0].filter_chain_match: no client gets to the route h2: the route tls takes them before, as in Envoy"}},
	{"what is not TLS, of some addresses", withKeys(plainListener, map[string]any{"filter_chains": []any{
		withKeys(tcpChain(map[string]any{"transport_protocol": "raw_buffer", "source_prefix_ranges": map[string]any{"address_prefix": "10.0.0.0", "prefix_len": 8}}, nil), map[string]any{"name": "near"}),
		withKeys(tcpChain(map[string]any{"transport_protocol": "tls"}, nil), map[string]any{"name": "tls"}), tcpChain(nil, nil)}}), plainCluster, []string{
		`- {name: "tls", protocol: ["tls"], to: "web"`, `- {name: "near", from: ["10.0.0.0/8"], to: "web"`, `to: "web"`,
		"warning: Listener web: filter_chains[0].filter_chain_match.transport_protocol: a client of raw_buffer that meets no other condition"}},
	{"TLS of some protocols", withKeys(plainListener, map[string]any{"filter_chains": []any{withKeys(tcpChain(map[string]any{"transport_protocol": "tls", "application_protocols": "h2"}, nil), map[string]any{"name": "h2"}), tcpChain(nil, nil)}}), plainCluster,
		[]string{`- {name: "h2", alpn: ["h2"], to: "web"`, "warning: Listener web: filter_chains[0].filter_chain_match.transport_protocol: a client of tls that meets no other condition"}},
	{"TLS of some protocols, and the default", withKeys(plainListener, map[string]any{"filter_chains": withKeys(tcpChain(map[string]any{"transport_protocol": "tls", "application_protocols": "h2"}, nil), map[string]any{"name": "h2"}), "default_filter_chain": tcpChain(nil, nil)}), plainCluster,
		[]string{`- {name: "h2", alpn: ["h2"], to: "web"`, "not: warning"}},
	{"what is not TLS, without TLS", withKeys(plainListener, map[string]any{"filter_chains": []any{withKeys(tcpChain(map[string]any{"transport_protocol": "raw_buffer"}, nil), map[string]any{"name": "near"}),
		withKeys(tcpChain(map[string]any{"transport_protocol": "tls", "server_names": "a.example"}, nil), map[string]any{"name": "a"})}}), plainCluster,
		[]string{"error: Listener web: filter_chains[0].filter_chain_match.transport_protocol: not supported: raw_buffer without a chain that takes all of tls from the same addresses"}},
	{"protocols without TLS and without http_inspector", withKeys(plainListener, map[string]any{"filter_chains": withKeys(tcpChain(map[string]any{"transport_protocol": "raw_buffer", "application_protocols": "http/1.1"}, nil), map[string]any{"name": "a"})}), plainCluster,
		[]string{"error: Listener web: filter_chains[0].filter_chain_match.application_protocols: no client matches: without TLS and the listener filter http_inspector"}},
	{"a name without TLS", withKeys(plainListener, map[string]any{"filter_chains": withKeys(tcpChain(map[string]any{"transport_protocol": "raw_buffer", "server_names": "a.example"}, nil), map[string]any{"name": "a"})}), plainCluster,
		[]string{"error: Listener web: filter_chains[0].filter_chain_match.transport_protocol: no client matches: those with a server name speak tls"}},
	{"hosts that clients name", forwarding(443), dynamicCluster, []string{`"web.port-443":`, "destination:", "port: 443", `allow: ["*"]`, "connect: 1s", "timeout: 15s", `to: "web.port-443"`, "not: balance", "not: panic",
		"warning: Cluster web: cluster_type: clients may name every host, as in Envoy; addresses that are private or otherwise reserved are refused",
		"warning: Cluster web: cluster_type.typed_config.dns_cache_config.max_hosts: ignored: use `names: {kept}`"}},
	{"hosts that clients name, of a cluster with members", forwarding(443), plainCluster, []string{`to: "web"`, "discover:", "not: destination"}},
	{"hosts that clients name, without the filter", plainListener, dynamicCluster, []string{"error: Listener web: filter_chains[0]: it leads to the cluster web, of hosts that clients name; allowed: behind the filter sni_dynamic_forward_proxy"}},
	{"hosts that clients name, without a port", forwarding(0), dynamicCluster, []string{"error: Listener web: filter_chains[0].filters[0].typed_config.port_value: 0; allowed: 1 to 65535"}},
	{"hosts that clients name, with checks and a policy", forwarding(443), withKeys(dynamicCluster, map[string]any{"lb_policy": 0, "outlier_detection": map[string]any{"consecutive_5xx": 3}}),
		[]string{"error: Cluster web: lb_policy: 0; allowed with cluster_type: CLUSTER_PROVIDED", "error: Cluster web: outlier_detection: not supported with cluster_type"}},
	{"another custom type", forwarding(443), withKeys(plainCluster, map[string]any{"cluster_type": map[string]any{"typed_config": packed{&addressTable, nil}}, "lb_policy": clusterProvided}), []string{"error: Cluster web: cluster_type.typed_config"}},
	{"PROXY protocol in and out", withKeys(plainListener, map[string]any{"listener_filters": map[string]any{"typed_config": packed{&proxyFilterTable, nil}}, "listener_filters_timeout": 2 * time.Second}),
		withKeys(plainCluster, map[string]any{"transport_socket": map[string]any{"typed_config": packed{&upstreamProxyTable, map[string]any{
			"config":           map[string]any{"version": 1, "pass_through_tlvs": map[string]any{"match_type": 1, "tlv_type": []any{1, 2}}, "added_tlvs": map[string]any{"type": 0xE0, "value": "x"}},
			"transport_socket": map[string]any{"typed_config": packed{&rawBufferTable, nil}}}}}}),
		[]string{`from: ["0.0.0.0/0", "::/0"]`, "timeout: 2s", "version: 2", "forward: [0x01, 0x02]", "tlvs: {0xE0: hex:78}"}},
	{"datagrams", map[string]any{"name": "web", "address": map[string]any{"socket_address": map[string]any{"protocol": 1, "address": "::", "port_value": 53}},
		"listener_filters": map[string]any{"typed_config": packed{&udpProxyTable, map[string]any{"matcher": map[string]any{"on_no_match": map[string]any{"action": map[string]any{"typed_config": packed{&udpRouteTable, map[string]any{"cluster": "web"}}}}}}}}},
		plainCluster, []string{`listen: "udp://[::]:53"`, "timeouts: {idle: 1m}", `discover: [{xds: "web", registry: control-plane, network: udp}]`}},
	{"members", plainListener, withKeys(staticCluster, map[string]any{"lb_policy": 5, "circuit_breakers": map[string]any{"thresholds": []any{map[string]any{"priority": 1, "max_connections": 5}, map[string]any{"max_connections": 7}}, "per_host_thresholds": map[string]any{"max_connections": 3}}}),
		[]string{`- {to: "tcp://10.0.0.1:80", weight: 3, max-flows: 3}`, `- {to: "tcp://10.0.0.2:80", max-flows: 3}`, "balance: maglev", "flows: 7"}},
	{"names of hosts", plainListener, map[string]any{"name": "web", "type": typeStrictDNS, "dns_refresh_rate": time.Minute, "load_assignment": map[string]any{"endpoints": []any{
		map[string]any{"lb_endpoints": map[string]any{"endpoint": endpoint("a.example", 80)}}, map[string]any{"priority": 1, "lb_endpoints": map[string]any{"health_status": 3, "endpoint": endpoint("b.example", 80)}}}}},
		[]string{`- {to: "tcp://a.example:80"}`, `- {to: "tcp://b.example:80", backup: true, drained: true}`, "warning: Cluster web: dns_refresh_rate: ignored: names are looked up again"}},
	{"checks and ejection", plainListener, withKeys(plainCluster, map[string]any{"health_checks": map[string]any{"timeout": time.Second, "interval": 2 * time.Second, "interval_jitter_percent": 30, "unhealthy_threshold": 2, "healthy_threshold": 1, "alt_port": 81,
		"http_health_check": map[string]any{"path": "/health", "host": "h", "method": 2, "expected_statuses": map[string]any{"start": 200, "end": 300}}},
		"outlier_detection": map[string]any{"consecutive_5xx": 3, "max_ejection_percent": 50}, "close_connections_on_host_health_failure": true}),
		[]string{"http:", "every: 2s", "fall: 2", "rise: 1", "jitter: 0.3", "port: 81", `path: "/health"`, "method: HEAD", `statuses: ["200-299"]`, "panic: 0.5", "failures: 3", "for: 30s", "max: 5m", "share: 0.5", "down:", "live-flows: close"}},
	{"a check with bytes", plainListener, withKeys(plainCluster, map[string]any{"health_checks": map[string]any{"timeout": time.Second, "interval": time.Second, "unhealthy_threshold": 1, "healthy_threshold": 1,
		"tcp_health_check": map[string]any{"send": map[string]any{"text": "50494e47"}, "receive": map[string]any{"binary": "PONG"}}}}), []string{"send-expect:", "send: hex:50494e47", "expect: hex:504f4e47"}},
	{"a check with several answers", plainListener, withKeys(plainCluster, map[string]any{"health_checks": map[string]any{"timeout": time.Second, "interval": time.Second, "unhealthy_interval": 4 * time.Second, "unhealthy_threshold": 1, "healthy_threshold": 1,
		"tcp_health_check": map[string]any{"receive": []any{map[string]any{"text": "323230"}, map[string]any{"text": "0d0a"}}}}}), []string{"every-down: 4s", "send-expect:", "expect: hex:323230", "then: [{expect: hex:0d0a}]"}},
	{"policy", plainListener, withKeys(plainCluster, map[string]any{"load_balancing_policy": map[string]any{"policies": []any{
		map[string]any{"typed_extension_config": map[string]any{"typed_config": packed{&addressTable, nil}}},
		map[string]any{"typed_extension_config": map[string]any{"typed_config": packed{&leastRequestPolicyTable, map[string]any{"slow_start_config": map[string]any{"slow_start_window": 10 * time.Second}, "locality_lb_config": map[string]any{"zone_aware_lb_config": map[string]any{}}}}}}}},
		"common_lb_config": map[string]any{"healthy_panic_threshold": 0.0}}), []string{"balance: p2c", "slow-start: 10s", "zone: prefer", "panic: 0\n"}},
	{"localities with weights, and RANDOM, for which endpoints have none", plainListener, withKeys(plainCluster, map[string]any{"lb_policy": 3, "common_lb_config": map[string]any{"locality_weighted_lb_config": map[string]any{}, "healthy_panic_threshold": 30.0}}),
		[]string{"balance: random", "zone: weighted", "panic: 0.3", `discover: [{xds: "web", registry: control-plane, weight: 1}]`}},
	{"localities with weights, of a policy", plainListener, withKeys(plainCluster, map[string]any{"load_balancing_policy": map[string]any{"policies": map[string]any{"typed_extension_config": map[string]any{
		"typed_config": packed{&maglevPolicyTable, map[string]any{"locality_weighted_lb_config": map[string]any{}}}}}}}), []string{"balance: maglev", "zone: weighted"}},
	{"statuses that leave too few", plainListener, map[string]any{"name": "web", "type": typeStatic, "lb_policy": 3, "common_lb_config": map[string]any{"locality_weighted_lb_config": map[string]any{}}, "load_assignment": map[string]any{"endpoints": located(0,
		at("10.0.0.1", 80, map[string]any{"load_balancing_weight": 7}), at("10.0.0.2", 80, map[string]any{"health_status": 2}), at("10.0.0.3", 80, map[string]any{"health_status": 4}), at("10.0.0.3", 80, nil))}},
		[]string{`- {to: "tcp://10.0.0.1:80"}`, `- {to: "tcp://10.0.0.2:80"}`, `- {to: "tcp://10.0.0.3:80"}`, "warning: Cluster web: load_assignment.endpoints[0].lb_endpoints: tcp://10.0.0.3:80 is there twice",
			"warning: Cluster web: common_lb_config.locality_weighted_lb_config: ignored: localities have no weights in a cluster of this type"}},
	{"statuses that leave enough", plainListener, map[string]any{"name": "web", "type": typeStatic, "load_assignment": map[string]any{"endpoints": located(0,
		at("10.0.0.1", 80, nil), at("10.0.0.2", 80, map[string]any{"health_status": 2}), at("10.0.0.3", 80, map[string]any{"health_status": 5}))}},
		[]string{`- {to: "tcp://10.0.0.1:80"}`, `- {to: "tcp://10.0.0.2:80", drained: true}`, `- {to: "tcp://10.0.0.3:80", backup: true}`}},
	{"an endpoint of a STATIC cluster that is wrong", plainListener, map[string]any{"name": "web", "type": typeStatic, "load_assignment": map[string]any{"endpoints": located(0, at("10.0.0.1", 80, nil), at("10.0.0.2", 0, nil))}},
		[]string{"error: Cluster web: load_assignment.endpoints[0].lb_endpoints[1].endpoint.address.socket_address.port_value: an endpoint needs a port"}},
	{"sockets", withKeys(plainListener, map[string]any{"address": map[string]any{"pipe": map[string]any{"path": "/run/x.sock", "mode": 0o660}}, "tcp_backlog_size": 100}),
		withKeys(plainCluster, map[string]any{"upstream_bind_config": map[string]any{"source_address": map[string]any{"address": "10.0.0.9"}}, "upstream_connection_options": map[string]any{"tcp_keepalive": map[string]any{"keepalive_time": 60}}}),
		[]string{`listen: "unix:///run/x.sock"`, `mode: "0660"`, "backlog: 100", `source: ["10.0.0.9"]`, "keepalive: 60s"}},

	{"a policy that is damaged after its type", plainListener, withKeys(plainCluster, map[string]any{"load_balancing_policy": map[string]any{"policies": map[string]any{"typed_extension_config": map[string]any{
		"typed_config": append(appendText(nil, 1, "type.googleapis.com/"+randomPolicyTable.name), 0xff)}}}}),
		[]string{"error: Cluster web: load_balancing_policy.policies[0].typed_extension_config.typed_config: "}},
	{"TLS", withKeys(plainListener, map[string]any{"filter_chains": withKeys(tcpChain(nil, nil), map[string]any{"transport_socket": map[string]any{"typed_config": packed{&message{name: "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"}, nil}}})}), plainCluster,
		[]string{"error: Listener web: filter_chains[0].transport_socket.typed_config: envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext is not supported; allowed: envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"}},
	{"fields that are refused", withKeys(plainListener, map[string]any{"use_original_dst": true, "bind_to_port": false, "freebind": false}), withKeys(plainCluster, map[string]any{"lb_policy": 6}),
		[]string{"error: Listener web: use_original_dst: not supported: connections are not handed to other listeners", "error: Listener web: bind_to_port: not supported", "error: Cluster web: lb_policy: not supported: 6"}},
	{"what package config refuses", plainListener, withKeys(plainCluster, map[string]any{"health_checks": map[string]any{"timeout": time.Second, "interval": time.Second, "unhealthy_threshold": 1000, "tcp_health_check": map[string]any{}}}),
		[]string{"error: Cluster web: health_checks[0].unhealthy_threshold: groups.web.check.tcp.fall: \"1000\" is out of range"}},
	{"a listener of datagrams with chains", withKeys(plainListener, map[string]any{"address": map[string]any{"socket_address": map[string]any{"protocol": 1, "address": "::", "port_value": 53}}}), plainCluster,
		[]string{"error: Listener web: filter_chains: a listener of datagrams has none", "error: Listener web: listener_filters: a listener of datagrams needs udp_proxy"}},
}

func TestAssemble(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			a, err := assemble(registryOf("http://127.0.0.1:1"), map[string]ads.Resource{"web": {Name: "web", URL: listenerURL, Value: encode(t, &listenerTable, s.listener)}},
				map[string]ads.Resource{"web": {Name: "web", URL: clusterURL, Value: encode(t, &clusterTable, s.cluster)}})
			var got strings.Builder
			if err == nil {
				got.Write(a.text.YAML)
				if _, err = config.Parse("text", a.text.YAML); err != nil {
					err = a.text.Explain(func(string) bool { return true }, err)
				}
				for _, w := range a.text.Warnings {
					got.WriteString("warning: " + w + "\n")
				}
			}
			if err != nil {
				got.WriteString("error: " + strings.ReplaceAll(err.Error(), "\n", "\nerror: ") + "\n")
			}
			wrong := false
			at := 0
			for _, want := range s.want {
				if strings.HasPrefix(want, "- {name:") { // in this order
					i := strings.Index(got.String()[at:], want)
					if i >= 0 {
						at += i
					}
					wrong = wrong || i < 0
				} else if absent, ok := strings.CutPrefix(want, "not: "); strings.Contains(got.String(), absent) == ok {
					wrong = true
				}
				if wrong {
					t.Errorf("%s is missing in", want)
					break
				}
			}
			if refused := strings.HasPrefix(s.want[0], "error: "); wrong || refused != (err != nil) {
				t.Errorf("\n%s", got.String())
			}
		})
	}
}

// weighted_clusters are parts of a route.
func TestWeightedClusters(t *testing.T) {
	part := func(name string, weight int64) map[string]any { return map[string]any{"name": name, "weight": weight} }
	for _, c := range []struct {
		parts []any
		want  string
	}{
		{[]any{part("web", 95), part("api", 5)}, `to: [{group: "web", weight: 95}, {group: "api", weight: 5}]`},
		{[]any{part("web", 1), part("api", 5), part("web", 2)}, `to: [{group: "web", weight: 3}, {group: "api", weight: 5}]`},
		{[]any{part("web", 4_000_000_000), part("api", 2_000)}, `to: [{group: "web", weight: 1000000}, {group: "api", weight: 1}]`},
		{[]any{part("web", 7)}, `to: "web"`},
		{[]any{part("web", 4_000_000_000), part("api", 1_000_000_000)}, "the sum of all weights is more than 4294967295"},
		{[]any{part("web", 0)}, "weighted_clusters.clusters[0].weight: 0; allowed: 1 or more"},
		{[]any{map[string]any{"weight": 1}}, "weighted_clusters.clusters[0].name: missing"},
		{nil, "weighted_clusters.clusters: missing"},
		{[]any{part("web", 1), part("none", 1)}, "weighted_clusters.clusters[1].name: there is no Cluster none"},
	} {
		chain := map[string]any{"filters": map[string]any{"name": "tcp", "typed_config": packed{&tcpProxyTable, map[string]any{"weighted_clusters": map[string]any{"clusters": c.parts}}}}}
		clusters := map[string]ads.Resource{}
		for _, name := range []string{"web", "api"} {
			clusters[name] = ads.Resource{Name: name, URL: clusterURL, Value: encode(t, &clusterTable, withKeys(plainCluster, map[string]any{"name": name}))}
		}
		a, err := assemble(registryOf("http://127.0.0.1:1"), map[string]ads.Resource{"web": {Name: "web", URL: listenerURL, Value: encode(t, &listenerTable, withKeys(plainListener, map[string]any{"filter_chains": chain}))}}, clusters)
		got := fmt.Sprint(err, a.open)
		if err == nil && len(a.open) == 0 {
			got = string(a.text.YAML)
			if _, err := config.Parse("text", a.text.YAML); err != nil {
				t.Errorf("%v\n%s", err, got)
			}
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s is missing in\n%s", c.want, got)
		}
	}
}

// Names are the same whatever else there is, and differ if the control plane's do.
func TestNames(t *testing.T) {
	seen := map[string]string{}
	for _, s := range []string{"web", "outbound|80||web.default.svc", "outbound-80--web.default.svc", ".web", "-web", "", "|", strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a", 65), "ü"} {
		name := nameOf(s)
		if err := config.CheckName(name); err != nil {
			t.Errorf("%q: %v", s, err)
		}
		if other, ok := seen[name]; ok {
			t.Errorf("%q and %q are %s", s, other, name)
		}
		seen[name] = s
	}
	if nameOf("web") != "web" {
		t.Error(nameOf("web"))
	}
}
