//go:build linux

package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"
)

// Etcd is an etcd server. The members of a service are the keys below /churn/SERVICE/.
type Etcd struct {
	server
	http http.Client
}

func newEtcd(dir string) (Registry, error) { return NewEtcd(dir) }

// NewEtcd starts an etcd server.
func NewEtcd(dir string) (*Etcd, error) {
	e := &Etcd{server: server{args: []string{"etcd", "-data", dir}}, http: http.Client{Timeout: time.Minute}}
	return e, e.Start()
}

// URL returns where the server is.
func (e *Etcd) URL() string { return e.url }

func (e *Etcd) Registry() string { return fmt.Sprintf("{etcd: [%q]}", e.url) }

func (e *Etcd) Discover(service, network string) string {
	return fmt.Sprintf("{etcd: %q, network: %s}", prefix(service), network)
}

func prefix(service string) string { return "/churn/" + service + "/" }

func (e *Etcd) Put(service string, m Member) error { return e.post("/v3/kv/put", put(service, m)) }

// put returns the request that puts a member.
func put(service string, m Member) map[string][]byte {
	value, _ := json.Marshal(map[string]any{"to": m.Addr, "weight": max(m.Weight, 1), "draining": m.Draining}) // strings and numbers
	return map[string][]byte{"key": []byte(prefix(service) + m.Name), "value": value}
}

// maxOps is how many operations etcd takes in one transaction (--max-txn-ops).
const maxOps = 128

// PutAll puts many members.
func (e *Etcd) PutAll(service string, list []Member) error {
	for some := range slices.Chunk(list, maxOps) {
		var ops []any
		for _, m := range some {
			ops = append(ops, map[string]any{"requestPut": put(service, m)})
		}
		if err := e.post("/v3/kv/txn", map[string]any{"success": ops}); err != nil {
			return err
		}
	}
	return nil
}

func (e *Etcd) Remove(service, name string) error {
	return e.post("/v3/kv/deleterange", map[string][]byte{"key": []byte(prefix(service) + name)})
}

func (e *Etcd) post(path string, in any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	res, err := e.http.Post(e.url+path, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("etcd %s: %s: %s", path, res.Status, text)
	}
	return err
}

func (e *Etcd) Close() {
	e.server.Close()
	e.http.CloseIdleConnections()
}
