package config

import (
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v4"
)

// key is one key of a mapping that is read into a T.
type key[T any] struct{ *anyKey }

// anyKey is a key without the type that its mapping is read into: t, from, a and b are a *T. What it does is compiled once in this
// way, and not for each pair of types, of which there are some hundreds.
type anyKey struct {
	*keyShape
	read func(r *reader, n node, t any)
	// fill sets a value that the file does not set: to from's value, or to the default if
	// from is nil.
	fill func(r *reader, t, from any)
	// show writes the value on one line. It is nil for routes and members, which are compared
	// in another way.
	show func(t any) string
	// compare appends the differences of a section, key by key. If it is nil, values are
	// compared as show writes them.
	compare func(path string, a, b any, to *[]Change)
}

// comparedByPart returns a key whose value is not compared as a whole.
func comparedByPart[T any](k key[T]) key[T] {
	k.show, k.compare = nil, nil
	return k
}

// comparedByKey returns a key whose value is an optional mapping: two mappings are compared key by key.
func comparedByKey[T, V any](k key[T], of mapping[V], get func(*T) *V) key[T] {
	k.compare = func(path string, a, b any, to *[]Change) {
		if x, y := get(a.(*T)), get(b.(*T)); x != nil && y != nil {
			of.changes(path, x, y, to)
		} else if was, is := k.show(a), k.show(b); was != is {
			*to = append(*to, Change{k.name, was, is})
		}
	}
	return k
}

// field returns a key that is read into the field that get points to.
func field[T, V any](name string, of typ[V], def, doc string, get func(*T) *V) key[T] {
	return key[T]{anyField(name, anyOf(of), def, doc, func(t any) any { return get(t.(*T)) })}
}

func anyField(name string, of anyTyp, def, doc string, get func(any) any) *anyKey {
	byDefault := sync.OnceValue(func() any { return defaultOf(of, def) })
	return &anyKey{
		&keyShape{name: name, doc: doc, def: def, of: of.shape},
		func(r *reader, n node, t any) {
			v := get(t)
			if !r.isSet(v) { // the field may be t itself, whose position is that of the outer key
				r.places[v] = n.at
			}
			of.read(r, n, v)
		},
		func(r *reader, t, from any) {
			switch v := get(t); {
			case r.isSet(v):
			case from != nil:
				of.set(v, get(from))
			default:
				of.set(v, byDefault())
			}
		},
		func(t any) string { return of.show(get(t)) },
		nil,
	}
}

// section returns a key whose value is a mapping. Defaults are filled in key by key.
func section[T, V any](name string, of mapping[V], doc string, get func(*T) *V) key[T] {
	return key[T]{anySection(name, anyOf(of.typ), of.all, doc, func(t any) any { return get(t.(*T)) })}
}

func anySection(name string, of anyTyp, keys *anyMapping, doc string, get func(any) any) *anyKey {
	k := anyField(name, of, "", doc, get)
	k.fill = func(r *reader, t, from any) {
		if from != nil {
			from = get(from)
		}
		keys.fill(r, get(t), from)
	}
	k.compare = func(path string, a, b any, to *[]Change) { keys.changes(path, get(a), get(b), to) }
	return k
}

// compositeField returns a key that is read into several fields of the T, of which mark is one.
// It has no default.
func compositeField[T, V any](name string, of typ[T], doc string, mark func(*T) *V) key[T] {
	return key[T]{anyCompositeField(name, anyOf(of), doc, func(t any) any { return mark(t.(*T)) })}
}

func anyCompositeField(name string, of anyTyp, doc string, mark func(any) any) *anyKey {
	return &anyKey{
		&keyShape{name: name, doc: doc, of: of.shape},
		func(r *reader, n node, t any) {
			r.places[mark(t)] = n.at
			of.read(r, n, t)
		},
		func(*reader, any, any) {},
		of.show,
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
		lifted[i] = key[T]{anyEmbedded(k.anyKey, func(t any) any { return get(t.(*T)) })}
	}
	return lifted
}

func anyEmbedded(k *anyKey, get func(any) any) *anyKey {
	return &anyKey{k.keyShape,
		func(r *reader, n node, t any) { k.read(r, n, get(t)) },
		func(r *reader, t, from any) {
			if from != nil {
				from = get(from)
			}
			k.fill(r, get(t), from)
		},
		func(t any) string { return k.show(get(t)) }, nil}
}

// defaultOf parses a default as if it were in the file.
func defaultOf(of anyTyp, text string) any {
	v := of.zero()
	if text == "" {
		return v
	}
	r := &reader{places: map[any]*place{}}
	doc := (&loader{r: r}).document(&source{name: "default"}, []byte(text))
	if doc == nil {
		panic("config: default " + text + ": " + lines(r.errs))
	}
	of.read(r, node{doc, &place{from: doc.from, index: -1}}, v)
	if len(r.errs) > 0 {
		panic("config: default " + text + ": " + lines(r.errs))
	}
	return v
}

// mapping is a mapping with fixed keys that is read into a T.
type mapping[T any] struct {
	typ[T]
	keys []key[T]
	all  *anyMapping
}

// anyMapping is a mapping without the type that it is read into: t, from, a and b are a *T.
type anyMapping struct {
	*shape
	names  []string // sorted
	keys   []*anyKey
	byName map[string]*anyKey
	zero   func() any
}

// keysOf returns the mapping with the keys.
func keysOf[T any](name string, keys ...key[T]) mapping[T] {
	m := &anyMapping{shape: &shape{name: name}, byName: make(map[string]*anyKey, len(keys)), zero: func() any { return new(T) }}
	for _, k := range keys {
		m.add(k.anyKey)
	}
	return mapping[T]{typ[T]{m.shape, func(r *reader, n node, t *T) { m.read(r, n, t) }, func(t T) string { return m.show(&t) }}, keys, m}
}

func (m *anyMapping) add(k *anyKey) {
	m.keys = append(m.keys, k)
	m.shape.keys = append(m.shape.keys, k.keyShape)
	m.byName[k.name] = k
	at, _ := slices.BinarySearch(m.names, k.name)
	m.names = slices.Insert(m.names, at, k.name)
}

func (m *anyMapping) read(r *reader, n node, t any) {
	if n.Kind != yaml.MappingNode {
		r.fail(n.at, fault{problem: "is " + kindOf(n.tree), allowed: "a mapping with " + strings.Join(m.names, ", ")})
		return
	}
	there := map[string]*place{}
	r.mapping(n, func(at *place, name string, v node) {
		there[name] = at
		if k, ok := m.byName[name]; ok {
			k.read(r, v, t)
		} else if len(r.errs) < maxErrors {
			f := fault{problem: "unknown key", near: suggest(name, m.names), allowed: strings.Join(m.names, ", ")}
			if f.near != "" {
				f.allowed = "" // the suggestion is more helpful than a list of twenty
			}
			if of := m.elsewhere(name); of != "" {
				f.problem = "this key belongs in " + of
			}
			r.fail(at, f)
		}
	})
	for _, k := range m.keys {
		if k.required && there[k.name] == nil {
			r.fail(n.at, fault{problem: "the key " + k.name + " is missing", allowed: allowedText(k.of)})
		}
	}
	m.checkExactly(r, n, there)
}

func (m *anyMapping) show(t any) string {
	var parts []string
	plain := m.zero()
	m.fill(&reader{}, plain, nil)
	for _, k := range m.keys {
		if k.show == nil {
			continue
		}
		if text := k.show(t); text != k.show(plain) {
			parts = append(parts, k.name+": "+text)
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// fill sets every key that the file does not set: to from's value, or to its default if from is
// nil.
func (m *anyMapping) fill(r *reader, t, from any) {
	for _, k := range m.keys {
		k.fill(r, t, from)
	}
}

// changes appends the keys whose values differ when they are written.
func (m *anyMapping) changes(prefix string, a, b any, to *[]Change) {
	for _, k := range m.keys {
		switch {
		case k.compare != nil:
			k.compare(prefix+k.name+".", a, b, to)
		case k.show != nil:
			if was, is := k.show(a), k.show(b); was != is {
				*to = append(*to, Change{prefix + k.name, was, is})
			}
		}
	}
}

// elsewhere names the siblings of the mapping that have the key.
func (m *anyMapping) elsewhere(name string) string {
	var of []string
	for _, o := range m.siblings {
		if slices.ContainsFunc(o.keys, func(k *keyShape) bool { return k.name == name }) {
			of = append(of, o.name)
		}
	}
	return strings.Join(of, " and ")
}

func (m *anyMapping) checkExactly(r *reader, n node, there map[string]*place) {
	first := ""
	for _, name := range m.exactly {
		at := there[name]
		switch {
		case at == nil:
		case first != "":
			r.fail(at, fault{problem: "cannot be combined with " + first, allowed: "one of " + strings.Join(m.exactly, ", ")})
		default:
			first = name
		}
	}
	if first == "" && len(m.exactly) > 0 {
		r.fail(n.at, fault{problem: "a key is missing", allowed: "one of " + strings.Join(m.exactly, ", ")})
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
	if from == nil {
		m.all.fill(r, t, nil)
	} else {
		m.all.fill(r, t, from)
	}
}

// changes appends the keys whose values differ when they are written.
func (m mapping[T]) changes(prefix string, a, b *T, to *[]Change) { m.all.changes(prefix, a, b, to) }

// filled returns the mapping as a type that fills in its own defaults, for values that do not
// inherit.
func (m mapping[T]) filled() typ[T] {
	return typ[T]{m.shape, func(r *reader, n node, t *T) {
		m.read(r, n, t)
		m.fill(r, t, nil)
	}, m.show}
}
