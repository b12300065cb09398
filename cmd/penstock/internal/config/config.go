// Package config reads YAML configuration files into a [spec.Config]. The reader, the defaults,
// the messages, the JSON Schema and the reference in docs/configuration.md all derive from one
// table of keys (table.go).
//
// All errors of a configuration are reported together, each with its file, line and column, what
// is wrong and what is allowed. Parsing has no side effects: names are looked up by other
// packages, and only [Load] reads files.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A Rule is a check that another package makes of one value. Of returns a pointer to the value.
type Rule struct {
	Of    func(*spec.Config) *string
	Check func(string) error
}

// Parse reads a configuration. Messages and Config.Source call it name. The error is an
// [Errors]. Parse reads no files: Admin.Token and Admin.ReadToken stay empty.
func Parse(name string, text []byte, rules ...Rule) (*spec.Config, error) {
	c, _, err := parse(name, text, nil, rules)
	return c, err
}

// Load reads a configuration file and the files that it names. Relative paths start at its
// folder. The error is an [Errors], or the error of reading the file itself.
func Load(path string, rules ...Rule) (*spec.Config, Warnings, error) {
	text, err := readAtMost(path, maxFile+1)
	if err != nil {
		return nil, nil, err
	}
	return parse(path, text, func(name string) ([]byte, error) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(path), name)
		}
		return readAtMost(name, maxToken+2)
	}, rules)
}

// readAtMost reads the first n bytes of a file, which may be endless.
func readAtMost(path string, n int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, n))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return text, nil
}

func parse(name string, text []byte, secrets func(string) ([]byte, error), rules []Rule) (*spec.Config, Warnings, error) {
	r := &reader{file: name, places: map[any]*place{}, secrets: secrets}
	var c *spec.Config
	if doc := r.document(text); doc != nil {
		f := &file{}
		fileKeys.read(r, node{Node: doc, at: &place{index: -1, line: doc.Line, col: doc.Column}}, f)
		if r.aliased <= maxAliased { // otherwise parts are missing
			c = r.resolve(f)
			c.Source, c.Text = name, text
			for _, rule := range rules {
				if value := rule.Of(c); *value != "" {
					if err := rule.Check(*value); err != nil {
						r.fail(r.at(value), fault{problem: oneLine(err.Error())})
					}
				}
			}
		}
	}
	inOrder(r.errs)
	inOrder(r.warnings)
	if len(r.errs) > 0 {
		return nil, r.warnings, Errors(r.errs)
	}
	return c, r.warnings, nil
}

// document returns the only document of the file, or nil if there is not exactly one.
func (r *reader) document(text []byte) *yaml.Node {
	start := &place{index: -1, line: 1, col: 1}
	if len(text) > maxFile {
		r.fail(start, fault{problem: "the file is too large", allowed: fmt.Sprintf("up to %d bytes", maxFile)})
		return nil
	}
	loader, err := yaml.NewLoader(bytes.NewReader(text), yaml.WithUniqueKeys(false),
		yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	if err != nil {
		r.fail(start, fault{problem: err.Error()})
		return nil
	}
	var doc, second yaml.Node
	switch err := loader.Load(&doc); {
	case errors.Is(err, io.EOF) || err == nil && (len(doc.Content) == 0 || doc.Content[0].ShortTag() == "!!null"):
		r.fail(start, fault{problem: "the file is empty", allowed: fileKeys.allowedText()})
		return nil
	case err != nil:
		r.syntax(err)
		return nil
	}
	switch err := loader.Load(&second); {
	case err == nil:
		r.fail(&place{index: -1, line: second.Line, col: second.Column}, fault{problem: "a second document begins", allowed: "one document per file"})
		return nil
	case !errors.Is(err, io.EOF):
		r.syntax(err)
		return nil
	}
	top, _ := r.child(node{at: start}, doc.Content[0], "", -1)
	return top.Node
}

// syntax reports a syntax error that the YAML library found.
func (r *reader) syntax(err error) {
	at := &place{index: -1, line: 1, col: 1}
	var e *yaml.LoadError
	if !errors.As(err, &e) {
		r.fail(at, fault{problem: "invalid YAML: " + oneLine(err.Error())})
		return
	}
	at.line, at.col = max(e.Mark.Line, 1), max(e.Mark.Column, 1)
	problem := "invalid YAML: " + e.Message
	if e.ContextMsg != "" {
		problem += fmt.Sprintf(", %s that begins at line %d", e.ContextMsg, e.ContextMark.Line)
	}
	r.fail(at, fault{problem: oneLine(problem)})
}

func oneLine(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, s)
}
