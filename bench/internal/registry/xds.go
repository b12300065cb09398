//go:build linux

package registry

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// xds is a control plane of go-control-plane. A service is a ClusterLoadAssignment.
type xds struct {
	server
	file     string
	services services
}

func newXDS(dir string) (Registry, error) {
	x := &xds{file: filepath.Join(dir, "resources.json"), services: make(services)}
	x.args = []string{"ads", "-resources", x.file}
	if err := x.write(); err != nil {
		return nil, err
	}
	return x, x.Start()
}

func (x *xds) Registry() string { return fmt.Sprintf("{xds: [%q]}", x.url) }

func (x *xds) Discover(service, network string) string {
	return fmt.Sprintf("{xds: %q, network: %s}", service, network)
}

func (x *xds) Put(service string, m Member) error {
	x.services.put(service, m)
	return x.write()
}

func (x *xds) Remove(service, name string) error {
	delete(x.services[service], name)
	return x.write()
}

// write replaces the file that the server follows.
func (x *xds) write() error {
	resources := []object{}
	for _, service := range slices.Sorted(maps.Keys(x.services)) {
		endpoints := []object{}
		for _, m := range x.services.members(service) {
			host, port, err := m.hostPort()
			if err != nil {
				return err
			}
			e := object{"endpoint": object{"address": object{"socketAddress": object{"address": host, "portValue": port}}}, "loadBalancingWeight": max(m.Weight, 1)}
			if m.Draining {
				e["healthStatus"] = "DRAINING"
			}
			endpoints = append(endpoints, e)
		}
		resources = append(resources, object{
			"@type":       "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
			"clusterName": service,
			"endpoints":   []object{{"lbEndpoints": endpoints}},
		})
	}
	text, err := json.Marshal(object{"resources": resources})
	if err != nil {
		return err
	}
	next := x.file + ".next"
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return err
	}
	return os.Rename(next, x.file)
}
