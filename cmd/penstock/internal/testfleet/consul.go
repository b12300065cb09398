package testfleet

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
)

// Consul stands for a Consul agent, whose server cannot be had as a Go module. It follows what Consul documents of
// /v1/health/service/NAME: blocking queries (index, wait), tags, datacenters, namespaces, partitions, peers, stale answers, and tokens. It was not compared
// with Consul itself.
type Consul struct {
	*fake
	services    map[string][]ConsulInstance
	index       uint64
	token       string // required; empty: none
	hide        bool   // a token that may not see instances gets none, instead of an error
	noLeader    bool
	lastContact time.Duration
}

// A ConsulInstance is an instance of a service. Weights of 0 are Consul's default, 1.
type ConsulInstance struct {
	ID, Node             string
	Address, NodeAddress string
	Port                 int
	Tags                 []string
	Datacenter           string // empty: the agent's own
	Namespace, Partition string // empty: the defaults
	Peer                 string // it is imported from; empty: none
	Meta, NodeMeta       map[string]string
	Passing, Warning     int               // weights; a negative one is 0
	Checks               map[string]string // status by CheckID; none: passing
}

// NewConsul starts a Consul without services.
func NewConsul(tb testing.TB) *Consul { return NewMemoryConsul(tb, nil) }

// NewMemoryConsul starts a Consul in a network in memory; nil: the real one.
func NewMemoryConsul(tb testing.TB, network *testnet.Network) *Consul {
	c := &Consul{services: map[string][]ConsulInstance{}, index: 10}
	c.fake = newFake(tb, network, false, c.handle)
	return c
}

// Set replaces the instances of a service.
func (c *Consul) Set(service string, list ...ConsulInstance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.services[service] = list
	c.index++
	c.touch()
}

// SetIndex sets the index of the last change, for example backwards, as after a snapshot was restored.
func (c *Consul) SetIndex(n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.index = n
	c.touch()
}

// SetToken makes the server require a token. With hide, other tokens see an empty list, as Consul answers to a token that
// may read nothing; without it they get an error, as Consul answers to one that does not exist.
func (c *Consul) SetToken(token string, hide bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token, c.hide = token, hide
	c.index++
	c.touch()
}

// SetLeader says whether there is a leader, and when the server has heard from it.
func (c *Consul) SetLeader(known bool, lastContact time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noLeader, c.lastContact = !known, lastContact
	c.touch()
}

func (c *Consul) handle(w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutPrefix(r.URL.Path, "/v1/health/service/")
	if !ok {
		http.NotFound(w, r)
		return
	}
	q := r.URL.Query()
	c.mu.Lock()
	after, _ := strconv.ParseUint(q.Get("index"), 10, 64)
	wait, err := time.ParseDuration(q.Get("wait"))
	if err != nil || wait > 10*time.Minute {
		wait = 5 * time.Minute
	}
	if !c.wait(r, wait+wait/16, func() bool { return after > 0 && c.index == after }) { // an index that is smaller also ends it
		c.mu.Unlock()
		return
	}
	if fault := c.fault; fault != nil {
		c.mu.Unlock()
		fault(w, r)
		return
	}
	defer c.mu.Unlock()
	h := w.Header()
	h.Set("X-Consul-Index", strconv.FormatUint(c.index, 10))
	h.Set("X-Consul-KnownLeader", strconv.FormatBool(!c.noLeader))
	h.Set("X-Consul-LastContact", strconv.FormatInt(c.lastContact.Milliseconds(), 10))
	token := r.Header.Get("X-Consul-Token")
	switch {
	case c.token != "" && token != c.token && !c.hide:
		http.Error(w, "rpc error making call: ACL not found", http.StatusForbidden)
		return
	case c.noLeader && !q.Has("stale"):
		http.Error(w, "rpc error making call: No cluster leader", http.StatusInternalServerError)
		return
	case q.Get("dc") == "nowhere":
		http.Error(w, "rpc error making call: No path to datacenter", http.StatusInternalServerError)
		return
	}
	answer := []map[string]any{}
	if c.token != "" && token != c.token {
		h.Set("X-Consul-Results-Filtered-By-ACLs", "true")
	} else {
		for _, i := range c.services[name] {
			if i.fits(q) {
				answer = append(answer, i.document(name))
			}
		}
	}
	h.Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(answer)
}

func (i *ConsulInstance) fits(q url.Values) bool {
	for _, t := range q["tag"] {
		if !slices.Contains(i.Tags, t) {
			return false
		}
	}
	return i.Datacenter == q.Get("dc") && i.Namespace == q.Get("ns") && i.Partition == q.Get("partition") && i.Peer == q.Get("peer")
}

// document returns the instance as Consul answers it, with keys that nobody reads.
func (i *ConsulInstance) document(service string) map[string]any {
	checks := []map[string]any{{"Node": i.Node, "CheckID": "serfHealth", "Name": "Serf Health Status", "Status": "passing", "Output": "Agent alive and reachable"}}
	for id, status := range i.Checks {
		checks = append(checks, map[string]any{"Node": i.Node, "CheckID": id, "Status": status, "ServiceID": i.ID, "ServiceName": service})
	}
	weight := func(w int) int {
		switch {
		case w < 0:
			return 0
		case w == 0:
			return 1
		}
		return w
	}
	return map[string]any{
		"Node": map[string]any{"ID": "", "Node": i.Node, "Address": i.NodeAddress, "Datacenter": i.Datacenter, "Meta": i.NodeMeta, "CreateIndex": 5},
		"Service": map[string]any{
			"ID": i.ID, "Service": service, "Tags": i.Tags, "Address": i.Address, "Port": i.Port, "Meta": i.Meta, "EnableTagOverride": false,
			"Weights": map[string]int{"Passing": weight(i.Passing), "Warning": weight(i.Warning)}, "Proxy": map[string]any{"Mode": ""}, "ModifyIndex": 7,
		},
		"Checks": checks,
	}
}
