package sources

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/xds"
)

// ControlPlanes are the clients of control planes of this process: groups find members, and the configuration comes,
// by the same stream.
var ControlPlanes xds.Pool

// An xdsText is a configuration of an xDS control plane. The control plane is told what became of each version once
// it runs or has been refused.
type xdsText struct {
	registry spec.Registry
	name     string // of Penstock's own resource; empty: Envoy's resources
	node     spec.Node
	program  string // the version of this one

	mu     sync.Mutex
	last   spec.Layer       // the last that was delivered
	result chan error       // receives what became of it; nil: nobody expects it
	bad    map[string]error // the last version that was refused

	new []string // warnings that were not logged
	old []string // the last that were
}

func (x *xdsText) follow(ctx context.Context, deliver func(spec.Layer, error)) {
	for ctx.Err() == nil {
		if err := x.followWith(ctx, deliver); err != nil {
			deliver(spec.Layer{}, err)
		}
		select {
		case <-time.After(filesInterval):
		case <-ctx.Done():
		}
	}
}

// filesInterval is how often it is tried again to read the files of a registry that cannot be read.
const filesInterval = 5 * time.Second

// followWith returns at the end of ctx, or an error at once.
func (x *xdsText) followWith(ctx context.Context, deliver func(spec.Layer, error)) error {
	shared, err := ControlPlanes.Get(x.registry, x.node, x.program)
	if err != nil {
		return err
	}
	defer shared.Release()
	c, err := shared.Configuration(x.name, x.registry.Partial)
	if err != nil {
		return err
	}
	c.Follow(ctx, func(err error) {
		if err != nil {
			deliver(spec.Layer{}, err)
			return
		}
		x.mu.Lock()
		last := x.last
		x.mu.Unlock()
		if last.Version != "" {
			deliver(last, nil)
		}
	}, func(t *xds.Text) error { return x.apply(ctx, t, deliver) })
	return nil
}

// apply delivers a text, and waits until it runs or has been refused.
func (x *xdsText) apply(ctx context.Context, t *xds.Text, deliver func(spec.Layer, error)) error {
	next := spec.Layer{Version: versionOf(t), At: time.Now(), Text: t.YAML}
	x.mu.Lock()
	if err := x.bad[next.Version]; err != nil {
		x.mu.Unlock()
		return err // it would not be tried again
	}
	result := make(chan error, 1)
	x.last, x.result = next, result
	if !slices.Equal(t.Warnings, x.old) {
		x.new, x.old = t.Warnings, t.Warnings
	}
	x.mu.Unlock()
	deliver(next, nil)
	select {
	case err := <-result:
		if err != nil {
			err = t.Explain(func(file string) bool { return strings.HasPrefix(file, "xds") && spec.IsRemote(file) }, err)
			x.mu.Lock()
			x.bad = map[string]error{next.Version: err}
			x.mu.Unlock()
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// warnings returns what was ignored, once.
func (x *xdsText) warnings() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	list := x.new
	x.new = nil
	return list
}

// versionOf returns a version that no other text has: control planes give versions to resources, not to what they
// make together.
func versionOf(t *xds.Text) string {
	h := fnv.New64a()
	h.Write(t.YAML)
	v := t.Version
	if len(v) > 24 {
		v = v[:12]
	}
	return strings.TrimPrefix(fmt.Sprintf("%s-%08x", config.PlainLine(v), uint32(h.Sum64())), "-")
}

func (x *xdsText) applied(version string)            { x.settle(version, nil) }
func (x *xdsText) refused(version string, why error) { x.settle(version, why) }

func (x *xdsText) settle(version string, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err == nil {
		delete(x.bad, version)
	}
	if x.result != nil && version == x.last.Version {
		x.result <- err
		x.result = nil
	}
}
