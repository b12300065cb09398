package config

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"github.com/penstock/penstock/internal/testnet"
)

// compiled is the schema as another program sees it.
func compiled(t testing.TB) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("penstock.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("penstock.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asJSON is what an editor gives to a schema: keys are texts whatever they look
// like. It is false for what is not a document.
func asJSON(text []byte) (any, bool) {
	var doc yaml.Node
	if err := yaml.Load(text, &doc, yaml.WithUniqueKeys(false)); err != nil || len(doc.Content) == 0 {
		return nil, false
	}
	return valueOf(doc.Content[0])
}

func valueOf(n *yaml.Node) (any, bool) {
	switch n.Kind {
	case yaml.AliasNode:
		return nil, false
	case yaml.SequenceNode:
		list := []any{}
		for _, c := range n.Content {
			v, ok := valueOf(c)
			if !ok {
				return nil, false
			}
			list = append(list, v)
		}
		return list, true
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i < len(n.Content); i += 2 {
			v, ok := valueOf(n.Content[i+1])
			if !ok {
				return nil, false
			}
			m[n.Content[i].Value] = v
		}
		return m, true
	}
	switch n.ShortTag() {
	case "!!int":
		i, err := strconv.ParseInt(n.Value, 0, 64)
		return json.Number(strconv.FormatInt(i, 10)), err == nil
	case "!!float":
		return json.Number(n.Value), true
	case "!!bool":
		return strings.EqualFold(n.Value, "true"), true
	case "!!null":
		return nil, true
	}
	return n.Value, true
}

// Files that are right have nothing that the schema refuses. Of those that are
// wrong it refuses all, but for those that say that no schema can.
func TestSchema(t *testing.T) {
	s := compiled(t)
	for _, path := range examples(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		v, ok := asJSON(text)
		if !ok { // with aliases, which an editor resolves
			l := &loader{r: &reader{places: map[any]*place{}}}
			v, ok = asJSON(l.parse(&source{name: path}, text).yaml(true))
		}
		if err := s.Validate(v); err != nil || !ok {
			t.Errorf("%s: %v, %v", path, ok, err)
		}
	}
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		v, ok := asJSON(text)
		if !ok {
			continue // no YAML, or with aliases
		}
		err = s.Validate(v)
		if cannot := bytes.HasPrefix(text, []byte("# schema: cannot\n")); cannot != (err == nil) {
			t.Errorf("%s: %v", path, err)
		}
		if err != nil {
			refused++
		}
	}
	if refused < 3 {
		t.Errorf("only %d files are refused", refused)
	}
}

// One value at a time: reader and schema agree on what is right and what is not.
func TestSchemaAgrees(t *testing.T) {
	testnet.OneGoroutine(t)
	s := compiled(t)
	values := []string{
		"0", "1", "-1", "5", "64", "100", "204", "70000", "5000000000", "0.5", "1.5", "-0.1", "true", "false", "~", "[]", "{}", "[1]", "{a: b}",
		`""`, "never", "none", "client", "5s", "1h30m", "1.5s", "5", "5 s", "-5s", "1d", "64KiB", "1MiB", "64KB", "10MiB/s", "10MB/s", "10/s", "5/h", "10/d",
		"10.0.0.0/8", "10.0.0.1", "[10.0.0.0/8, '::1']", "'::/0'", "nonsense", "info", "debug", "keep", "p2c", "v1", "v2", "ef", "cs3", "af44", "hex:00ff",
		"'0640'", "'640'", "'0888'", "'hex:'", "tcp://a:1", "'tcp://:1'", "udp://a:1", "unix:///a", "unix://a", "unix:@a", "'echo:'", "/a", "a b", "stdout", "GET",
		"a.example.org", "'*.example.org'", "200-399", "[200, 300-399]", "[{to: tcp://a:1}]", "[tcp://a:1]", "{size: 5}", "{tcp: {}}", "{tcp: {}, http: {}}",
		"{udp: {}}", "{udp: {send: x}}", "{version: 2, tlvs: {0xE0: x}}", "{version: 3}", "{live-flows: drain, after: 5s}", "{every: 5s}", "{connect: 5s, idle: never}", "{max: 1KiB}",
		"{from: 10.0.0.0/8}", "{from: []}", "[{srv: _a._tcp.b}]", "[{dns: a, port: 5}]", "[{dns: a, srv: b}]", "{share: 0.5}", "{failures: 0}", "{flows: 5}", "{nagle: true}",
	}
	const listener = "listeners: {web: {listen: tcp://:80, to: g%L}}\ngroups: {g: {members: [tcp://a:1]%G}}\n%F"
	wrap := func(where, line string) string {
		text := listener
		for _, mark := range []string{"%L", "%G", "%F"} {
			in := ""
			if mark == where {
				in = line
			}
			text = strings.Replace(text, mark, in, 1)
		}
		return text
	}
	// What these keys say is checked against other keys, or they stand there already.
	skip := map[string]bool{"listen": true, "inherit": true, "to": true, "members": true, "groups": true, "listeners": true, "routes": true, "hash": true, "datagrams": true, "include": true, "destination": true}
	agreed, right := 0, 0
	check := func(what, text string) {
		_, err := Parse("x", []byte(text))
		v, ok := asJSON([]byte(text))
		if !ok {
			t.Fatalf("%s is not YAML", text)
		}
		invalid := s.Validate(v)
		switch {
		case err == nil && invalid != nil:
			t.Errorf("%s: the reader takes it, the schema does not: %v", what, invalid)
		case err == nil:
			right++
			agreed++
		case invalid != nil:
			agreed++
		case !beyond(err):
			t.Errorf("%s: the schema takes it, the reader does not: %v", what, err)
		}
	}
	for _, value := range values {
		for _, k := range listenerKeys.keys {
			if !skip[k.name] {
				check(k.name+": "+value, wrap("%L", ", "+k.name+": "+value))
			}
		}
		for _, k := range groupKeys.keys {
			if !skip[k.name] {
				check(k.name+": "+value, wrap("%G", ", "+k.name+": "+value))
			}
		}
		for _, k := range fileKeys.keys {
			if !skip[k.name] {
				check(k.name+": "+value, wrap("%F", k.name+": "+value+"\n"))
			}
		}
	}
	t.Logf("%d agree, %d of them on what is right", agreed, right)
}

// beyond reports whether no pattern could find the errors.
func beyond(err error) bool {
	for _, e := range err.(Errors) {
		if !strings.Contains(e.Problem, "out of range") && !strings.Contains(e.Problem, "does not apply") && !strings.Contains(e.Problem, "permissions") &&
			!strings.Contains(e.Problem, "behind") && !strings.Contains(e.Problem, "bits") && !strings.Contains(e.Problem, "datagrams") && !strings.Contains(e.Problem, "inherit") {
			return false
		}
	}
	return true
}
