package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

// tree is a YAML value whose aliases and merge keys are resolved and whose variables are
// expanded. Its fields are named as those of [yaml.Node].
type tree struct {
	Kind         yaml.Kind // a mapping, a sequence or a scalar
	Tag          string    // in its short form, such as !!str
	Value        string
	Content      []*tree // of a mapping: keys and values in turn
	from         *source
	expanded     bool   // it has variables: read as a string if it does not fit otherwise
	written      string // the scalar before its variables were expanded, or the path before it was made absolute; empty: it is as written
	Line, Column int
}

// source is one text of a configuration.
type source struct {
	name  string
	order int    // among all texts, for the order of messages
	at    *place // of the include that names it; nil if a command line does
	// remote is whether the text is kept in a registry, and not in a file.
	remote bool
	folder string // where relative paths start; empty: nowhere
}

// document parses the only document of a text. It returns nil if that failed, or if the text is
// empty.
func (l *loader) document(from *source, text []byte) *tree {
	start := &place{from: from, index: -1, line: 1, col: 1}
	yamlLoader, err := yaml.NewLoader(bytes.NewReader(text), yaml.WithUniqueKeys(false),
		yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	if err != nil {
		l.r.fail(start, fault{problem: err.Error()})
		return nil
	}
	var doc, second yaml.Node
	switch err := yamlLoader.Load(&doc); {
	case errors.Is(err, io.EOF) || err == nil && (len(doc.Content) == 0 || doc.Content[0].ShortTag() == "!!null"):
		return nil
	case err != nil:
		l.syntax(from, text, err)
		return nil
	}
	switch err := yamlLoader.Load(&second); {
	case err == nil:
		l.r.fail(&place{from: from, index: -1, line: second.Line, col: second.Column}, fault{problem: "a second document begins", allowed: "one document per file"})
		return nil
	case !errors.Is(err, io.EOF):
		l.syntax(from, text, err)
		return nil
	}
	l.expanded, l.written, l.tags = map[*yaml.Node]bool{}, map[*yaml.Node]string{}, map[string]string{}
	l.expandAll(from, doc.Content[0])
	return l.resolve(from, doc.Content[0], 0, false)
}

func oneLine(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, s)
}

// resolve copies a YAML value, with a copy of the target in place of each alias. What aliases
// add is bounded: few lines can stand for billions of values ("billion laughs"), and a value can
// contain itself.
func (l *loader) resolve(from *source, y *yaml.Node, depth int, aliased bool) *tree {
	t := &tree{from: from, Line: y.Line, Column: y.Column}
	for y.Kind == yaml.AliasNode {
		y, aliased = y.Alias, true
	}
	t.Kind, t.Tag, t.Value, t.expanded, t.written = y.Kind, y.ShortTag(), y.Value, l.expanded[y], l.written[y]
	if aliased {
		l.aliased++
		l.size += len(y.Value)
	}
	f := fault{problem: "aliases make the file too large", allowed: fmt.Sprintf("up to %d values, and %d bytes", maxAliased, maxFile)}
	if depth > maxAliasedDepth {
		f = fault{problem: "aliases are nested too deeply, or a value contains itself", allowed: fmt.Sprintf("up to %d levels", maxAliasedDepth)}
	}
	if l.aliased > maxAliased || aliased && l.size > maxFile || depth > maxAliasedDepth {
		if !l.tooLarge {
			l.r.fail(&place{from: from, index: -1, line: t.Line, col: t.Column}, f)
		}
		l.tooLarge = true
	}
	if l.tooLarge {
		return t
	}
	if y.Kind == yaml.SequenceNode {
		t.Content = make([]*tree, 0, len(y.Content))
		for _, item := range y.Content {
			t.Content = append(t.Content, l.resolve(from, item, depth+1, aliased))
		}
	}
	if y.Kind != yaml.MappingNode {
		return t
	}
	var merged []*tree
	t.Content = make([]*tree, 0, len(y.Content))
	for i := 0; i+1 < len(y.Content); i += 2 {
		key, value := l.resolve(from, y.Content[i], depth+1, aliased), l.resolve(from, y.Content[i+1], depth+1, aliased)
		if key.Tag == "!!merge" {
			merged = append(merged, l.mappingsToMerge(key, value)...)
		} else {
			t.Content = append(t.Content, key, value)
		}
	}
	t.inherit(merged)
	return t
}

// mappingsToMerge returns the mappings that a merge key names, the most important one first.
func (l *loader) mappingsToMerge(key, value *tree) []*tree {
	list := []*tree{value}
	if value.Kind == yaml.SequenceNode {
		list = value.Content
	}
	for _, m := range list {
		if m.Kind != yaml.MappingNode {
			l.r.fail(&place{from: key.from, key: key.Value, index: -1, line: m.Line, col: m.Column},
				fault{problem: "is " + kindOf(m), allowed: "an alias of a mapping, or a list of such aliases"})
			return nil
		}
	}
	return list
}

// inherit adds the keys of the merged mappings that t does not have. The first one that has a key
// counts.
func (t *tree) inherit(merged []*tree) {
	if len(merged) == 0 {
		return
	}
	index := t.index()
	for _, m := range merged {
		first := len(t.Content)
		for i := 0; i+1 < len(m.Content); i += 2 {
			if _, ok := index[m.Content[i].Value]; !ok {
				t.Content = append(t.Content, m.Content[i], m.Content[i+1])
			}
		}
		for i := first; i < len(t.Content); i += 2 {
			if t.Content[i].Kind == yaml.ScalarNode {
				index[t.Content[i].Value] = i
			}
		}
	}
}

// index returns where the keys of a mapping are in its content. Of equal keys it has the first.
func (t *tree) index() map[string]int {
	index := make(map[string]int, len(t.Content)/2)
	for i := len(t.Content) - 2; i >= 0; i -= 2 {
		if t.Content[i].Kind == yaml.ScalarNode {
			index[t.Content[i].Value] = i
		}
	}
	return index
}

// filter removes the keys of a mapping for which keep returns false.
func (t *tree) filter(keep func(key string, value *tree) bool) {
	kept := t.Content[:0]
	for i := 0; i+1 < len(t.Content); i += 2 {
		if key := t.Content[i]; key.Kind != yaml.ScalarNode || keep(key.Value, t.Content[i+1]) {
			kept = append(kept, key, t.Content[i+1])
		}
	}
	t.Content = kept
}

// yaml writes the value as YAML, without included files and anchors. If expanded is true, it has no
// variables either, and reads as the same value everywhere. Otherwise the variables are as written,
// and their values, which may be secrets, are not shown.
func (t *tree) yaml(expanded bool) []byte {
	text, err := yaml.Dump(t.node(expanded), yaml.WithV3Defaults(), yaml.WithIndent(2))
	if err != nil {
		panic("config: write: " + err.Error()) // it was read from YAML
	}
	return text
}

func (t *tree) node(expanded bool) *yaml.Node {
	n := &yaml.Node{Kind: t.Kind, Tag: t.Tag, Value: t.Value}
	switch {
	case t.Kind != yaml.ScalarNode:
	case t.written != "" && !expanded:
		n.Tag, n.Value = "!!str", t.written
	default:
		n.Value = strings.ReplaceAll(t.Value, "${", "$${")
	}
	for _, c := range t.Content {
		n.Content = append(n.Content, c.node(expanded))
	}
	return n
}

// kindOf describes the kind of a value.
func kindOf(t *tree) string {
	switch t.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch t.Tag {
	case "!!null":
		return "empty"
	case "!!bool":
		return "true or false"
	case "!!int", "!!float":
		return "a number"
	case "!!str":
		return "a string"
	}
	return "of the type " + plain(t.Tag)
}
