// Package config reads YAML configuration files into a [spec.Config]. The reader, the defaults,
// the messages, the JSON Schema and the reference in docs/configuration.md all derive from one
// table of keys (table.go and table_*.go).
//
// A configuration is composed before it is read: variables are expanded (variables.go), aliases
// and merge keys are resolved (tree.go), included files are joined, and overlays applied
// (source.go).
//
// All errors of a configuration are reported together, each with its file, line and column, what
// is wrong and what is allowed. Parsing has no side effects: names are looked up by other
// packages, and only [Source.Load] reads files and the environment.
package config

import (
	"os"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A Rule is a check that another package makes: of one value, to which Of returns a pointer, or with All of the files
// that a configuration names. All is called by [Source.Load] only, and not where the files are another host's.
type Rule struct {
	Of    func(*spec.Config) *string
	Check func(string) error
	All   func(*spec.Config, *Report)
}

// A Report takes what an All finds. A field is a pointer to a value of the configuration; messages tell where the file
// sets it, or if it does not, where it sets one of the others.
type Report struct {
	// Open opens a file that this process may not open itself: see Source. nil: opening it fails.
	Open func(path string) (*os.File, error)
	r    *reader
}

// Fail reports an error.
func (p *Report) Fail(err error, fields ...any) {
	p.r.fail(p.r.position(fields...), fault{problem: oneLine(err.Error())})
}

// Warn reports a warning.
func (p *Report) Warn(err error, fields ...any) {
	p.r.warn(p.r.position(fields...), fault{problem: oneLine(err.Error())})
}

// Parse reads a configuration. Messages and Config.Source call it name. The error is an
// [Errors]. Parse reads no files: Admin.Token and Admin.ReadToken stay empty, and a text that
// includes files, or that needs variables, is an error.
func Parse(name string, text []byte, rules ...Rule) (*spec.Config, error) {
	l := &loader{r: &reader{places: map[any]*place{}}}
	c, _, err := l.finish(name, l.parse(&source{name: name}, text), rules)
	return c, err
}
