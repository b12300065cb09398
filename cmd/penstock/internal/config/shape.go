package config

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// shape describes as data what may be written in one place. Messages, the schema and the
// reference in docs/configuration.md derive from it.
type shape struct {
	name    string // kind of value, such as "duration"; of a mapping with keys: the section
	allowed string // of a scalar: what messages say is allowed
	schema  map[string]any

	keys     []*keyShape // of a mapping with fixed keys
	exactly  []string    // exactly one of these keys must be set
	names    *shape      // of a mapping by name: the values
	items    *shape      // of a list; a single scalar item may be written without the list
	pairs    *shape      // of the mapping of TLVs: its values
	either   []*shape
	nonEmpty bool     // items: at least one
	siblings []*shape // mappings that could be used instead of this one
}

// keyShape is one key of a mapping.
type keyShape struct {
	name     string
	doc      string
	def      string // the default as it would be written; empty if there is none
	required bool
	of       *shape
}

// typ is a shape and how it is read into a V. If reading reports an error, it leaves the V
// unchanged.
type typ[V any] struct {
	*shape
	read func(r *reader, n node, v *V)
	show func(v V) string // as it would be written, on one line
}

// shown returns t with another way to write values.
func (t typ[V]) shown(show func(V) string) typ[V] {
	t.show = show
	return t
}

// anyTyp is a typ without the type V that it is read into: v, to and from are a *V.
type anyTyp struct {
	*shape
	read func(r *reader, n node, v any)
	show func(v any) string
	set  func(to, from any)
	zero func() any
}

func anyOf[V any](t typ[V]) anyTyp {
	return anyTyp{t.shape,
		func(r *reader, n node, v any) { t.read(r, n, v.(*V)) },
		func(v any) string { return t.show(*v.(*V)) },
		func(to, from any) { *to.(*V) = *from.(*V) },
		func() any { return new(V) },
	}
}

// pointer returns the type of an optional value.
func pointer[V any](of typ[V]) typ[*V] {
	return typ[*V]{of.shape, func(r *reader, n node, p **V) {
		v := new(V)
		r.places[v] = n.at
		of.read(r, n, v)
		*p = v
	}, func(v *V) string {
		if v == nil {
			return "none"
		}
		return of.show(*v)
	}}
}

// nonEmptyList is a list of at least one item.
func nonEmptyList[V any](of typ[V]) typ[[]V] {
	t := list(of)
	t.nonEmpty = true
	return t
}

// list returns the type of a list. A single scalar may be written without the list.
func list[V any](of typ[V]) typ[[]V] {
	s := &shape{items: of.shape, allowed: of.allowed}
	return typ[[]V]{s, func(r *reader, n node, to *[]V) {
		if n.Kind == yaml.ScalarNode && isScalar(of.shape) {
			one := make([]V, 1)
			r.places[&one[0]] = n.at
			before := len(r.errs)
			of.read(r, n, &one[0])
			if len(r.errs) == before || of.schema == nil {
				*to = one
			}
			return
		}
		if n.Kind != yaml.SequenceNode {
			r.fail(n.at, fault{problem: "is " + kindOf(n.tree), allowed: allowedText(s)})
			return
		}
		// Items are read into their final memory: places identifies them by address.
		items := make([]V, len(n.Content))
		if s.nonEmpty && len(items) == 0 {
			r.fail(n.at, fault{problem: "the list is empty", allowed: allowedText(s) + "; or omit the key"})
			return
		}
		before := len(r.errs)
		for i, y := range n.Content {
			c := r.child(n, y, "", i)
			r.places[&items[i]] = c.at
			of.read(r, c, &items[i])
		}
		// A list of scalars with an error stays unset, so that the rest of it causes no
		// misleading errors.
		if len(r.errs) == before || of.schema == nil {
			*to = items
		}
	}, func(items []V) string {
		shown := make([]string, len(items))
		for i, v := range items {
			shown[i] = of.show(v)
		}
		return "[" + strings.Join(shown, ", ") + "]"
	}}
}

// byName returns the type of a mapping from names to values, in the file's order. named sets a
// value's name.
func byName[V any](of typ[V], named func(*V, string)) typ[[]*V] {
	s := &shape{names: of.shape}
	return typ[[]*V]{s, func(r *reader, n node, to *[]*V) {
		if n.Kind != yaml.MappingNode {
			r.fail(n.at, fault{problem: "is " + kindOf(n.tree), allowed: "a mapping from names to " + of.name + "s"})
			return
		}
		all := make([]*V, 0, len(n.Content)/2)
		r.mapping(n, func(at *place, text string, c node) {
			if problem := checkName(text); problem != "" {
				r.fail(at, fault{problem: problem, allowed: allowedName})
			}
			v := new(V)
			named(v, text)
			r.places[v] = at
			of.read(r, c, v)
			all = append(all, v)
		})
		*to = all
	}, nil}
}

// scalarOr returns a type that is read as scalar if the value is a scalar, and as other if not.
func scalarOr[V any](scalar, other typ[V]) typ[V] {
	s := &shape{either: []*shape{scalar.shape, other.shape}, allowed: scalar.allowed}
	return typ[V]{s, func(r *reader, n node, v *V) {
		if n.Kind != yaml.ScalarNode {
			other.read(r, n, v)
			return
		}
		before := len(r.errs)
		if scalar.read(r, n, v); len(r.errs) > before {
			r.errs[before].Allowed = allowedText(s)
		}
	}, other.show}
}

// isScalar reports whether the shape may be written as a scalar.
func isScalar(s *shape) bool {
	return s.schema != nil || len(s.either) > 0 && isScalar(s.either[0])
}

// allowedText returns what is allowed, as a phrase for messages.
func allowedText(s *shape) string {
	switch {
	case len(s.either) > 0:
		return allowedText(s.either[0]) + ", or " + allowedText(s.either[1])
	case s.items != nil:
		return "a list of: " + allowedText(s.items)
	case s.names != nil:
		return "a mapping from names to " + s.names.name + "s"
	case s.pairs != nil:
		return s.allowed
	case s.keys != nil:
		names := make([]string, len(s.keys))
		for i, k := range s.keys {
			names[i] = k.name
		}
		slices.Sort(names)
		return "a mapping with " + strings.Join(names, ", ")
	}
	return s.allowed
}
