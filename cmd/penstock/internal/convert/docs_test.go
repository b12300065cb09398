package convert_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/convert"
	"github.com/penstock/penstock/cmd/penstock/internal/convert/haproxy"
	"github.com/penstock/penstock/cmd/penstock/internal/convert/nginx"
	"github.com/penstock/penstock/cmd/penstock/internal/testconvert"
)

// schema finds keys in the JSON Schema of configurations.
type schema struct{ root map[string]any }

// key returns what a schema says of a key, in whichever of its alternatives.
func (s schema) key(of map[string]any, key string) map[string]any {
	if ref, ok := of["$ref"].(string); ok {
		defs := s.root["$defs"].(map[string]any)
		return s.key(defs[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any), key)
	}
	if properties, ok := of["properties"].(map[string]any); ok {
		if found, ok := properties[key].(map[string]any); ok {
			return found
		}
	}
	for _, kind := range []string{"anyOf", "oneOf", "allOf"} {
		list, _ := of[kind].([]any)
		for _, one := range list {
			if found := s.key(one.(map[string]any), key); found != nil {
				return found
			}
		}
	}
	return nil
}

// path reports whether the schema has a path such as listener.limits.flows.
func (s schema) path(path string) bool {
	of := s.root
	for i, key := range strings.Split(path, ".") {
		if i == 0 {
			if def, ok := s.root["$defs"].(map[string]any)[key].(map[string]any); ok {
				of = def
				continue
			}
		}
		if of = s.key(of, key); of == nil {
			return false
		}
	}
	return true
}

var (
	keyPath = regexp.MustCompile("`([a-z0-9.-]+)(?:: ([a-z0-9-]+))?`")
	command = regexp.MustCompile("`penstock [a-z]+[^`]*`|SIG[A-Z0-9]+")
)

// Every key of ours in docs/migration.md is one of the schema, with the value that
// stands beside it.
func TestMigrationKeys(t *testing.T) {
	var s schema
	if err := json.Unmarshal(config.Schema(), &s.root); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "migration.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, keys, ok := strings.Cut(string(text), "\n## Keys\n")
	if !ok {
		t.Fatal("no section Keys")
	}
	found := 0
	for line := range strings.Lines(keys) {
		cells := strings.Split(line, " | ")
		if len(cells) != 4 || strings.HasPrefix(line, "| HAProxy") {
			continue
		}
		ours := command.ReplaceAllString(cells[3], "")
		matches := keyPath.FindAllStringSubmatch(ours, -1)
		if rest := strings.Trim(keyPath.ReplaceAllString(ours, ""), " ,|\n"); rest != "" || ours == cells[3] && len(matches) == 0 {
			t.Errorf("%s: %q is neither a key nor a command", line, rest)
		}
		for _, m := range matches {
			found++
			if !s.path(m[1]) {
				t.Errorf("there is no key %s", m[1])
			}
			if m[2] != "" {
				key := m[1][strings.LastIndexByte(m[1], '.')+1:]
				if !strings.Contains(string(config.Schema()), `"`+m[2]+`"`) {
					t.Errorf("%s has no value %s", key, m[2])
				}
			}
		}
	}
	if found < 60 {
		t.Errorf("only %d keys were found", found)
	}
}

// The list of directives that change nothing, in docs/migration.md, is the converter's.
func TestMigrationNothing(t *testing.T) {
	file := filepath.Join("..", "..", "..", "..", "docs", "migration.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const last = "The list is that of the converter.\n\n"
	before, _, ok := strings.Cut(string(text), last)
	if !ok {
		t.Fatalf("no %q", last)
	}
	want := before + last + "| product | why | directives and options |\n|---|---|---|\n"
	for _, r := range []*convert.Reader{haproxy.Reader, nginx.Reader} {
		for _, m := range r.Silent {
			var list []string
			for where, words := range m.Words {
				for word := range strings.FieldsSeq(words) {
					list = append(list, "`"+inWords(where, word)+"`")
				}
			}
			slices.Sort(list)
			want += "| " + string(r.Product) + " | " + m.Why + " | " + strings.Join(slices.Compact(list), ", ") + " |\n"
		}
	}
	if *testconvert.Update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Errorf("docs/migration.md lists other directives; run go test ./internal/convert -run TestMigrationNothing -update")
	}
}

// inWords names a directive, or an option of one.
func inWords(where, word string) string {
	switch where {
	case "option", "timeout", "stats", "listen":
		return where + " " + word
	case "bind", "server", "upstream", "events":
		return where + " ... " + word
	case "check", "connect", "expect":
		return "http-check " + where + " " + word
	case "tcp-check", "http-check":
		return where + " " + word
	case "tls":
		return "ssl-default-bind-options " + word
	}
	return word
}
