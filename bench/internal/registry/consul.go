//go:build linux

package registry

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// consul stands for a Consul agent. It follows what Consul documents of blocking queries of /v1/health/service/NAME.
type consul struct {
	*fake
	index    uint64
	services services
}

func newConsul(string) (Registry, error) {
	c := &consul{index: 10, services: make(services)}
	var err error
	c.fake, err = newFake(c.handle)
	return c, err
}

func (c *consul) Registry() string { return fmt.Sprintf("{consul: [\"http://%s\"]}", c.addr) }

func (c *consul) Discover(service, network string) string {
	return fmt.Sprintf("{consul: %q, network: %s}", service, network)
}

func (c *consul) Can(what string) bool { return what == Weights }

func (c *consul) Put(service string, m Member) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.services.put(service, m)
	c.index++
	c.touch()
	return nil
}

func (c *consul) Remove(service, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.services[service], name)
	c.index++
	c.touch()
	return nil
}

func (c *consul) handle(w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutPrefix(r.URL.Path, "/v1/health/service/")
	if !ok {
		http.NotFound(w, r)
		return
	}
	after, _ := strconv.ParseUint(r.URL.Query().Get("index"), 10, 64)
	late := time.After(time.Minute)
	c.mu.Lock()
	defer c.mu.Unlock()
	for wait := after > 0; wait && c.index == after; {
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-late:
			wait = false
		case <-r.Context().Done():
			wait = false
		}
		c.mu.Lock()
	}
	w.Header().Set("X-Consul-Index", strconv.FormatUint(c.index, 10))
	w.Header().Set("X-Consul-KnownLeader", "true")
	w.Header().Set("X-Consul-LastContact", "0")
	w.Header().Set("Content-Type", "application/json")
	answer := []object{}
	for _, m := range c.services.members(name) {
		host, port, _ := m.hostPort()
		answer = append(answer, object{
			"Node":    object{"Node": "n-" + m.Name, "Address": host},
			"Service": object{"ID": m.Name, "Service": name, "Address": host, "Port": port, "Weights": map[string]int{"Passing": max(m.Weight, 1), "Warning": 1}},
			"Checks":  []object{{"CheckID": "serfHealth", "Status": "passing"}},
		})
	}
	json.NewEncoder(w).Encode(answer)
}
