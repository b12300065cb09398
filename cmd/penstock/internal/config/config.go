// Package config reads YAML configuration files into a [spec.Config]. The reader, the defaults,
// the messages, the JSON Schema and the reference in docs/configuration.md all derive from one
// table of keys (table.go).
//
// A configuration is composed before it is read: variables are expanded (variables.go), aliases
// and merge keys are resolved (tree.go), included files are joined, and overlays applied
// (source.go).
//
// All errors of a configuration are reported together, each with its file, line and column, what
// is wrong and what is allowed. Parsing has no side effects: names are looked up by other
// packages, and only [Source.Load] reads files and the environment.
package config

import "github.com/penstock/penstock/cmd/penstock/internal/spec"

// A Rule is a check that another package makes of one value. Of returns a pointer to the value.
type Rule struct {
	Of    func(*spec.Config) *string
	Check func(string) error
}

// Parse reads a configuration. Messages and Config.Source call it name. The error is an
// [Errors]. Parse reads no files: Admin.Token and Admin.ReadToken stay empty, and a text that
// includes files, or that needs variables, is an error.
func Parse(name string, text []byte, rules ...Rule) (*spec.Config, error) {
	l := &loader{r: &reader{places: map[any]*place{}}}
	c, _, err := l.finish(name, l.parse(&source{name: name}, text), rules)
	return c, err
}
