package config

import (
	"encoding/json"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Schema returns the JSON Schema of configuration files, draft 2020-12, for editors and other
// tools. It cannot express rules that involve several values, such as references to groups:
// these only [Parse] checks.
func Schema() []byte {
	defs := map[string]any{}
	s := schemaOf(fileKeys.shape, defs)
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "Configuration of penstock run"
	s["patternProperties"] = map[string]any{"^x-": map[string]any{"description": "Ignored: a place for anchors."}}
	defs["variable"] = map[string]any{"type": "string", "pattern": `\$\{[A-Za-z_]`}
	s["$defs"] = defs
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic("config: schema: " + err.Error()) // it consists of maps, lists and strings
	}
	return append(text, '\n')
}

// schemaOf returns the schema of a shape. The schemas of mappings are stored in defs once and
// referred to, except that of the file itself.
func schemaOf(s *shape, defs map[string]any) map[string]any {
	switch {
	case s.keys != nil && s != fileKeys.shape:
		name := strings.ReplaceAll(s.name, ".", "-")
		if defs[name] == nil {
			defs[name] = true // in case it refers to itself
			defs[name] = schemaOfKeys(s, defs)
		}
		return map[string]any{"$ref": "#/$defs/" + name}
	case s.keys != nil:
		return schemaOfKeys(s, defs)
	case s.names != nil:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(s.names, defs),
			"propertyNames": map[string]any{"pattern": namePattern}}
	case s.pairs != nil:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(s.pairs, defs),
			"propertyNames": map[string]any{"pattern": tlvPattern}}
	case s.items != nil:
		item := schemaOf(s.items, defs)
		array := map[string]any{"type": "array", "items": item}
		if s.nonEmpty {
			array["minItems"] = 1
		}
		if !isScalar(s.items) {
			return array
		}
		return map[string]any{"anyOf": []any{item, array}}
	case s.either != nil:
		return map[string]any{"anyOf": []any{schemaOf(s.either[0], defs), schemaOf(s.either[1], defs)}}
	}
	return map[string]any{"anyOf": []any{s.schema, map[string]any{"$ref": "#/$defs/variable"}}}
}

func schemaOfKeys(s *shape, defs map[string]any) map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, k := range s.keys {
		p := schemaOf(k.of, defs)
		p["description"] = k.doc
		if k.def != "" {
			var v any
			if err := yaml.Load([]byte(k.def), &v); err != nil {
				panic("config: default of " + k.name + ": " + err.Error())
			}
			p["default"] = v
		}
		properties[k.name] = p
		if k.required {
			required = append(required, k.name)
		}
	}
	m := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		m["required"] = required
	}
	if len(s.exactly) > 0 {
		var one []any
		for _, name := range s.exactly {
			one = append(one, map[string]any{"required": []string{name}})
		}
		m["oneOf"] = one
	}
	return m
}

// Keys returns the keys of configuration files, each as SECTION.KEY, in the order of docs/configuration.md.
func Keys() (keys []string) {
	eachSection(func(s *shape) {
		for _, k := range s.keys {
			keys = append(keys, s.name+"."+k.name)
		}
	})
	return keys
}

// eachSection calls f with each mapping of the table, once, in the order in which they are met.
func eachSection(f func(*shape)) {
	todo, seen := []*shape{fileKeys.shape}, map[string]bool{}
	for len(todo) > 0 {
		s := todo[0]
		todo = todo[1:]
		if seen[s.name] {
			continue
		}
		seen[s.name] = true
		f(s)
		for _, k := range s.keys {
			todo = append(todo, sections(k.of)...)
		}
	}
}

// sections are the mappings that a shape leads to.
func sections(s *shape) (list []*shape) {
	switch {
	case s.keys != nil:
		return []*shape{s}
	case s.items != nil:
		return sections(s.items)
	case s.names != nil:
		return sections(s.names)
	}
	for _, e := range s.either {
		list = append(list, sections(e)...)
	}
	return list
}
