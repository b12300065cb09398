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

	"github.com/penstock/penstock/cmd/penstock/internal/ads"
	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// warmTime is how long resources wait for those that they refer to. Envoy's initial_fetch_timeout has the
// same default.
const warmTime = 15 * time.Second

// A Configuration follows the configuration that a control plane has for this relay: Penstock's own
// resource if it has a name, otherwise Envoy's Listeners and Clusters.
type Configuration struct {
	c         *ads.Client
	endpoints *Endpoints
	registry  spec.Registry
	name      string
	partial   bool // per resource
	warm      time.Duration

	wake chan struct{}
	// failed is called when the stream has failed, and with nil when it works again.
	failed func(error)

	good resourceSet // that the last text was made of, if partial; for Follow

	mu         sync.Mutex
	resources  map[string]*offered // by type
	pending    []*ads.Response     // without a reply
	unanswered int                 // bytes of the messages of pending
	ended      bool                // Follow has returned
	since      time.Time           // of the first of pending
}

// offered is what the control plane has sent of one type: taken, refused or not decided yet.
type offered struct {
	answered bool
	version  string
	byName   map[string]ads.Resource
	bytes    int // of the values
}

// maxBytes bounds the values of one type.
const maxBytes = 64 << 20

// NewConfiguration returns the configuration of a client, which can have one Configuration. endpoints are those of the same
// client. name is that of Penstock's own resource; empty: Envoy's
// resources are used, as a whole or not at all, or with partial each that can be.
func NewConfiguration(c *ads.Client, endpoints *Endpoints, name string, partial bool) *Configuration {
	f := &Configuration{c: c, endpoints: endpoints, registry: c.Registry(), name: name, partial: partial, warm: warmTime, wake: make(chan struct{}, 1), resources: map[string]*offered{}}
	for _, url := range f.urls() {
		f.resources[url] = &offered{byName: map[string]ads.Resource{}}
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
		t := ads.Type{URL: url, Wildcard: f.name == "", Handle: f.handle}
		if i == 0 {
			t.Failed = f.tell
		}
		s := f.c.Subscribe(t)
		if f.name != "" {
			s.Add(f.name)
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
func (f *Configuration) handle(r *ads.Response) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return nil
	}
	if f.unanswered += r.Size; f.unanswered > maxBytes && len(f.pending) > 0 {
		f.unanswered -= r.Size
		return errors.New("the control plane sends faster than configurations can be applied")
	}
	o := f.resources[r.URL]
	for _, res := range r.Resources {
		if res.Empty() {
			continue
		}
		had, ok := o.byName[res.Name]
		if !ok && len(o.byName) > 2*ads.MaxResources || o.bytes+len(res.Value)-len(had.Value) > maxBytes+ads.MaxMessage {
			f.unanswered -= r.Size
			return errors.New(o.tooMany(r.URL)) // Follow has said so, to no avail
		}
		o.bytes += len(res.Value) - len(had.Value)
		res.Value = bytes.Clone(res.Value) // so that the message can be freed
		o.byName[res.Name] = res
	}
	for _, name := range r.Removed {
		o.bytes -= len(o.byName[name].Value)
		delete(o.byName, name)
	}
	r.Drop()
	o.answered, o.version = true, r.Version
	if len(f.pending) == 0 {
		f.since = time.Now()
	}
	f.pending = append(f.pending, r)
	f.poke()
	return nil
}

// tooMany says that there is more than is kept.
func (o *offered) tooMany(url string) string {
	return fmt.Sprintf("too many resources: the values of type %s have more than %d bytes, or there are more than %d", kindOf(url), maxBytes, ads.MaxResources)
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
		snapshot := resourceSet{}
		complete := true
		large := ""
		for url, o := range f.resources {
			if o.bytes > maxBytes || len(o.byName) > ads.MaxResources {
				large = o.tooMany(url)
			}
			snapshot[url] = maps.Clone(o.byName)
			complete = complete && o.answered
		}
		version := f.version()
		f.mu.Unlock()
		if len(pending) == 0 {
			continue
		}
		m, err := made{}, errors.New("the control plane has sent no Clusters, or no Listeners")
		switch {
		case large != "":
			err, late = errors.New(large), true
		case complete:
			m, err = f.make(snapshot, late)
		}
		if !late && (!complete || err == nil && !m.closed) {
			timer.Reset(time.Until(until))
			remote.Sleep(ctx, minInterval)
			continue
		}
		switch {
		case err != nil:
			f.tell(err) // nothing that can be used
		case !bytes.Equal(m.text.YAML, applied):
			m.text.Version = version
			err = apply(m.text)
		}
		if ctx.Err() != nil {
			return // nothing was decided
		}
		if err == nil {
			applied, f.good = m.text.YAML, m.used
		}
		f.reply(pending, err, m.wrong)
		// What comes meanwhile is one change: whoever sends without waiting for replies keeps nobody busy.
		pause := minInterval
		if err != nil {
			pause = refusedPause
		}
		if remote.Sleep(ctx, pause) != nil {
			return
		}
	}
}

// refusedPause is the time between two configurations of which the first one was refused.
const refusedPause = 500 * time.Millisecond

// reply replies to responses, which are no longer pending. err is that of the whole; wrong are resources that were
// refused by themselves.
func (f *Configuration) reply(list []*ads.Response, err error, wrong assembleErrors) {
	f.mu.Lock()
	f.pending = f.pending[len(list):]
	for _, r := range list {
		f.unanswered -= r.Size
	}
	f.since = time.Now()
	more := len(f.pending) > 0
	f.mu.Unlock()
	for _, r := range list {
		if err != nil {
			r.Reply(err)
		} else {
			r.Reply(wrong.of(r.URL))
		}
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

// A made is a text, and how it was made.
type made struct {
	text   *Text
	used   resourceSet    // what it was made of, if partial
	wrong  assembleErrors // of resources that were not used, if partial
	closed bool           // everything that it refers to is there; or never will be
}

// make makes a text. With late nothing more is expected to come.
func (f *Configuration) make(resources resourceSet, late bool) (m made, err error) {
	if f.name != "" {
		r, ok := resources[ConfigurationURL][f.name]
		if !ok {
			return m, fmt.Errorf("the Configuration %s was removed; the one before stays", ads.OneLine(f.name))
		}
		m.text, err = parseConfiguration(r)
		m.closed = true
		return m, err
	}
	var a *assembly
	if f.partial {
		a, m.used, m.wrong, err = f.makePartly(resources, late)
	} else {
		a, err = assemble(f.registry, resources[listenerURL], resources[clusterURL])
		if late && len(a.open) > 0 {
			errs, _ := err.(assembleErrors)
			err = append(errs, openErrors(a.open)...)
		}
	}
	if err != nil {
		return m, err
	}
	m.text = a.text
	m.closed = f.endpoints.hold(a.eds) == 0 && len(a.open) == 0
	return m, nil
}

// parseConfiguration reads Penstock's own resource.
func parseConfiguration(r ads.Resource) (*Text, error) {
	d := &decoder{}
	if r.URL != ConfigurationURL {
		return nil, assembleErrors{{ConfigurationURL, r.Name, []Problem{{"", "type " + ads.OneLine(r.URL) + "; expected " + ConfigurationURL}}}}
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
