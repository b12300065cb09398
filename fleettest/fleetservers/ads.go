package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	// Types that resources contain.
	_ "github.com/cncf/xds/go/xds/core/v3"
	_ "github.com/cncf/xds/go/xds/type/matcher/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dynamic_forward_proxy/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/sni_dynamic_forward_proxy/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/udp/udp_proxy/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/maglev/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/proxy_protocol/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
)

// configurationType is Penstock's own type of resource.
const configurationType = "type.googleapis.com/penstock.v1.Configuration"

// runADS runs a control plane of go-control-plane, whose resources are those of a file. When the file changes,
// they do; it must be replaced atomically. All nodes get the same.
func runADS(args []string) error {
	set := flag.NewFlagSet("ads", flag.ContinueOnError)
	listen := set.String("listen", "http://127.0.0.1:0", "`URL`; port 0: any free one")
	ports := set.String("ports", "", portsUsage)
	resources := set.String("resources", "", "`file` with resources: a JSON object with the list \"resources\", each an object with \"@type\"; required")
	record := set.String("record", "", "`file` to which requests and responses are appended, a line of JSON for each")
	cert := set.String("cert", "", "certificate `file` of an https URL")
	key := set.String("key", "", "its key `file`")
	ca := set.String("ca", "", "`file` of the authority that clients' certificates must be of; empty: clients need none")
	token := set.String("token", "", "bearer `token` that clients must send; empty: none")
	if err := set.Parse(args); err != nil {
		return err
	}
	if *resources == "" {
		return errors.New("-resources is required")
	}
	free := portSource{given: *ports}
	var u *url.URL
	var l net.Listener
	err := whileInUse(func() (err error) {
		if u, err = free.url(*listen); err == nil {
			l, err = net.Listen("tcp", u.Host)
		}
		return err
	})
	if err != nil {
		return err
	}
	snapshots := cache.NewSnapshotCache(false, everyNode{}, nil)
	own := cache.NewLinearCache(configurationType)
	var rec recorder
	if *record != "" {
		if rec.file, err = os.OpenFile(*record, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(*resources)
	if err == nil {
		err = load(text, snapshots, own)
	}
	if err != nil {
		return err
	}
	go follow(*resources, text, snapshots, own)
	mux := &cache.MuxCache{
		Classify:      func(r *cache.Request) string { return classify(r.GetTypeUrl()) },
		ClassifyDelta: func(r *cache.DeltaRequest) string { return classify(r.GetTypeUrl()) },
		Caches:        map[string]cache.Cache{"envoy": snapshots, "own": own},
	}
	var options []grpc.ServerOption
	if u.Scheme == "https" {
		config, err := tlsConfig(*cert, *key, *ca)
		if err != nil {
			return err
		}
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	}
	if *token != "" {
		options = append(options, grpc.StreamInterceptor(requireToken(*token)))
	}
	s := grpc.NewServer(options...)
	discovery.RegisterAggregatedDiscoveryServiceServer(s, server.NewServer(context.Background(), mux, rec.callbacks()))
	ready(u.String())
	return s.Serve(l)
}

// everyNode gives all nodes the same resources.
type everyNode struct{}

func (everyNode) ID(*core.Node) string { return "" }

func classify(url string) string {
	if url == configurationType {
		return "own"
	}
	return "envoy"
}

func tlsConfig(cert, key, ca string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		config.ClientCAs.AppendCertsFromPEM(text)
	}
	return config, nil
}

// load serves the resources of a text.
func load(text []byte, snapshots cache.SnapshotCache, own *cache.LinearCache) error {
	byType, configurations, err := parseResources(text)
	if err != nil {
		return err
	}
	version := fmt.Sprintf("%x", len(text)) + "-" + time.Now().Format("150405.000000")
	snapshot, err := cache.NewSnapshot(version, byType)
	if err != nil {
		return err
	}
	own.SetResources(configurations)
	return snapshots.SetSnapshot(context.Background(), "", snapshot)
}

// follow loads the file whenever its text is another one than last. A text that cannot be read changes nothing.
func follow(path string, last []byte, snapshots cache.SnapshotCache, own *cache.LinearCache) {
	for range time.Tick(20 * time.Millisecond) {
		text, err := os.ReadFile(path)
		if err != nil || string(text) == string(last) {
			continue
		}
		last = text
		if err := load(text, snapshots, own); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// A recorder appends what passes between clients and the server to a file.
type recorder struct {
	mu   sync.Mutex
	file *os.File
}

// An exchange is a line of the file.
type exchange struct {
	Stream      int64             `json:"stream"`
	Kind        string            `json:"kind"` // open, closed, request, response
	Type        string            `json:"type,omitempty"`
	Node        json.RawMessage   `json:"node,omitempty"`
	Nonce       string            `json:"nonce,omitempty"`
	Error       string            `json:"error,omitempty"`
	Subscribe   []string          `json:"subscribe,omitempty"`
	Unsubscribe []string          `json:"unsubscribe,omitempty"`
	Known       map[string]string `json:"known,omitempty"`
	Resources   []string          `json:"resources,omitempty"`
	Removed     []string          `json:"removed,omitempty"`
}

func (r *recorder) add(e exchange) {
	if r.file == nil {
		return
	}
	line, _ := json.Marshal(e)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.file.Write(append(line, '\n'))
}

func (r *recorder) callbacks() server.Callbacks {
	return server.CallbackFuncs{
		DeltaStreamOpenFunc: func(_ context.Context, id int64, _ string) error {
			r.add(exchange{Stream: id, Kind: "open"})
			return nil
		},
		DeltaStreamClosedFunc: func(id int64, _ *core.Node) { r.add(exchange{Stream: id, Kind: "closed"}) },
		StreamDeltaRequestFunc: func(id int64, q *discovery.DeltaDiscoveryRequest) error {
			r.add(exchange{Stream: id, Kind: "request", Type: q.GetTypeUrl(), Node: nodeText(q.GetNode()), Nonce: q.GetResponseNonce(), Error: q.GetErrorDetail().GetMessage(),
				Subscribe: q.GetResourceNamesSubscribe(), Unsubscribe: q.GetResourceNamesUnsubscribe(), Known: q.GetInitialResourceVersions()})
			return nil
		},
		StreamDeltaResponseFunc: func(id int64, _ *discovery.DeltaDiscoveryRequest, p *discovery.DeltaDiscoveryResponse) {
			e := exchange{Stream: id, Kind: "response", Type: p.GetTypeUrl(), Nonce: p.GetNonce(), Removed: p.GetRemovedResources()}
			for _, res := range p.GetResources() {
				e.Resources = append(e.Resources, res.GetName())
			}
			slices.Sort(e.Resources)
			r.add(e)
		},
	}
}

// knownTypes are those that a snapshot may have.
var knownTypes = map[string]bool{resource.ListenerType: true, resource.ClusterType: true, resource.EndpointType: true}

// addResource adds a resource to those of its type.
func addResource(byType map[resource.Type][]types.Resource, url string, r types.Resource) error {
	if !knownTypes[url] {
		return fmt.Errorf("resources of type %s are not served; allowed: %v", url, slices.Sorted(maps.Keys(knownTypes)))
	}
	byType[url] = append(byType[url], r)
	return nil
}
