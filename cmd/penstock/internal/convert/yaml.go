package convert

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// fields is a mapping of the YAML file, in the order in which it is written.
type fields []field

type field struct {
	key      string
	value    any // raw, string, fields, []string or []fields
	comments []string
}

// raw is a value that is written as it is: a number, a word, a duration.
type raw string

// set sets a key, or replaces its value and adds comments that are not there.
func (f *fields) set(key string, value any, comments ...string) {
	for i := range *f {
		if (*f)[i].key == key {
			(*f)[i].value = value
			for _, c := range comments {
				if !slices.Contains((*f)[i].comments, c) {
					(*f)[i].comments = append((*f)[i].comments, c)
				}
			}
			return
		}
	}
	*f = append(*f, field{key, value, comments})
}

// sub sets a key of the mapping under key, which it makes if need be.
func (f *fields) sub(key, name string, value any, comments ...string) {
	inner, _ := f.get(key).(fields)
	inner = append(fields(nil), inner...)
	inner.set(name, value, comments...)
	f.set(key, inner)
}

func (f fields) get(key string) any {
	for _, g := range f {
		if g.key == key {
			return g.value
		}
	}
	return nil
}

// writer writes YAML.
type writer struct{ b strings.Builder }

func (w *writer) line(depth int, text string) {
	w.b.WriteString(strings.Repeat("  ", depth))
	w.b.WriteString(text)
	w.b.WriteByte('\n')
}

func (w *writer) comments(depth int, comments []string) {
	for _, c := range comments {
		w.line(depth, "# "+oneLine(c))
	}
}

func (w *writer) mapping(depth int, f fields) {
	for _, g := range f {
		w.comments(depth, g.comments)
		switch v := g.value.(type) {
		case fields:
			if flat(v) {
				w.line(depth, g.key+": "+flow(v))
				continue
			}
			w.line(depth, g.key+":")
			w.mapping(depth+1, v)
		case []fields:
			w.line(depth, g.key+":")
			for _, item := range v {
				if flat(item) {
					w.line(depth+1, "- "+flow(item))
					continue
				}
				for i, g := range item {
					w.comments(depth+1, g.comments)
					lead := "  "
					if i == 0 {
						lead = "- "
					}
					w.line(depth+1, lead+g.key+": "+flow(g.value))
				}
			}
		default:
			w.line(depth, g.key+": "+flow(v))
		}
	}
}

// flat reports whether f can be written in one short line.
func flat(f fields) bool {
	for _, g := range f {
		inner, ok := g.value.(fields)
		if len(g.comments) > 0 || ok && !flat(inner) {
			return false
		}
		if _, ok := g.value.([]fields); ok {
			return false
		}
	}
	return len(flow(f)) < 100
}

func flow(v any) string {
	switch v := v.(type) {
	case raw:
		return string(v)
	case string:
		return quote(v)
	case []string:
		parts := make([]string, len(v))
		for i, s := range v {
			parts[i] = quote(s)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case fields:
		parts := make([]string, len(v))
		for i, g := range v {
			parts[i] = g.key + ": " + flow(g.value)
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return ""
}

// plainRE matches texts that mean themselves in YAML without quotes, wherever
// they are.
var plainRE = lazyRE(`^[A-Za-z_/][A-Za-z0-9_./@-]*(:[A-Za-z0-9_./@-]+)*:?$`)

// quote writes a text, in quotes if it needs them. It has no variables.
func quote(s string) string {
	s = strings.ReplaceAll(s, "${", "$${")
	switch strings.ToLower(s) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
		return strconv.Quote(s)
	}
	if p, err := netip.ParsePrefix(s); err == nil && p.Addr().Is4() {
		return s
	}
	if a, err := netip.ParseAddr(s); err == nil && a.Is4() {
		return s
	}
	if plainRE().MatchString(s) && !strings.HasSuffix(s, ":") {
		return s
	}
	return strconv.Quote(s)
}

// oneLine replaces control characters, so that a comment or message stays in its line.
func oneLine(s string) string {
	return strings.ToValidUTF8(strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c == 0x85 || c == 0x2028 || c == 0x2029 || c == 0xfeff {
			return ' '
		}
		return c
	}, s), "?")
}
