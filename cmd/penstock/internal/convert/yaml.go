package convert

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Fields is a mapping of the YAML file, in the order in which it is written.
type Fields []Field

type Field struct {
	Key      string
	Value    any // raw, string, fields, []string or []fields
	Comments []string
}

// Raw is a value that is written as it is: a number, a word, a duration.
type Raw string

// Set sets a key, or replaces its value and adds comments that are not there.
func (f *Fields) Set(key string, value any, comments ...string) {
	for i := range *f {
		if (*f)[i].Key == key {
			(*f)[i].Value = value
			for _, c := range comments {
				if !slices.Contains((*f)[i].Comments, c) {
					(*f)[i].Comments = append((*f)[i].Comments, c)
				}
			}
			return
		}
	}
	*f = append(*f, Field{key, value, comments})
}

// Sub sets a key of the mapping under key, which it makes if need be.
func (f *Fields) Sub(key, name string, value any, comments ...string) {
	inner, _ := f.Get(key).(Fields)
	inner = append(Fields(nil), inner...)
	inner.Set(name, value, comments...)
	f.Set(key, inner)
}

func (f Fields) Get(key string) any {
	for _, g := range f {
		if g.Key == key {
			return g.Value
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
		w.line(depth, "# "+OneLine(c))
	}
}

func (w *writer) mapping(depth int, f Fields) {
	for _, g := range f {
		w.comments(depth, g.Comments)
		switch v := g.Value.(type) {
		case Fields:
			if flat(v) {
				w.line(depth, g.Key+": "+Inline(v))
				continue
			}
			w.line(depth, g.Key+":")
			w.mapping(depth+1, v)
		case []Fields:
			w.line(depth, g.Key+":")
			for _, item := range v {
				if flat(item) {
					w.line(depth+1, "- "+Inline(item))
					continue
				}
				for i, g := range item {
					w.comments(depth+1, g.Comments)
					lead := "  "
					if i == 0 {
						lead = "- "
					}
					w.line(depth+1, lead+g.Key+": "+Inline(g.Value))
				}
			}
		default:
			w.line(depth, g.Key+": "+Inline(v))
		}
	}
}

// flat reports whether f can be written in one short line.
func flat(f Fields) bool {
	for _, g := range f {
		inner, ok := g.Value.(Fields)
		if len(g.Comments) > 0 || ok && !flat(inner) {
			return false
		}
		if _, ok := g.Value.([]Fields); ok {
			return false
		}
	}
	return len(Inline(f)) < 100
}

func Inline(v any) string {
	switch v := v.(type) {
	case Raw:
		return string(v)
	case string:
		return Quote(v)
	case []string:
		parts := make([]string, len(v))
		for i, s := range v {
			parts[i] = Quote(s)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case Fields:
		parts := make([]string, len(v))
		for i, g := range v {
			parts[i] = g.Key + ": " + Inline(g.Value)
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return ""
}

// plainRE matches texts that mean themselves in YAML without quotes, wherever
// they are.
var plainRE = LazyRE(`^[A-Za-z_/][A-Za-z0-9_./@-]*(:[A-Za-z0-9_./@-]+)*:?$`)

// Quote writes a text, in quotes if it needs them. It has no variables.
func Quote(s string) string {
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

// OneLine replaces control characters, so that a comment or message stays in its line.
func OneLine(s string) string {
	return strings.ToValidUTF8(strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c == 0x85 || c == 0x2028 || c == 0x2029 || c == 0xfeff {
			return ' '
		}
		return c
	}, s), "?")
}
