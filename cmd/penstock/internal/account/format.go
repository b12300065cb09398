package account

import (
	"fmt"
	"slices"
	"strings"
)

// formatter appends a flow's line to b, without a newline. It never appends a
// control character, whatever the flow's values are.
type formatter func(b []byte, e *Entry) []byte

// JSON is the format of one JSON object a line.
const JSON = "json"

// CheckFormat tells what is wrong with a format of the access log: [JSON], or a
// template.
//
// In a template {NAME} stands for a field, {{ and }} for a brace, and everything
// else for itself. A field without a value is "-". In values, what is not
// printable ASCII, quotes and backslashes are written as \xHH, so that no
// client can forge a line, or the end of a quoted field.
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

// keys are what stands before the value of each field in JSON.
var keys = func() []string {
	all := make([]string, len(fields))
	for i, f := range fields {
		all[i] = `"` + f.name + `":`
		if f.text {
			all[i] += `"`
		}
	}
	return all
}()

// appendJSON appends the fields that have a value. encoding/json costs several
// times as much and allocates; all that it could do better here is escapeJSON.
func appendJSON(b []byte, e *Entry) []byte {
	b = append(b, '{')
	first := len(b)
	for i := range fields {
		f := &fields[i]
		start := len(b)
		if start > first {
			b = append(b, ',')
		}
		b = append(b, keys[i]...)
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

// part is a piece of a template: a field, or a text.
type part struct {
	field *field // nil: text
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

// parseTemplate is the parser of templates. Its errors are one line.
func parseTemplate(s string) ([]part, error) {
	var parts []part
	var text strings.Builder
	known := false
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
				return nil, fmt.Errorf("column %d: there is no field %q; allowed: %s", i+1, name, FieldNames())
			}
			flush()
			parts = append(parts, part{field: &fields[n]})
			known = true
			i += 1 + len(name)
		case c == '}':
			return nil, fmt.Errorf("column %d: } has no {; allowed: {FIELD}, and }} for a brace", i+1)
		case c < ' ' && c != '\t' || c == 0x7f:
			return nil, fmt.Errorf("column %d: a control character; allowed: text in one line, tabs, and {FIELD}", i+1)
		default:
			text.WriteByte(c)
		}
	}
	flush()
	if !known {
		return nil, fmt.Errorf("%q has no field; allowed: %s, or a template with fields in braces, such as {client} {bytes_up}", s, JSON)
	}
	return parts, nil
}

// FieldNames are the names of all fields, with commas between.
func FieldNames() string {
	names := make([]string, len(fields))
	for i := range fields {
		names[i] = fields[i].name
	}
	return strings.Join(names, ", ")
}
