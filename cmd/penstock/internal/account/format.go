package account

import (
	"fmt"
	"slices"
	"strings"
)

// formatter appends the line of a flow to b, without a newline. It never appends a
// control character, whatever the values of the flow are.
type formatter func(b []byte, e *Entry) []byte

// JSON is the format with one JSON object per line.
const JSON = "json"

// CheckFormat returns an error if format is neither [JSON] nor a valid template.
//
// In a template {NAME} is replaced by a field, {{ and }} by a brace; other text is
// copied. A field without a value becomes "-". Quotes, backslashes and bytes that are
// not printable ASCII are written as \xHH in values, so that no client can forge a
// line or the end of a quoted field.
func CheckFormat(format string) error {
	_, err := newFormatter(format)
	return err
}

func newFormatter(format string) (formatter, error) {
	if format == JSON {
		return appendJSON, nil
	}
	parts, err := parseTemplate(format)
	if err != nil {
		return nil, err
	}
	return func(b []byte, e *Entry) []byte { return appendTemplate(b, parts, e) }, nil
}

// hasField reports whether the lines of a valid format may have a field.
func hasField(format, name string) bool {
	if format == JSON {
		return true
	}
	parts, _ := parseTemplate(format)
	return slices.ContainsFunc(parts, func(p part) bool { return p.field != nil && p.field.name == name })
}

// jsonKeys holds the text before the value of each field in JSON.
var jsonKeys = func() []string {
	all := make([]string, len(fields))
	for i, f := range fields {
		all[i] = `"` + f.name + `":`
		if f.text {
			all[i] += `"`
		}
	}
	return all
}()

// appendJSON appends the fields that have a value. It does not use encoding/json,
// which takes several times as long and allocates.
func appendJSON(b []byte, e *Entry) []byte {
	b = append(b, '{')
	first := len(b)
	for i := range fields {
		f := &fields[i]
		start := len(b)
		if start > first {
			b = append(b, ',')
		}
		b = append(b, jsonKeys[i]...)
		value := len(b)
		b = f.put(b, e)
		switch {
		case len(b) == value:
			b = b[:start]
		case f.text:
			b = append(escapeJSON(b, value), '"')
		}
	}
	return append(b, '}')
}

// part is a piece of a template: a field or text.
type part struct {
	field *field // nil for text
	text  string
}

func appendTemplate(b []byte, parts []part, e *Entry) []byte {
	for i := range parts {
		p := &parts[i]
		if p.field == nil {
			b = append(b, p.text...)
			continue
		}
		value := len(b)
		if b = p.field.put(b, e); len(b) == value {
			b = append(b, '-')
		} else {
			b = escapeText(b, value)
		}
	}
	return b
}

// parseTemplate parses a template. Its errors are one line.
func parseTemplate(s string) ([]part, error) {
	var parts []part
	var text strings.Builder
	hasField := false
	flush := func() {
		if text.Len() > 0 {
			parts = append(parts, part{text: text.String()})
			text.Reset()
		}
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case (c == '{' || c == '}') && i+1 < len(s) && s[i+1] == c:
			text.WriteByte(c)
			i++
		case c == '{':
			name, _, ok := strings.Cut(s[i+1:], "}")
			if !ok {
				return nil, fmt.Errorf("column %d: { has no }; allowed: {FIELD}, and {{ for a brace", i+1)
			}
			n := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
			if n < 0 {
				return nil, fmt.Errorf("column %d: unknown field %q; allowed: %s", i+1, name, FieldNames())
			}
			flush()
			parts = append(parts, part{field: &fields[n]})
			hasField = true
			i += 1 + len(name)
		case c == '}':
			return nil, fmt.Errorf("column %d: } has no {; allowed: {FIELD}, and }} for a brace", i+1)
		case c < ' ' && c != '\t' || c == 0x7f:
			return nil, fmt.Errorf("column %d: invalid control character; allowed: one line of text, tabs, and {FIELD}", i+1)
		default:
			text.WriteByte(c)
		}
	}
	flush()
	if !hasField {
		return nil, fmt.Errorf("%q has no field; allowed: %s, or a template with fields in braces, such as {client} {bytes_up}", s, JSON)
	}
	return parts, nil
}

// FieldNames returns the names of all fields, separated by commas.
func FieldNames() string {
	names := make([]string, len(fields))
	for i := range fields {
		names[i] = fields[i].name
	}
	return strings.Join(names, ", ")
}
