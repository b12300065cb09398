package config

import (
	"slices"
	"strings"
	"sync"

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

// key is one key of a mapping that is read into a T.
type key[T any] struct {
	*keyShape
	read func(r *reader, n node, t *T)
	// fill sets a value that the file does not set: to from's value, or to the default if
	// from is nil.
	fill func(r *reader, t, from *T)
	// show writes the value on one line. It is nil for routes and members, which are compared
	// in another way.
	show func(t *T) string
	// compare appends the differences of a section, key by key. If it is nil, values are
	// compared as show writes them.
	compare func(path string, a, b *T, to *[]Change)
}

// comparedByPart returns a key whose value is not compared as a whole.
func comparedByPart[T any](k key[T]) key[T] {
	k.show, k.compare = nil, nil
	return k
}

// comparedByKey returns a key whose value is an optional mapping: two mappings are compared key by key.
func comparedByKey[T, V any](k key[T], of mapping[V], get func(*T) *V) key[T] {
	k.compare = func(path string, a, b *T, to *[]Change) {
		if x, y := get(a), get(b); x != nil && y != nil {
			changes(of, path, x, y, to)
		} else if was, is := k.show(a), k.show(b); was != is {
			*to = append(*to, Change{k.name, was, is})
		}
	}
	return k
}

// mapping is a mapping with fixed keys that is read into a T.
type mapping[T any] struct {
	typ[T]
	keys []key[T]
}

// field returns a key that is read into the field that get points to.
func field[T, V any](name string, of typ[V], def, doc string, get func(*T) *V) key[T] {
	byDefault := sync.OnceValue(func() V { return defaultOf(of, def) })
	return key[T]{
		&keyShape{name: name, doc: doc, def: def, of: of.shape},
		func(r *reader, n node, t *T) {
			v := get(t)
			if !r.isSet(v) { // the field may be t itself, whose position is that of the outer key
				r.places[v] = n.at
			}
			of.read(r, n, v)
		},
		func(r *reader, t, from *T) {
			switch v := get(t); {
			case r.isSet(v):
			case from != nil:
				*v = *get(from)
			default:
				*v = byDefault()
			}
		},
		func(t *T) string { return of.show(*get(t)) },
		nil,
	}
}

// section returns a key whose value is a mapping. Defaults are filled in key by key.
func section[T, V any](name string, of mapping[V], doc string, get func(*T) *V) key[T] {
	k := field(name, of.typ, "", doc, get)
	k.fill = func(r *reader, t, from *T) {
		if from == nil {
			of.fill(r, get(t), nil)
		} else {
			of.fill(r, get(t), get(from))
		}
	}
	k.compare = func(path string, a, b *T, to *[]Change) { changes(of, path, get(a), get(b), to) }
	return k
}

// compositeField returns a key that is read into several fields of the T, of which mark is one.
// It has no default.
func compositeField[T, V any](name string, of typ[T], doc string, mark func(*T) *V) key[T] {
	return key[T]{
		&keyShape{name: name, doc: doc, of: of.shape},
		func(r *reader, n node, t *T) {
			r.places[mark(t)] = n.at
			of.read(r, n, t)
		},
		func(*reader, *T, *T) {},
		func(t *T) string { return of.show(*t) },
		nil,
	}
}

// required returns a key that must be set.
func required[T any](k key[T]) key[T] {
	k.required = true
	return k
}

// embed returns the keys of a part of a T as keys of the T.
func embed[T, V any](keys []key[V], get func(*T) *V) []key[T] {
	lifted := make([]key[T], len(keys))
	for i, k := range keys {
		lifted[i] = key[T]{k.keyShape,
			func(r *reader, n node, t *T) { k.read(r, n, get(t)) },
			func(r *reader, t, from *T) {
				if from == nil {
					k.fill(r, get(t), nil)
				} else {
					k.fill(r, get(t), get(from))
				}
			},
			func(t *T) string { return k.show(get(t)) }, nil}
	}
	return lifted
}

// defaultOf parses a default as if it were in the file.
func defaultOf[V any](of typ[V], text string) (v V) {
	if text == "" {
		return v
	}
	r := &reader{places: map[any]*place{}}
	doc := (&loader{r: r}).document(&source{name: "default"}, []byte(text))
	if doc == nil {
		panic("config: default " + text + ": " + lines(r.errs))
	}
	of.read(r, node{doc, &place{from: doc.from, index: -1}}, &v)
	if len(r.errs) > 0 {
		panic("config: default " + text + ": " + lines(r.errs))
	}
	return v
}

// keysOf returns the mapping with the keys.
func keysOf[T any](name string, keys ...key[T]) mapping[T] {
	s := &shape{name: name}
	byName := make(map[string]key[T], len(keys))
	for _, k := range keys {
		s.keys = append(s.keys, k.keyShape)
		byName[k.name] = k
	}
	names := make([]string, len(s.keys))
	for i, k := range s.keys {
		names[i] = k.name
	}
	slices.Sort(names)
	m := mapping[T]{keys: keys}
	m.shape = s
	m.read = func(r *reader, n node, t *T) {
		if n.Kind != yaml.MappingNode {
			r.fail(n.at, fault{problem: "is " + kindOf(n.tree), allowed: "a mapping with " + strings.Join(names, ", ")})
			return
		}
		there := map[string]*place{}
		r.mapping(n, func(at *place, name string, v node) {
			there[name] = at
			if k, ok := byName[name]; ok {
				k.read(r, v, t)
			} else if len(r.errs) < maxErrors {
				f := fault{problem: "unknown key", near: suggest(name, names), allowed: strings.Join(names, ", ")}
				if f.near != "" {
					f.allowed = "" // the suggestion is more helpful than a list of twenty
				}
				if of := s.elsewhere(name); of != "" {
					f.problem = "this key belongs in " + of
				}
				r.fail(at, f)
			}
		})
		for _, k := range s.keys {
			if k.required && there[k.name] == nil {
				r.fail(n.at, fault{problem: "the key " + k.name + " is missing", allowed: k.of.allowedText()})
			}
		}
		s.checkExactly(r, n, there)
	}
	m.show = func(t T) string {
		var parts []string
		plain := new(T)
		m.fill(&reader{}, plain, nil)
		for _, k := range keys {
			if k.show == nil {
				continue
			}
			if text := k.show(&t); text != k.show(plain) {
				parts = append(parts, k.name+": "+text)
			}
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return m
}

// elsewhere names the siblings of the mapping that have the key.
func (s *shape) elsewhere(name string) string {
	var of []string
	for _, o := range s.siblings {
		if slices.ContainsFunc(o.keys, func(k *keyShape) bool { return k.name == name }) {
			of = append(of, o.name)
		}
	}
	return strings.Join(of, " and ")
}

func (s *shape) checkExactly(r *reader, n node, there map[string]*place) {
	first := ""
	for _, name := range s.exactly {
		at := there[name]
		switch {
		case at == nil:
		case first != "":
			r.fail(at, fault{problem: "cannot be combined with " + first, allowed: "one of " + strings.Join(s.exactly, ", ")})
		default:
			first = name
		}
	}
	if first == "" && len(s.exactly) > 0 {
		r.fail(n.at, fault{problem: "a key is missing", allowed: "one of " + strings.Join(s.exactly, ", ")})
	}
}

// oneOf requires exactly one of the keys to be set.
func (m mapping[T]) oneOf(names ...string) mapping[T] {
	m.exactly = names
	return m
}

// fill sets every key that the file does not set: to from's value, or to its default if from is
// nil.
func (m mapping[T]) fill(r *reader, t, from *T) {
	for _, k := range m.keys {
		k.fill(r, t, from)
	}
}

// filled returns the mapping as a type that fills in its own defaults, for values that do not
// inherit.
func (m mapping[T]) filled() typ[T] {
	return typ[T]{m.shape, func(r *reader, n node, t *T) {
		m.read(r, n, t)
		m.fill(r, t, nil)
	}, m.show}
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
		if n.Kind == yaml.ScalarNode && of.isScalar() {
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
			r.fail(n.at, fault{problem: "is " + kindOf(n.tree), allowed: s.allowedText()})
			return
		}
		// Items are read into their final memory: places identifies them by address.
		items := make([]V, len(n.Content))
		if s.nonEmpty && len(items) == 0 {
			r.fail(n.at, fault{problem: "the list is empty", allowed: s.allowedText() + "; or omit the key"})
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
			r.errs[before].Allowed = s.allowedText()
		}
	}, other.show}
}

// isScalar reports whether the shape may be written as a scalar.
func (s *shape) isScalar() bool {
	return s.schema != nil || len(s.either) > 0 && s.either[0].isScalar()
}

// allowedText returns what is allowed, as a phrase for messages.
func (s *shape) allowedText() string {
	switch {
	case len(s.either) > 0:
		return s.either[0].allowedText() + ", or " + s.either[1].allowedText()
	case s.items != nil:
		return "a list of: " + s.items.allowedText()
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
