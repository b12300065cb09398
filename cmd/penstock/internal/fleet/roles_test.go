package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/remote"
)

// The roles of docs/fleet.md are enough for relays, and keep them from giving orders.
func TestRoles(t *testing.T) {
	w, _ := newRealWorld(t)
	auth := func(path string, in any) {
		t.Helper()
		body, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		w.post("/v3/auth/"+path, string(body))
	}
	grant := func(role, kind, key, end string) {
		perm := map[string]any{"permType": kind, "key": []byte(key)}
		if end != "" {
			perm["range_end"] = []byte(end)
		}
		auth("role/grant", map[string]any{"name": role, "perm": perm})
	}
	for _, user := range []string{"root", "relay", "ann"} {
		auth("user/add", map[string]string{"name": user, "password": "secret-of-" + user})
	}
	for user, role := range map[string]string{"root": "root", "relay": "relay", "ann": "operator"} {
		auth("role/add", map[string]string{"name": role})
		auth("user/grant", map[string]string{"user": user, "role": role})
	}
	below := testKey + "/"
	grant("relay", "READ", below, etcd.PrefixEnd(below))
	for _, part := range []string{"nodes", "conflicts", "answers", "checkers", "checks"} {
		grant("relay", "READWRITE", below+part+"/", etcd.PrefixEnd(below+part+"/"))
	}
	grant("operator", "READWRITE", below, etcd.PrefixEnd(below))
	auth("enable", struct{}{})

	as := func(user string) *etcd.Client {
		t.Helper()
		file := filepath.Join(t.TempDir(), "user")
		if err := os.WriteFile(file, []byte(user+":secret-of-"+user), 0o600); err != nil {
			t.Fatal(err)
		}
		return w.openWith(etcd.Config{Remote: remote.Config{Servers: []string{w.url}, UserFile: file}, Backoff: remote.Backoff{Min: 10 * time.Millisecond, Max: 200 * time.Millisecond}, Timeout: patience / 2})
	}
	w.client = as("ann")
	relayClient := as("relay")
	drained := make(chan bool, 10)
	r := &checkingRelay{checks: NewChecks(ChecksConfig{Node: "one"}), shares: map[string]Share{}, members: map[string]*SharedMember{}, down: map[string]bool{}}
	r.checks.Expect()
	r.relay = w.relay("one", func(c *PresenceConfig) {
		c.Client, c.Checks, c.TTL = relayClient, r.checks, time.Minute // which no end of a lease is waited for in
		c.Drain = func(o *DrainOrder) { drained <- o != nil }
	})
	r.share("m", 1)
	r.runChecks(w, relayClient)
	w.until("it is present", func() bool { return r.Status().Present && len(w.nodes()) == 1 })
	w.until("its checks are shared", func() bool { return r.is("m").Known })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if silent, err := w.operator().Ask(ctx, []string{"one"}, Order{Kind: OrderReload}, nil); err != nil || len(silent) != 0 {
		t.Errorf("silent %v, %v", silent, err)
	}
	if _, err := w.operator().SetDrain(ctx, []string{"one"}, true, "", nil); err != nil {
		t.Error(err)
	}
	for on := range drained {
		if on {
			break
		}
	}
	thief := &Operator{relayClient, testKey, "thief"}
	var refused *etcd.Error
	if _, err := thief.SetDrain(ctx, []string{"one"}, false, "", nil); !errors.As(err, &refused) {
		t.Errorf("a relay takes an order to drain back: %v", err)
	}
	if silent, err := thief.Ask(ctx, []string{"one"}, Order{Kind: OrderReload}, nil); !errors.As(err, &refused) {
		t.Errorf("a relay gives an order: %v, %v", silent, err)
	}
	if _, err := relayClient.Put(ctx, testKey+"/config", []byte("{}"), 0); !errors.As(err, &refused) {
		t.Errorf("a relay publishes: %v", err)
	}
}
