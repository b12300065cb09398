package admin

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	yaml "go.yaml.in/yaml/v4"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

const docs = "../../../../docs"

// description is docs/api/openapi.yaml.
type description struct {
	doc    map[string]any
	schema *jsonschema.Compiler
}

func describe(t *testing.T) *description {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(docs, "api", "openapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var raw any
	if err := yaml.Unmarshal(b, &raw); err != nil {
		t.Fatal(err)
	}
	// Through JSON, so that numbers and keys are what the validator expects.
	if b, err = json.Marshal(raw); err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	d := &description{doc: v.(map[string]any), schema: jsonschema.NewCompiler()}
	d.schema.AssertFormat()
	if err := d.schema.AddResource("openapi.json", v); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestOpenAPIIsValid validates the document by the schema of the OpenAPI Initiative
// (https://spec.openapis.org/oas/3.1/schema/2022-10-07), which leaves schemas to JSON Schema. That
// allows any keys, so that a comma too many in a description makes one without a value.
func TestOpenAPIIsValid(t *testing.T) {
	d := describe(t)
	text, err := os.ReadFile(filepath.Join("testdata", "openapi-3.1.json"))
	if err != nil {
		t.Fatal(err)
	}
	meta, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("meta.json", meta); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("meta.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(d.doc); err != nil {
		t.Error(err)
	}
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case nil:
			t.Errorf("%s has no value", at)
		case map[string]any:
			for k, e := range v {
				walk(at+"/"+k, e)
			}
		case []any:
			for i, e := range v {
				walk(fmt.Sprint(at, "/", i), e)
			}
		}
	}
	walk("", d.doc)
}

// check validates a JSON text by the schema at a place of the file.
func (d *description) check(place, text string) error {
	schema, err := d.schema.Compile("openapi.json#" + place)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	return schema.Validate(v)
}

// escape makes parts a JSON pointer (RFC 6901) in a URL's fragment.
func escape(parts ...string) (s string) {
	for _, p := range parts {
		s += "/" + url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(p))
	}
	return s
}

// The file and the handlers have the same routes, and the file says of each what it must.
func TestEveryRouteIsDescribed(t *testing.T) {
	d := describe(t)
	var inFile, inCode []string
	for path, item := range d.doc["paths"].(map[string]any) {
		for method, v := range item.(map[string]any) {
			if method == "parameters" {
				continue
			}
			op := v.(map[string]any)
			inFile = append(inFile, strings.ToUpper(method)+" "+path)
			for _, key := range []string{"operationId", "summary", "responses", "tags"} {
				if op[key] == nil {
					t.Errorf("%s %s has no %s", method, path, key)
				}
			}
			for _, name := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(path, -1) {
				if !strings.Contains(fmt.Sprint(item.(map[string]any)["parameters"]), name[1]) {
					t.Errorf("%s: parameter %s is not described", path, name[1])
				}
			}
		}
	}
	for _, r := range routes {
		inCode = append(inCode, r.method+" "+r.path)
	}
	slices.Sort(inFile)
	slices.Sort(inCode)
	if !slices.Equal(inFile, inCode) {
		t.Errorf("in the file %s\nin the code %s", strings.Join(inFile, "\n"), strings.Join(inCode, "\n"))
	}
}

// Every schema compiles, and every reference leads somewhere.
func TestSchemas(t *testing.T) {
	d := describe(t)
	for name := range d.doc["components"].(map[string]any)["schemas"].(map[string]any) {
		if _, err := d.schema.Compile("openapi.json#" + escape("components", "schemas", name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok && d.at(ref) == nil {
				t.Errorf("%s leads nowhere", ref)
			}
			for _, x := range v {
				walk(x)
			}
		case []any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	walk(d.doc)
}

func (d *description) at(ref string) any {
	var v any = d.doc
	for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		m, _ := v.(map[string]any)
		v = m[part]
	}
	return v
}

// The Go types and the schemas have the same fields, and the same of them may be missing.
func TestTypesAreDescribed(t *testing.T) {
	d := describe(t)
	for _, v := range []any{api.Problem{}, api.ConfigError{}, api.Ready{}, api.Status{}, api.Sample{}, api.Numbers{}, api.Loop{}, api.Resources{}, api.Overload{}, api.Sandbox{}, api.SandboxLayer{}, api.OverloadResource{}, api.OverloadAction{}, api.PathCount{},
		api.ListenerSummary{}, api.GroupSummary{}, api.Drain{}, api.Level{}, api.Events{}, api.Event{}, api.Fleet{}, api.ConfigInfo{}, api.RemoteConfig{}, api.RefusedVersion{}, api.Config{}, api.Diff{}, api.Change{},
		api.Listeners{}, api.Listener{}, api.Certificate{}, api.Route{}, api.Part{}, api.SplitChange{}, api.SplitDifference{}, api.PartDifference{}, api.Groups{}, api.Group{}, api.Queue{}, api.Member{}, api.Members{}, api.Check{}, api.MemberChange{},
		api.Flows{}, api.Flow{}, api.Transfer{}, api.FlowDetail{}, api.TLS{}, api.Identity{}, api.TCPInfo{}, api.Killed{},
		api.EndedFlows{}, api.EndedFlow{}, api.Histogram{}, api.Latency{}, api.Refusal{},
		api.Keeper{}, api.StartCount{}, api.WorkerStart{}, api.RestoredFlows{}, api.LostFlows{}, api.Upgrade{}, api.UpgradeStep{}, api.NewCapture{}, api.CaptureLine{}, api.CaptureFlow{}} {
		typ := reflect.TypeOf(v)
		properties, required := map[string]bool{}, map[string]bool{}
		d.fields("#/components/schemas/"+typ.Name(), properties, required)
		var optional func(typ reflect.Type)
		seen := map[string]bool{}
		optional = func(typ reflect.Type) {
			for f := range typ.Fields() {
				name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
				if f.Anonymous && name == "" {
					optional(f.Type)
					continue
				}
				seen[name] = true
				if !properties[name] {
					t.Errorf("%s: %s is not in the file", typ.Name(), name)
				}
				if required[name] == strings.Contains(options, "omit") {
					t.Errorf("%s: %s is required in the file: %t; its tag: %q", typ.Name(), name, required[name], options)
				}
			}
		}
		optional(typ)
		for name := range properties {
			if !seen[name] {
				t.Errorf("%s: %s is in the file only", typ.Name(), name)
			}
		}
	}
}

func (d *description) fields(ref string, properties, required map[string]bool) {
	m, _ := d.at(ref).(map[string]any)
	for _, part := range list(m["allOf"]) {
		d.fields(part.(map[string]any)["$ref"].(string), properties, required)
	}
	for _, name := range list(m["required"]) {
		required[name.(string)] = true
	}
	of, _ := m["properties"].(map[string]any)
	for name := range of {
		properties[name] = true
	}
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

// Real requests to every route, and what they answer, fit the file. Those that
// are refused answer a problem.
func TestAnswersFitTheDescription(t *testing.T) {
	d := describe(t)
	r := newRig(t, &synthetic{flows: 600, members: 6})
	r.events.Add(api.Event{Level: "warn", Kind: "health", Subject: "backends/a", Message: "down"})
	canary := "/v1/listeners/web/routes/canary"
	member := "/v1/groups/backends/members/" + url.PathEscape(memberName(0))
	covered := map[string]bool{}
	for _, c := range []struct {
		method, path, body, route string
		status                    int
	}{
		{"GET", "/healthz", "", "/healthz", 200},
		{"GET", "/readyz", "", "/readyz", 200},
		{"GET", "/metrics", "", "/metrics", 200},
		{"GET", "/v1/status", "", "/v1/status", 200},
		{"GET", "/v1/config", "", "/v1/config", 200},
		{"POST", "/v1/config/diff", "listeners: []\n", "/v1/config/diff", 200},
		{"POST", "/v1/config/diff", "bad: 1\n", "/v1/config/diff", 422},
		{"GET", "/v1/config/diff", "", "/v1/config/diff", 200},
		{"POST", "/v1/reload", "", "/v1/reload", 200},
		{"POST", "/v1/upgrade", `{"binary":"/usr/bin/penstock","dry_run":true}`, "/v1/upgrade", 200},
		{"POST", "/v1/upgrade", `{"binary":"penstock"}`, "/v1/upgrade", 400},
		{"GET", "/v1/listeners", "", "/v1/listeners", 200},
		{"GET", "/v1/lists", "", "/v1/lists", 200},
		{"POST", "/v1/captures", `{"source":"192.0.2.0/24","for":1}`, "/v1/captures", 200},
		{"POST", "/v1/captures", `{"flow":"1099511627776","for":1}`, "/v1/captures", 404},
		{"POST", "/v1/captures", `{"for":1}`, "/v1/captures", 400},
		{"POST", "/v1/captures", `{"flow":"1","source":"::1","for":1}`, "/v1/captures", 400},
		{"POST", "/v1/captures", `{"source":"::1","for":3601}`, "/v1/captures", 400},
		{"GET", "/v1/bans", "", "/v1/bans", 200},
		{"POST", "/v1/bans", `{"network": "192.0.2.0/24", "for": 60, "end_flows": true}`, "/v1/bans", 200},
		{"POST", "/v1/bans", `{"for": -1}`, "/v1/bans", 400},
		{"POST", "/v1/bans", `{"network": "192.0.2.0/24", "for": 1e-12}`, "/v1/bans", 400},
		{"DELETE", "/v1/bans/192.0.2.0%2F24", "", "/v1/bans/{network}", 200},
		{"GET", "/v1/groups", "", "/v1/groups", 200},
		{"GET", "/v1/groups/empty", "", "/v1/groups/{group}", 200},
		{"GET", "/v1/groups/backends", "", "/v1/groups/{group}", 200},
		{"GET", "/v1/groups/none", "", "/v1/groups/{group}", 404},
		{"PATCH", canary, `{"weights":{"backends":0,"refuse":1}}`, "/v1/listeners/{listener}/routes/{route}", 200},
		{"PATCH", canary, `{"state":"file"}`, "/v1/listeners/{listener}/routes/{route}", 200},
		{"PATCH", canary, `{}`, "/v1/listeners/{listener}/routes/{route}", 400},
		{"PATCH", canary, `{"state":"off"}`, "/v1/listeners/{listener}/routes/{route}", 400},
		{"PATCH", canary, `{"state":"file","weights":{"refuse":1}}`, "/v1/listeners/{listener}/routes/{route}", 400},
		{"PATCH", "/v1/listeners/web/routes/none", `{"state":"file"}`, "/v1/listeners/{listener}/routes/{route}", 404},
		{"PATCH", member, `{"weight":7,"state":"drain"}`, "/v1/groups/{group}/members/{member}", 200},
		{"PATCH", member, `{"address":"tcp://10.0.0.9:80"}`, "/v1/groups/{group}/members/{member}", 200},
		{"PATCH", member, `{"address":"tcp://10.0.0.9:80","state":"file"}`, "/v1/groups/{group}/members/{member}", 400},
		{"POST", "/v1/groups/backends/members", `{"address":"tcp://10.0.0.9:80","name":"new","weight":2,"max_flows":5,"backup":true}`, "/v1/groups/{group}/members", 200},
		{"POST", "/v1/groups/none/members", `{"address":"tcp://10.0.0.9:80"}`, "/v1/groups/{group}/members", 404},
		{"POST", "/v1/groups/backends/members", `{}`, "/v1/groups/{group}/members", 400},
		{"POST", "/v1/groups/backends/members", `{"address":"tcp://10.0.0.9:80","weight":257}`, "/v1/groups/{group}/members", 400},
		{"POST", "/v1/groups/backends/members", `{"address":"tcp://10.0.0.9:80","max_flows":-1}`, "/v1/groups/{group}/members", 400},
		{"DELETE", member, "", "/v1/groups/{group}/members/{member}", 200},
		{"DELETE", "/v1/groups/backends/members/none", "", "/v1/groups/{group}/members/{member}", 404},
		{"GET", "/v1/changes", "", "/v1/changes", 200},
		{"PATCH", "/v1/groups/backends/members/none", `{"weight":7}`, "/v1/groups/{group}/members/{member}", 404},
		{"PATCH", member, `{"weight":257}`, "/v1/groups/{group}/members/{member}", 400},
		{"PATCH", member, `{}`, "/v1/groups/{group}/members/{member}", 400},
		{"PATCH", member, `{"state":"off"}`, "/v1/groups/{group}/members/{member}", 400},
		{"PATCH", member, `{"colour":"red"}`, "/v1/groups/{group}/members/{member}", 400},
		{"PATCH", member, `{"weight":7} {}`, "/v1/groups/{group}/members/{member}", 400},
		{"PATCH", member, `weight=7`, "/v1/groups/{group}/members/{member}", 415},
		{"PATCH", member, `{"weight":7,"wieght":8}`, "/v1/groups/{group}/members/{member}", 400},
		{"GET", "/v1/flows", "", "/v1/flows", 200},
		{"GET", "/v1/flows?listener=none", "", "/v1/flows", 200},
		{"GET", "/v1/flows?limit=10", "", "/v1/flows", 200},
		{"GET", "/v1/flows?sort=bytes&limit=5&min_age=3s&source=192.0.0.0/16", "", "/v1/flows", 200},
		{"GET", "/v1/flows?sort=rate&window=1ms", "", "/v1/flows", 200},
		{"GET", "/v1/flows?limit=0", "", "/v1/flows", 400},
		{"GET", "/v1/flows?source=here", "", "/v1/flows", 400},
		{"GET", "/v1/flows?state=asleep", "", "/v1/flows", 400},
		{"GET", "/v1/flows?colour=red", "", "/v1/flows", 400},
		{"GET", "/v1/flows?kind=stream&kind=datagram", "", "/v1/flows", 400},
		{"GET", "/v1/flows?window=1s", "", "/v1/flows", 400},
		{"GET", "/v1/flows?sort=rate&window=1h", "", "/v1/flows", 400},
		{"GET", "/v1/flows?min_bytes=-1", "", "/v1/flows", 400},
		{"GET", "/v1/flows?cursor=5", "", "/v1/flows", 400},
		{"GET", "/v1/flows?a=%zz", "", "/v1/flows", 400},
		{"DELETE", "/v1/flows?listener=dns", "", "/v1/flows", 200},
		{"DELETE", "/v1/flows", "", "/v1/flows", 400},
		{"GET", "/v1/ended", "", "/v1/ended", 200},
		{"GET", "/v1/ended?problems=true&cause=no-member&limit=5&listener=web&min_age=1s", "", "/v1/ended", 200},
		{"GET", "/v1/ended?problems=perhaps", "", "/v1/ended", 400},
		{"GET", "/v1/ended?limit=0", "", "/v1/ended", 400},
		{"GET", "/v1/ended?state=relaying", "", "/v1/ended", 400},
		{"GET", "/v1/ended?sort=age", "", "/v1/ended", 400},
		{"GET", "/v1/ended?min_age=x", "", "/v1/ended", 400},
		{"GET", "/v1/flows/10", "", "/v1/flows/{id}", 200},
		{"GET", "/v1/flows/601", "", "/v1/flows/{id}", 404},
		{"GET", "/v1/flows/x", "", "/v1/flows/{id}", 400},
		{"DELETE", "/v1/flows/1", "", "/v1/flows/{id}", 200},
		{"DELETE", "/v1/flows/1", "", "/v1/flows/{id}", 404},
		{"GET", "/v1/events", "", "/v1/events", 200},
		{"GET", "/v1/events?after=18446744073709551615", "", "/v1/events", 200},
		{"GET", "/v1/events?after=-1", "", "/v1/events", 400},
		{"GET", "/v1/log", "", "/v1/log", 200},
		{"PUT", "/v1/log", `{"level":"debug"}`, "/v1/log", 200},
		{"PUT", "/v1/log", `{"level":"loud"}`, "/v1/log", 400},
		{"GET", "/v1/drain", "", "/v1/drain", 200},
		{"POST", "/v1/drain", "", "/v1/drain", 200},
		{"GET", "/readyz", "", "/readyz", 503},
		{"GET", "/v1/drain", "", "/v1/drain", 200},
		{"GET", "/debug/pprof/heap", "", "/debug/pprof/{profile}", 200},
		{"GET", "/debug/pprof/none", "", "/debug/pprof/{profile}", 404},
	} {
		got := r.ask(c.method, c.path, c.body)
		name := c.method + " " + c.path + " " + c.body
		if got.status != c.status {
			t.Errorf("%s: %d, want %d: %s", name, got.status, c.status, got.body)
			continue
		}
		if c.status == 200 {
			covered[c.method+" "+c.route] = true
		}
		kind, _, _ := strings.Cut(got.header.Get("Content-Type"), ";")
		if c.status >= 400 {
			if err := d.check("/components/schemas/Problem", got.body); err != nil || kind != "application/problem+json" {
				t.Errorf("%s: %s %s: %v", name, kind, got.body, err)
			}
			continue
		}
		place := escape("paths", c.route, strings.ToLower(c.method), "responses", fmt.Sprint(c.status), "content", kind, "schema")
		text := got.body
		if kind != "application/json" {
			text = `""` // only that the file has this kind
		}
		if err := d.check(place, text); err != nil {
			t.Errorf("%s: %v\n%.500s", name, err, got.body)
		}
	}
	for _, route := range routes {
		if name := route.method + " " + route.path; !covered[name] && route.path != "/v1/stream" {
			t.Errorf("%s was not asked", name)
		}
	}
}

// TestOpenAPIStates: the states of a flow are those of the API, in its order.
func TestOpenAPIStates(t *testing.T) {
	schemas := describe(t).doc["components"].(map[string]any)["schemas"].(map[string]any)
	got := fmt.Sprint(schemas["FlowState"].(map[string]any)["enum"])
	if want := fmt.Sprint(api.FlowStates); got != want {
		t.Errorf("states %s, want %s", got, want)
	}
}
