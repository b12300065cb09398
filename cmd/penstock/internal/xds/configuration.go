package xds

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// warmTime is how long resources wait for those that they refer to. Envoy's initial_fetch_timeout has the
// same default.
const warmTime = 15 * time.Second

// A Configuration follows the configuration that a control plane has for this relay: Penstock's own
// resource if it has a name, otherwise Envoy's Listeners and Clusters.
type Configuration struct {
	c         *Client
	endpoints *Endpoints
	registry  spec.Registry
	name      string
	warm      time.Duration

	wake chan struct{}
	// failed is called when the stream has failed, and with nil when it works again.
	failed func(error)

	mu        sync.Mutex
	resources map[string]*offered // by type
	pending   []*Response         // without a reply
	ended     bool                // Follow has returned
	since     time.Time           // of the first of pending
}

// offered is what the control plane has sent of one type: taken, refused or not decided yet.
type offered struct {
	answered bool
	version  string
	byName   map[string]Resource
}

// Configuration returns the configuration of a client. It must be called once. The registry is that of the
// client; endpoints are those of the same client. name is that of Penstock's own resource; empty: Envoy's
// resources are used.
func (c *Client) Configuration(endpoints *Endpoints, name string) *Configuration {
	f := &Configuration{c: c, endpoints: endpoints, registry: c.opt.Registry, name: name, warm: warmTime, wake: make(chan struct{}, 1), resources: map[string]*offered{}}
	for _, url := range f.urls() {
		f.resources[url] = &offered{byName: map[string]Resource{}}
	}
	return f
}

// urls returns the types.
func (f *Configuration) urls() []string {
	if f.name != "" {
		return []string{ConfigurationURL}
	}
	return []string{clusterURL, listenerURL}
}

// start asks for the resources.
func (f *Configuration) start() {
	f.endpoints.mu.Lock()
	f.endpoints.changed = f.poke
	f.endpoints.mu.Unlock()
	for i, url := range f.urls() {
		t := &typeState{url: url, wildcard: f.name == "", handle: f.handle}
		if i == 0 {
			t.failed = f.tell
		}
		f.c.add(t)
		if f.name != "" {
			f.c.subscribe(t, f.name)
		}
	}
}

// tell calls failed.
func (f *Configuration) tell(err error) {
	f.mu.Lock()
	failed := f.failed
	f.mu.Unlock()
	if failed != nil {
		failed(err)
	}
}

// handle takes a response of any of the types. Follow replies.
func (f *Configuration) handle(r *Response) {
	f.mu.Lock()
	if f.ended {
		f.mu.Unlock()
		return
	}
	o := f.resources[r.url]
	for _, res := range r.Resources {
		if res.URL == "" && res.Value == nil {
			continue // a sign of life
		}
		o.byName[res.Name] = res
	}
	for _, name := range r.Removed {
		delete(o.byName, name)
	}
	o.answered, o.version = true, r.Version
	if len(f.pending) == 0 {
		f.since = time.Now()
	}
	f.pending = append(f.pending, r)
	f.mu.Unlock()
	f.poke()
}

func (f *Configuration) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Follow calls apply with each new configuration, until ctx ends. The configuration is accepted if apply
// returns nil; otherwise the control plane is told why it was refused, and the one before stays. failed is
// called when the stream has failed, with nil when it works, and when the control plane has nothing that can be
// used. It may be called on another goroutine.
func (f *Configuration) Follow(ctx context.Context, failed func(error), apply func(*Text) error) {
	f.mu.Lock()
	f.failed = failed
	f.mu.Unlock()
	f.start()
	defer func() {
		f.mu.Lock()
		f.ended, f.pending = true, nil
		f.mu.Unlock()
	}()
	var applied []byte // the last text that was
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-f.wake:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		f.mu.Lock()
		pending := f.pending
		late := time.Since(f.since) >= f.warm
		until := f.since.Add(f.warm)
		snapshot := map[string]map[string]Resource{}
		complete := true
		for url, o := range f.resources {
			snapshot[url] = maps.Clone(o.byName)
			complete = complete && o.answered
		}
		version := f.version()
		f.mu.Unlock()
		if len(pending) == 0 {
			continue
		}
		var text *Text
		err, closed := errors.New("the control plane has sent no Clusters, or no Listeners"), false
		if complete {
			text, err, closed = f.make(snapshot, late)
		}
		if !late && (!complete || err == nil && !closed) {
			timer.Reset(time.Until(until))
			continue
		}
		switch {
		case err != nil:
			f.tell(err) // nothing that can be used
		case !bytes.Equal(text.YAML, applied):
			text.Version = version
			err = apply(text)
		}
		if err == nil {
			applied = text.YAML
		}
		f.reply(pending, err)
	}
}

// reply replies to responses, which are no longer pending.
func (f *Configuration) reply(list []*Response, err error) {
	f.mu.Lock()
	f.pending = f.pending[len(list):]
	f.since = time.Now()
	more := len(f.pending) > 0
	f.mu.Unlock()
	for _, r := range list {
		r.Reply(err)
	}
	if more {
		f.poke()
	}
}

// version returns the versions that the control plane gave, for messages.
func (f *Configuration) version() string {
	if f.name != "" {
		return f.resources[ConfigurationURL].byName[f.name].Version
	}
	l, c := f.resources[listenerURL].version, f.resources[clusterURL].version
	if l == c {
		return l
	}
	return "Listeners " + l + ", Clusters " + c
}

// make makes a text. closed is whether everything that it refers to is there; with late it need not be.
func (f *Configuration) make(resources map[string]map[string]Resource, late bool) (t *Text, err error, closed bool) {
	if f.name != "" {
		r, ok := resources[ConfigurationURL][f.name]
		if !ok {
			return nil, fmt.Errorf("the Configuration %s was removed; the one before stays", oneLine(f.name)), true
		}
		t, err := parseConfiguration(r)
		return t, err, true
	}
	a, err := assemble(f.registry, resources[listenerURL], resources[clusterURL])
	if len(a.open) > 0 && late {
		errs, _ := err.(assembleErrors)
		for _, o := range a.open {
			errs = append(errs, resourceError{listenerURL, o.from, []Problem{{o.path, "there is no Cluster " + oneLine(o.to)}}})
		}
		return nil, errs, false
	}
	if err != nil {
		return nil, err, true
	}
	missing := f.endpoints.hold(a.eds)
	return a.text, nil, len(a.open) == 0 && missing == 0
}

// parseConfiguration reads Penstock's own resource.
func parseConfiguration(r Resource) (*Text, error) {
	d := &decoder{}
	if r.URL != ConfigurationURL {
		return nil, assembleErrors{{ConfigurationURL, r.Name, []Problem{{"", "type " + oneLine(r.URL) + "; expected " + ConfigurationURL}}}}
	}
	o := d.decode(&configurationTable, r.Value)
	text := o.bytes("text")
	if o.has("value") {
		if len(text) > 0 {
			o.fail("value", "set together with text")
		}
		fields, err := parseStruct(o.bytes("value"))
		if err == nil {
			text, err = json.MarshalIndent(fields, "", " ")
		}
		if err != nil {
			o.fail("value", "%v", err)
		}
	}
	if len(d.errs) > 0 {
		return nil, assembleErrors{{ConfigurationURL, r.Name, d.errs}}
	}
	return &Text{YAML: text}, nil
}
