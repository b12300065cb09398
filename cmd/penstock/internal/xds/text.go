package xds

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
)

// A Text is a configuration that was made of resources.
type Text struct {
	YAML     []byte
	Version  string   // as the control plane says; for messages
	Warnings []string // what was ignored, with resource and path

	places []place // of each line
}

// A place is where something comes from.
type place struct {
	resource string // such as Listener web; empty: none
	path     string
}

func (p place) String() string {
	if p.path == "" {
		return p.resource
	}
	return p.resource + ": " + p.path
}

// Explain returns an error of package config with resource and field instead of the line, as far as it is in
// a file that in reports to be this text.
func (t *Text) Explain(in func(file string) bool, err error) error {
	var errs config.Errors
	if !errors.As(err, &errs) {
		return err
	}
	texts := make([]string, len(errs))
	for i, e := range errs {
		texts[i] = e.Error()
		if in(e.File) && e.Line >= 1 && e.Line <= len(t.places) && t.places[e.Line-1].resource != "" {
			texts[i] = t.places[e.Line-1].String() + ": " + e.Message()
			if e.Allowed != "" {
				texts[i] += "; allowed: " + e.Allowed
			}
		}
	}
	return errors.New(strings.Join(texts, "\n"))
}

// A writer writes YAML and notes where each line comes from.
type writer struct {
	b      strings.Builder
	places []place
}

func (w *writer) line(depth int, text string, at place) {
	for range depth {
		w.b.WriteString("  ")
	}
	w.b.WriteString(text)
	w.b.WriteByte('\n')
	w.places = append(w.places, at)
}

// A section is a mapping of the text: keys with values in flow style, and further sections.
type section struct {
	keys []keyLine
	list bool // without keys: a list
}

type keyLine struct {
	key, value string
	inner      *section // instead of value
	path       string
}

// set sets a key, or replaces its value.
func (s *section) set(key, value, path string) {
	for i := range s.keys {
		if s.keys[i].key == key {
			s.keys[i] = keyLine{key, value, nil, path}
			return
		}
	}
	s.keys = append(s.keys, keyLine{key, value, nil, path})
}

// in returns the section under a key.
func (s *section) in(key string) *section {
	for i := range s.keys {
		if s.keys[i].key == key && s.keys[i].inner != nil {
			return s.keys[i].inner
		}
	}
	inner := &section{}
	s.keys = append(s.keys, keyLine{key: key, inner: inner})
	return inner
}

func (w *writer) section(depth int, s *section, resource string) {
	for _, k := range s.keys {
		if k.inner == nil {
			key := k.key + ": "
			if s.list {
				key = "- "
			}
			w.line(depth, key+k.value, place{resource, k.path})
			continue
		}
		if len(k.inner.keys) == 0 {
			continue
		}
		w.line(depth, k.key+":", place{resource, k.inner.keys[0].path})
		w.section(depth+1, k.inner, resource)
	}
}

// quote writes a text for YAML. It has no variables.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i, c := range s {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '$' && strings.HasPrefix(s[i:], "${"):
			b.WriteString("$$")
		case c < 0x20 || c == 0x7f || c >= 0x80 && c < 0xa0 || c == 0x2028 || c == 0x2029 || c == 0xfeff:
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func quoteList(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = quote(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// maxLife is the longest duration that a configuration takes.
const maxLife = 8760 * time.Hour

// duration writes a time; 0 is never.
func duration(d time.Duration) string {
	if d <= 0 {
		return "never"
	}
	return exact(d)
}

// exact writes a time, in whole milliseconds and at least one.
func exact(d time.Duration) string {
	d = min(max(d, time.Millisecond), maxLife).Round(time.Millisecond)
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// share writes a share of 0 to 1.
func share(f float64) string { return strconv.FormatFloat(f, 'g', 6, 64) }
