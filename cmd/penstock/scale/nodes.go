//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/fleet"
	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/xds"
)

// plan is what a child process simulates.
type plan struct {
	Source      string
	First, Size int
	Stagger     time.Duration
}

// An event is a line of a child's output, and what a daemon's log says.
type event struct {
	Node    string
	Version int  // that it runs now; 0: none
	Contact bool // there is contact with the server again
	At      int64
}

// simulate simulates relays until in ends.
func simulate(text string, in io.Reader, out io.Writer) error {
	var p plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	registry, key, err := spec.ParseRemote(p.Source)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	var mu sync.Mutex
	lines := json.NewEncoder(out)
	ended := make(chan struct{})
	go func() { io.Copy(io.Discard, in); close(ended) }()
	for i := range p.Size {
		n := &node{id: fmt.Sprintf("sim-%05d", p.First+i), registry: registry, key: key}
		n.tell = func(e event) {
			mu.Lock()
			defer mu.Unlock()
			lines.Encode(e)
		}
		work.Go(func() { n.run(ctx) })
		select {
		case <-time.After(p.Stagger):
		case <-ended:
			return nil
		}
	}
	<-ended
	return nil
}

// node is a relay without an engine.
type node struct {
	id       string
	registry spec.Registry
	key      string
	tell     func(event)

	mu      sync.Mutex
	version fleet.Version // that it runs
	lost    bool
}

func (n *node) run(ctx context.Context) {
	if n.registry.Kind == "xds" {
		n.runXDS(ctx)
		return
	}
	// As the daemon does: app's remote_etcd.go and fleet.go.
	config, err := etcd.New(etcd.Config{Remote: remote.Of(n.registry), Backoff: remote.Backoff{Max: 5 * time.Second}})
	if err != nil {
		return
	}
	defer config.Close()
	reports, err := etcd.New(etcd.Config{Remote: remote.Of(n.registry)})
	if err != nil {
		return
	}
	defer reports.Close()
	since := time.Now()
	presence := fleet.NewPresence(fleet.PresenceConfig{
		Client: reports, Key: n.key, Node: spec.Node{ID: n.id},
		Report: func() fleet.Report {
			n.mu.Lock()
			defer n.mu.Unlock()
			return fleet.Report{Version: n.version.Version, Hash: n.version.Hash, Penstock: "simulated", Since: since, State: "ready", Groups: map[string]fleet.Group{"g": {}}}
		},
		Carry: func(context.Context, fleet.Order) fleet.Answer { return fleet.Answer{State: "done"} },
		Drain: func(*fleet.DrainOrder) {},
	})
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() { presence.Run(ctx) })
	f := fleet.Follower{Client: config, Key: n.key, Node: n.id}
	f.Run(ctx, func(v fleet.Version, err error) {
		n.contact(err)
		if err == nil {
			n.mu.Lock()
			before := n.version.Version
			n.version = v
			n.mu.Unlock()
			if v.Version != before {
				n.tell(event{Node: n.id, Version: numberOf([]byte(v.Text)), At: time.Now().UnixNano()})
			}
			presence.Changed()
		}
	})
}

// contact notes whether there is contact with the server, and tells when there is again.
func (n *node) contact(err error) {
	n.mu.Lock()
	again := err == nil && n.lost
	n.lost = err != nil
	n.mu.Unlock()
	if again {
		n.tell(event{Node: n.id, Contact: true, At: time.Now().UnixNano()})
	}
}

func (n *node) runXDS(ctx context.Context) {
	var pool xds.Pool
	shared, err := pool.Get(n.registry, spec.Node{ID: n.id}, "simulated")
	if err != nil {
		return
	}
	defer shared.Release()
	c, err := shared.Configuration(n.key, false)
	if err != nil {
		return
	}
	c.Follow(ctx, n.contact, func(t *xds.Text) error {
		n.contact(nil)
		n.tell(event{Node: n.id, Version: numberOf(t.YAML), At: time.Now().UnixNano()})
		return nil
	})
}

// numberOf returns the number of a version, which its text begins with; 0: it has none.
func numberOf(text []byte) (number int) {
	i := bytes.Index(text, []byte("drain: "))
	if i >= 0 {
		fmt.Sscanf(string(text[i:min(len(text), i+40)]), "drain: %ds", &number)
	}
	return number
}
