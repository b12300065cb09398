//go:build linux

package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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
	e := &Etcd{server: server{args: []string{"etcd", "-data", dir}}, http: http.Client{Timeout: 10 * time.Second}}
	return e, e.Start()
}

// URL returns the address of its clients.
func (e *Etcd) URL() string { return e.url }

func (e *Etcd) Registry() string { return fmt.Sprintf("{etcd: [%q]}", e.url) }

func (e *Etcd) Discover(service, network string) string {
	return fmt.Sprintf("{etcd: %q, network: %s}", prefix(service), network)
}

func prefix(service string) string { return "/churn/" + service + "/" }

func (e *Etcd) Put(service string, m Member) error {
	value, err := json.Marshal(map[string]any{"to": m.Addr, "weight": max(m.Weight, 1), "draining": m.Draining})
	if err != nil {
		return err
	}
	return e.PutKey(prefix(service)+m.Name, value)
}

func (e *Etcd) Remove(service, name string) error {
	return e.post("/v3/kv/deleterange", map[string][]byte{"key": []byte(prefix(service) + name)})
}

// PutKey sets a key.
func (e *Etcd) PutKey(key string, value []byte) error {
	return e.post("/v3/kv/put", map[string][]byte{"key": []byte(key), "value": value})
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
	e.Kill()
	e.http.CloseIdleConnections()
}
