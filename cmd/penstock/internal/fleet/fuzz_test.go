package fleet

import (
	"encoding/json"
	"reflect"
	"testing"
)

// What is read is bounded, and is read the same again.
func FuzzReport(f *testing.F) {
	f.Add([]byte(`{"node":"a","state":"ready","groups":{"web":{"up":1,"all":2,"down":["x"]}},"refused":{"version":3,"error":"no"},"sources":[{"name":"dns","age":1}]}`))
	f.Add([]byte(`{"node":"-"}`))
	f.Add([]byte(`{"node":"a","served":{"begun":1,"ends":{"end":1},"sizes":[0,1],"first_byte_time":[1]},"listeners":{"web":{"begun":1}},"unlisted":2}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := ParseReport(text)
		if err != nil {
			return
		}
		if len(r.Groups) > maxGroups || len(r.Sources) > maxSources || len(r.Listeners) > maxListeners {
			t.Fatalf("%d groups, %d sources, %d listeners", len(r.Groups), len(r.Sources), len(r.Listeners))
		}
		roundTrip(t, r, ParseReport)
	})
}

func FuzzOrder(f *testing.F) {
	f.Add([]byte(`{"id":"0123456789abcdef","kind":"flows","member":"x","limit":10}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if o, err := ParseOrder(text); err == nil {
			roundTrip(t, o, ParseOrder)
		}
		if o, err := ParseDrain(text); err == nil {
			roundTrip(t, o, ParseDrain)
		}
		ParseEntry(text)
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"state":"done","flows":[{"id":"1","client":"tcp://127.0.0.1:1"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if a, err := ParseAnswer(text); err == nil {
			if len(a.Flows) > MaxFlows {
				t.Fatalf("%d flows", len(a.Flows))
			}
			roundTrip(t, a, ParseAnswer)
		}
	})
}

func FuzzCheckResult(f *testing.F) {
	f.Add([]byte(`{"up":true}`), "/p/checks/0123456789abcdef/node")
	f.Add([]byte(`["0123456789abcdef"]`), "/p/checks/")
	f.Fuzz(func(t *testing.T, text []byte, key string) {
		if r, err := ParseResult(text); err == nil {
			roundTrip(t, r, ParseResult)
		}
		if s, err := ParseScopes(text); err == nil && len(s) > maxScopes {
			t.Fatalf("%d scopes", len(s))
		}
		if member, node, ok := splitResult(key, "/p/checks/"); ok && "/p/checks/"+member+"/"+node != key {
			t.Fatalf("%q: %q, %q", key, member, node)
		}
	})
}

func roundTrip[T any](t *testing.T, v T, parse func([]byte) (T, error)) {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Skip("a time that JSON does not have")
	}
	w, err := parse(text)
	if err != nil {
		return // escapes may make it too long
	}
	if second, err := json.Marshal(w); err != nil || !reflect.DeepEqual(second, text) {
		t.Fatalf("%s\nbecomes\n%s\n%v", text, second, err)
	}
}

// FuzzVersion: what is published is bounded, and is read the same again.
func FuzzVersion(f *testing.F) {
	f.Add([]byte(`{"version":2,"hash":"` + HashOf("x") + `","text":"x","parent":1,"by":"a","at":"2026-11-22T13:00:00Z","message":"m"}`))
	f.Add([]byte(`{"version":2,"hash":"` + HashOf("x") + `","last":3}`))
	f.Add([]byte(`{"version":3,"hash":"` + HashOf("x") + `","below":"00ff00ff00ff00ff","by":"a"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if v, err := ParseVersion(text); err == nil {
			if HashOf(v.Text) != v.Hash || len(v.Message) > maxMessage+3 {
				t.Errorf("%+v", v)
			}
		}
		if c, err := ParseCurrent(text); err == nil {
			roundTrip(t, c, ParseCurrent)
		}
		if c, err := ParseCanary(text); err == nil {
			roundTrip(t, c, ParseCanary)
			c.Has("node")
		}
	})
}
