package xds

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/ads"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// FuzzAssignment: members of an assignment are within their bounds.
func FuzzAssignment(f *testing.F) {
	f.Add(encode(f, &assignmentTable, richAssignment))
	f.Fuzz(func(t *testing.T, b []byte) {
		cache := endpointCache{}
		a, err := parseAssignmentResource(ads.Resource{Name: "web", URL: endpointsURL, Value: b}, cache)
		again, err2 := parseAssignmentResource(ads.Resource{Name: "web", URL: endpointsURL, Value: b}, cache)
		if (err == nil) != (err2 == nil) || err == nil && !slices.Equal(a.Members, again.Members) {
			t.Errorf("%v, and with the cache %v", err, err2)
		}
		if err != nil {
			return
		}
		if a.Factor < 0 || a.Factor > maxFactor || len(a.LeftOut) > maxProblems || len(a.Ignored) > maxProblems {
			t.Errorf("%+v", a)
		}
		seen := map[spec.Endpoint]bool{}
		for _, m := range a.Members {
			if seen[m.To] || len(m.Locality.Name) > maxLocality || strings.ContainsFunc(m.Locality.Name, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
				t.Errorf("%+v", m)
			}
			seen[m.To] = true
			if _, ok := m.To.Literal(); !ok || m.Weight < 1 || m.Weight > maxWeight || m.Priority < 0 || m.Priority > maxPriority || len(m.Metadata) > maxMetadata || m.Zone != "" && !spec.ValidNode(m.Zone) {
				t.Errorf("%+v", m)
			}
		}
	})
}

// FuzzAssemble: what is assembled without an error is a configuration, or its errors are told with the resource.
func FuzzAssemble(f *testing.F) {
	for _, s := range scenarios {
		f.Add(encode(f, &listenerTable, s.listener), encode(f, &clusterTable, s.cluster))
	}
	registry := registryOf("http://127.0.0.1:1")
	f.Fuzz(func(t *testing.T, listener, cluster []byte) {
		a, err := assemble(registry, map[string]ads.Resource{"web": {Name: "web", URL: listenerURL, Value: listener}}, map[string]ads.Resource{"web": {Name: "web", URL: clusterURL, Value: cluster}})
		if err != nil || len(a.open) > 0 {
			return
		}
		_, err = config.Parse("text", a.text.YAML)
		var errs config.Errors
		if err == nil || !errors.As(err, &errs) {
			return
		}
		for _, line := range strings.Split(a.text.Explain(func(string) bool { return true }, err).Error(), "\n") {
			if strings.HasPrefix(line, "text:") {
				t.Errorf("%s\n%s", line, a.text.YAML)
			}
		}
	})
}

// FuzzConfiguration: Penstock's own resource gives a text that package config can read, well or badly.
func FuzzConfiguration(f *testing.F) {
	f.Add([]byte("\x0a\x0dlisteners: {}"))
	f.Add([]byte("\x12\x0f\x0a\x0d\x0a\x01a\x12\x08\x11\x00\x00\x00\x00\x00\x00\xf0\x3f"))
	f.Fuzz(func(t *testing.T, b []byte) {
		text, err := parseConfiguration(ads.Resource{Name: "edge", URL: ConfigurationURL, Value: b})
		if err == nil {
			config.Parse("text", text.YAML)
		}
	})
}

var richAssignment = map[string]any{
	"cluster_name": "web",
	"policy":       map[string]any{"overprovisioning_factor": 200, "weighted_priority_health": true},
	"endpoints": []any{
		map[string]any{"locality": map[string]any{"zone": "a", "region": "r", "sub_zone": "/"}, "priority": 1, "load_balancing_weight": 7, "lb_endpoints": []any{
			map[string]any{"endpoint": endpoint("10.0.0.1", 80), "load_balancing_weight": 1000, "health_status": 3},
			map[string]any{"endpoint": map[string]any{"address": map[string]any{"pipe": map[string]any{"path": "/run/x"}}}, "metadata": map[string]any{"filter_metadata": []byte("\x0a\x01a\x12\x00")}},
		}},
		map[string]any{"lb_endpoints": map[string]any{"endpoint": endpoint("::1", 443), "health_status": 5}},
	},
}

func endpoint(host string, port int) map[string]any {
	return map[string]any{"address": socket(host, port)}
}

func socket(host string, port int) map[string]any {
	return map[string]any{"socket_address": map[string]any{"address": host, "port_value": port}}
}

// tcpChain is a filter chain that leads to the cluster web.
func tcpChain(match map[string]any, proxy map[string]any) map[string]any {
	p := map[string]any{"stat_prefix": "x", "cluster": "web"}
	for k, v := range proxy {
		p[k] = v
	}
	c := map[string]any{"filters": map[string]any{"name": "tcp", "typed_config": packed{&tcpProxyTable, p}}}
	if match != nil {
		c["filter_chain_match"] = match
	}
	return c
}

func withKeys(m map[string]any, more map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range m {
		out[k] = v
	}
	for k, v := range more {
		out[k] = v
	}
	return out
}

var (
	plainListener = map[string]any{"name": "web", "address": socket("127.0.0.1", 8080), "filter_chains": tcpChain(nil, nil)}
	plainCluster  = map[string]any{"name": "web", "type": typeEDS, "connect_timeout": time.Second}
	staticCluster = map[string]any{"name": "web", "type": typeStatic, "load_assignment": map[string]any{"cluster_name": "web", "endpoints": map[string]any{"lb_endpoints": []any{
		map[string]any{"endpoint": endpoint("10.0.0.1", 80), "load_balancing_weight": 3}, map[string]any{"endpoint": endpoint("10.0.0.2", 80)}}}}}
)
