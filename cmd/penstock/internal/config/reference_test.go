package config

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestReference: docs/configuration.md has the tables of keys between two marks,
// as they are made of the table. -update writes them.
func TestReference(t *testing.T) {
	const (
		path  = "../../../../docs/configuration.md"
		begin = "<!-- keys: made by go test ./internal/config -update -->\n"
		end   = "<!-- end of keys -->\n"
	)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no marks", path)
	}
	want := []byte(before + begin + "\n" + tables() + end + after)
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	} else if !bytes.Equal(text, want) {
		t.Errorf("%s is not what the table says; go test ./internal/config -update writes it", path)
	}
}

// tables has one for each mapping, in the order in which they are met.
func tables() string {
	var b strings.Builder
	eachSection(func(s *shape) {
		fmt.Fprintf(&b, "### %s\n\n", s.name)
		if len(s.exactly) > 0 {
			fmt.Fprintf(&b, "Exactly one of: %s.\n\n", "`"+strings.Join(s.exactly, "`, `")+"`")
		}
		b.WriteString("| key | value | default | |\n|---|---|---|---|\n")
		for _, k := range s.keys {
			def := ""
			switch {
			case k.required:
				def = "required"
			case k.def != "":
				def = "`" + k.def + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.name, strings.ReplaceAll(cell(k.of), "|", "\\|"), def, k.doc)
		}
		b.WriteString("\n")
	})
	return b.String()
}

// short is what the reference calls kinds of value that its head explains.
var short = map[string]string{"duration": "duration", "size": "size", "rate": "rate", "bandwidth": "bandwidth", "prefix": "range of addresses",
	"URL to listen on": "URL", "URL to connect to": "URL", "mode": "permissions", "octets": "octets", "name": "name", "group": "name or URL",
	"boolean": "`true`, `false`"}

// cell says what a key takes, with links to sections.
func cell(s *shape) string {
	switch {
	case len(s.either) > 0:
		return cell(s.either[0]) + "; or " + cell(s.either[1])
	case s.items != nil && isScalar(s.items) && s.items.either == nil:
		return "one or a list: " + cell(s.items)
	case s.items != nil:
		return "a list: " + cell(s.items)
	case s.names != nil:
		return "names with " + cell(s.names)
	case s.keys != nil:
		return fmt.Sprintf("[%s](#%s)", s.name, strings.ReplaceAll(s.name, ".", ""))
	}
	if text, ok := short[s.name]; ok {
		// What follows the examples is what differs from key to key.
		_, rest, _ := strings.Cut(s.allowed, "or 1h")
		if s.name != "duration" {
			rest = ""
		}
		return text + rest
	}
	if s.name == "number" {
		if strings.HasSuffix(s.allowed, fmt.Sprint(" to ", maxCount)) {
			return strings.TrimSuffix(s.allowed, fmt.Sprint(" to ", maxCount)) + " on"
		}
		return s.allowed
	}
	if _, ok := s.schema["enum"]; ok {
		return "`" + strings.ReplaceAll(s.allowed, ", ", "`, `") + "`"
	}
	return s.allowed
}
