package config

import (
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Variables: ${NAME} and ${NAME:-DEFAULT} in a scalar stand for an environment variable, and $${
// for ${ itself. They are expanded after the YAML is parsed, so that the value of a variable is
// always part of one scalar and never changes the structure of the file. Such a scalar is a number
// or a string, as the key needs it, whether it is quoted or not: in {loops: "${LOOPS}"} YAML
// requires the quotes.

const (
	maxExpanded  = 64 << 10 // bytes of a scalar with its variables expanded
	maxVariables = 10_000   // scalars with variables
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expandAll expands the variables in all scalars of a document but the keys of mappings.
func (l *loader) expandAll(from *source, y *yaml.Node) {
	switch y.Kind {
	case yaml.MappingNode:
		for i := 1; i < len(y.Content); i += 2 {
			l.expandAll(from, y.Content[i])
		}
	case yaml.SequenceNode:
		for _, item := range y.Content {
			l.expandAll(from, item)
		}
	case yaml.ScalarNode:
		if !strings.Contains(y.Value, "${") {
			return
		}
		if l.tooLarge {
			return
		}
		text, f := expand(y.Value, l.lookup)
		if l.variables++; l.variables > maxVariables {
			text, f, l.tooLarge = "", &fault{problem: "too many values have variables", allowed: fmt.Sprintf("up to %d", maxVariables)}, true
		} else if l.size += max(0, len(text)-len(y.Value)); l.size > maxFile {
			text, f, l.tooLarge = "", &fault{problem: "the configuration is too large with its variables expanded", allowed: fmt.Sprintf("up to %d bytes", maxFile)}, true
		}
		if f != nil {
			l.r.fail(&place{from: from, index: -1, line: y.Line, col: y.Column}, *f)
			text = "" // reported; what follows from it is not
			l.unset = true
		}
		if text != strings.ReplaceAll(y.Value, "$${", "${") {
			l.varied = true
		}
		l.written[y] = y.Value
		if y.Value = text; y.ShortTag() == "!!str" {
			l.expanded[y] = true
			tag, ok := l.tags[text]
			if !ok {
				tag = tagOf(text)
				l.tags[text] = tag
			}
			y.Tag = tag
		}
	}
}

// lookup returns the value of an environment variable.
func (l *loader) lookup(name string) (string, bool) {
	if l.env == nil {
		return "", false
	}
	return l.env(name)
}

// expand expands the variables in a text. lookup returns the value of a variable, and whether it
// is set.
func expand(text string, lookup func(string) (string, bool)) (string, *fault) {
	const allowed = "${NAME}, ${NAME:-DEFAULT}, or $${ for ${ itself"
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(text, "${")
		if !ok {
			b.WriteString(text)
			break
		}
		if literal, ok := strings.CutSuffix(before, "$"); ok {
			b.WriteString(literal + "${")
			text = rest
			continue
		}
		b.WriteString(before)
		inside, after, ok := strings.Cut(rest, "}")
		if !ok {
			return "", &fault{problem: "a variable begins with ${ and has no closing brace", allowed: allowed}
		}
		name, def, hasDefault := strings.Cut(inside, ":-")
		if !variableName.MatchString(name) {
			return "", &fault{problem: "invalid variable name " + quote(name), allowed: allowed}
		}
		value, set := lookup(name)
		switch {
		case hasDefault && value == "":
			value = def
		case !set:
			return "", &fault{problem: "the environment variable " + name + " is not set", allowed: "a variable that is set, or ${" + name + ":-DEFAULT}"}
		}
		b.WriteString(value)
		if b.Len() > maxExpanded {
			return "", &fault{problem: "the value is too long with its variables expanded", allowed: "up to 65536 bytes"}
		}
		text = after
	}
	return b.String(), nil
}

// tagOf returns the tag that a scalar has without quotes.
func tagOf(text string) string {
	if strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-._~") != "" {
		return "!!str" // numbers and words such as true have no other characters
	}
	var doc yaml.Node
	if err := yaml.Load([]byte(text), &doc); err != nil || len(doc.Content) == 0 {
		return "!!null"
	}
	if doc.Content[0].Kind != yaml.ScalarNode {
		return "!!str" // such as a lone hyphen
	}
	return doc.Content[0].ShortTag()
}
