//go:build linux

package registry

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// kubernetes stands for an API server. It follows what Kubernetes documents of lists and watches of EndpointSlices. A member
// is a slice with one endpoint, because all endpoints of a slice have the same port.
type kubernetes struct {
	*fake
	config  string // kubeconfig file
	version int
	slices  map[string]map[string]object // by service and name
	events  []kubeEvent
}

type object = map[string]any

type kubeEvent struct {
	version int
	service string
	body    object
}

const namespace = "churn"

func newKubernetes(dir string) (Registry, error) {
	k := &kubernetes{config: filepath.Join(dir, "kubeconfig"), version: 100, slices: make(map[string]map[string]object)}
	var err error
	if k.fake, err = newFake(k.handle); err != nil {
		return nil, err
	}
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: \"http://%s\"}}]\nusers: [{name: u, user: {}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n", k.addr)
	return k, os.WriteFile(k.config, []byte(text), 0o600)
}

func (k *kubernetes) Registry() string { return fmt.Sprintf("{kubernetes: %q}", k.config) }

func (k *kubernetes) Discover(service, network string) string {
	return fmt.Sprintf("{kubernetes: %s/%s, network: %s}", namespace, service, network)
}

func (k *kubernetes) Can(what string) bool { return what == Draining }

func (k *kubernetes) Put(service string, m Member) error {
	host, port, err := m.hostPort()
	if err != nil {
		return err
	}
	protocol := "TCP"
	if service == "udp" {
		protocol = "UDP"
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	kind := "MODIFIED"
	if k.slices[service] == nil {
		k.slices[service] = make(map[string]object)
	}
	if k.slices[service][m.Name] == nil {
		kind = "ADDED"
	}
	k.change(kind, service, m.Name, object{
		"addressType": "IPv4",
		"ports":       []object{{"name": "", "port": port, "protocol": protocol}},
		"endpoints":   []object{{"addresses": []string{host}, "conditions": object{"ready": !m.Draining, "serving": true, "terminating": m.Draining}}},
	})
	return nil
}

func (k *kubernetes) Remove(service, name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if old := k.slices[service][name]; old != nil {
		k.change("DELETED", service, name, maps.Clone(old))
		delete(k.slices[service], name)
	}
	return nil
}

// change notes a slice with its next version. The caller holds k.mu.
func (k *kubernetes) change(kind, service, name string, slice object) {
	k.version++
	slice["kind"], slice["apiVersion"] = "EndpointSlice", "discovery.k8s.io/v1"
	slice["metadata"] = object{"name": name, "namespace": namespace, "resourceVersion": strconv.Itoa(k.version), "labels": object{"kubernetes.io/service-name": service}}
	k.slices[service][name] = slice
	k.events = append(k.events, kubeEvent{k.version, service, object{"type": kind, "object": slice}})
	k.touch()
}

func (k *kubernetes) handle(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	service, ok := strings.CutPrefix(q.Get("labelSelector"), "kubernetes.io/service-name=")
	if r.URL.Path != "/apis/discovery.k8s.io/v1/namespaces/"+namespace+"/endpointslices" || !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	k.mu.Lock()
	defer k.mu.Unlock()
	if q.Get("watch") == "true" {
		k.watch(w, r, service)
		return
	}
	items := []object{}
	for _, name := range slices.Sorted(maps.Keys(k.slices[service])) {
		items = append(items, k.slices[service][name])
	}
	json.NewEncoder(w).Encode(object{"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1", "metadata": object{"resourceVersion": strconv.Itoa(k.version)}, "items": items})
}

// watch sends changes from a version on, until the time that the client wants has passed. The caller holds k.mu.
func (k *kubernetes) watch(w http.ResponseWriter, r *http.Request, service string) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	seconds, _ := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	late := time.After(time.Duration(seconds) * time.Second)
	out := http.NewResponseController(w)
	for over := false; !over; {
		for _, e := range k.events {
			if e.version > from && e.service == service {
				json.NewEncoder(w).Encode(e.body)
				from = e.version
			}
		}
		changed := k.changed
		k.mu.Unlock()
		out.Flush()
		select {
		case <-changed:
		case <-late:
			over = true
		case <-r.Context().Done():
			over = true
		}
		k.mu.Lock()
	}
}
