package xds

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/penstock/penstock/cmd/penstock/internal/ads"
)

// Whatever comes while a configuration is applied, or for types that are full, is not kept without bound.
func TestWhatIsKept(t *testing.T) {
	c := newTestClient(t, ads.Options{Registry: registryOf("http://127.0.0.1:1")})
	send := func(f *Configuration, size int, resources ...ads.Resource) error {
		return f.handle(&ads.Response{URL: listenerURL, Size: size, Resources: resources})
	}
	full := func(f *Configuration, next func(i int) error) (n int) {
		for ; n < 1000; n++ {
			if err := next(n); err != nil {
				return n
			}
		}
		t.Error("everything is kept")
		return n
	}
	f := NewConfiguration(c, NewEndpoints(c), "", false)
	web := ads.Resource{Name: "web", URL: listenerURL, Value: []byte("x")}
	if n := full(f, func(int) error { return send(f, ads.MaxMessage, web) }); n != maxBytes/ads.MaxMessage {
		t.Errorf("%d messages wait", n)
	}
	for _, r := range f.pending {
		if r.Resources[0].Value != nil || r.Resources[0].Name != "web" {
			t.Errorf("%+v waits", r.Resources[0])
		}
	}
	if string(f.resources[listenerURL].byName["web"].Value) != "x" {
		t.Error("the value is gone")
	}
	f.reply(f.pending, nil, nil)
	if err := send(f, ads.MaxMessage, web); err != nil || f.unanswered != ads.MaxMessage {
		t.Errorf("after the replies %d bytes wait: %v", f.unanswered, err)
	}

	f = NewConfiguration(c, f.endpoints, "", false)
	value := make([]byte, ads.MaxMessage/4)
	n := full(f, func(i int) error {
		return send(f, 1, ads.Resource{Name: fmt.Sprint(i), URL: listenerURL, Value: value})
	})
	if o := f.resources[listenerURL]; o.bytes > maxBytes+ads.MaxMessage || n < maxBytes/len(value) {
		t.Errorf("%d bytes of %d resources are kept", o.bytes, n)
	}
	gone := &ads.Response{URL: listenerURL}
	for name := range f.resources[listenerURL].byName {
		gone.Removed = append(gone.Removed, name)
	}
	if err := f.handle(gone); err != nil || f.resources[listenerURL].bytes != 0 {
		t.Errorf("%d bytes of nothing: %v", f.resources[listenerURL].bytes, err)
	}
	f = NewConfiguration(c, f.endpoints, "", false)
	n = full(f, func(i int) error {
		many := make([]ads.Resource, ads.MaxResources/2)
		for j := range many {
			many[j] = ads.Resource{Name: fmt.Sprint(i, j), URL: listenerURL, Value: value[:0]}
		}
		return send(f, 1, many...)
	})
	if n > 5 {
		t.Errorf("%d resources are kept", len(f.resources[listenerURL].byName))
	}
}

// Configurations that come faster than they can be looked at are one change.
func TestFloodIsOneChange(t *testing.T) {
	const all = 60
	c := newTestClient(t, ads.Options{Registry: registryOf("http://127.0.0.1:1")})
	conf := NewConfiguration(c, NewEndpoints(c), "edge", false)
	for i := range all {
		value := encode(t, &configurationTable, map[string]any{"text": fmt.Sprint("# ", i)})
		r := &ads.Response{URL: ConfigurationURL, Resources: []ads.Resource{{Name: "edge", Version: fmt.Sprint(i), URL: ConfigurationURL, Value: value}}}
		if err := conf.handle(r); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var texts []string
	conf.Follow(ctx, nil, func(text *Text) error {
		if texts = append(texts, string(text.YAML)); texts[len(texts)-1] == fmt.Sprint("# ", all-1) {
			cancel()
		}
		return errors.New("wrong")
	})
	if len(texts) > all/2 {
		t.Errorf("%d configurations were tried", len(texts))
	}
}

// The values of all resources together are bounded, not only those of each.
func TestManyValues(t *testing.T) {
	field := protowire.AppendVarint(protowire.AppendTag(nil, 15000, protowire.VarintType), 1)
	value := bytes.Repeat(field, maxValues-1)
	listeners := map[string]ads.Resource{}
	for _, name := range []string{"a", "b", "c"} {
		listeners[name] = ads.Resource{Name: name, URL: listenerURL, Value: value}
	}
	_, err := assemble(registryOf("http://127.0.0.1:1"), listeners, nil)
	if err == nil || err.Error() != "Listener c: all resources together have more than 2097152 values" {
		t.Errorf("%v", err)
	}
}

// The reason of a refusal is short, however many errors there are.
func TestReason(t *testing.T) {
	var errs assembleErrors
	for range maxReasons {
		errs = append(errs, resourceError{listenerURL, "web", []Problem{{"a", "b"}, {"c", "d"}}})
	}
	if n := len(errs.Error()); n > 20*maxReasons {
		t.Errorf("%d bytes", n)
	}
}

// A text of the control plane is a text of the configuration: no variable of the relay's, and no YAML.
func TestQuote(t *testing.T) {
	for s, want := range map[string]string{"a${HOME}$b": `"a$${HOME}$b"`, "a\"\n- b: \\": `"a\"\u000a- b: \\"`, "\u0085\u2028": `"\u0085\u2028"`} {
		if got := quote(s); got != want {
			t.Errorf("%q became %s, want %s", s, got, want)
		}
	}
}
