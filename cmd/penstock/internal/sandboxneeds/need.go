// Package sandboxneeds says what the process that relays needs of the host, once, and derives the rest from that: what it may do when it is
// in its sandbox, which later configuration or request it cannot carry out then, and the words for it.
//
// What is declared is in tables. Each key of the configuration has a row, with what it may need and when a change of it takes effect
// (keys.go); so does what comes from the command line and the host. An endpoint needs what its role and its kind say (endpoint.go).
// What changes a running process has a row, too (changes.go). Tests compare the tables with the keys, the kinds of endpoints, the routes
// of the admin API and the orders of a fleet, so that none is forgotten, and write them into docs/sandbox.md.
//
// A need is of a [Kind], which has a row as well: which layer of the sandbox takes it away, and how a policy of package sandbox allows it
// (kind.go). All of it is values; only [sandbox.Enter] changes the process.
package sandboxneeds

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Need is one thing that a configuration needs.
type Need struct {
	Kind Kind
	Path string // of Read and Write: absolute
	Port uint16 // of Connect, Bind and LowPort
	For  string // the key that needs it, or what else does
	// AtRunTime reports that a member needs it that operators have added or moved: a process that was taken over may say so.
	AtRunTime bool
}

// words returns a text of the need's kind, with its path or port.
func (n Need) words(text string) string {
	if !strings.Contains(text, "%v") {
		return text
	}
	if n.Path != "" {
		return fmt.Sprintf(text, n.Path)
	}
	return fmt.Sprintf(text, n.Port)
}

// String returns what is needed, and for what.
func (n Need) String() string { return n.words(kinds[n.Kind].doing) + " (" + n.For + ")" }

// Needs is a list of needs.
type Needs []Need

// maxNamed bounds the needs that a message names.
const maxNamed = 3

// String returns the needs for a message.
func (n Needs) String() string {
	var parts []string
	for _, a := range n {
		parts = append(parts, a.String())
	}
	parts = slices.Compact(parts)
	if len(parts) > maxNamed {
		parts = append(parts[:maxNamed], fmt.Sprintf("and %d more", len(parts)-maxNamed))
	}
	return strings.Join(parts, ", ")
}

// First returns what the first need of a kind is for; empty: there is none.
func (n Needs) First(kind Kind) string {
	for _, a := range n {
		if a.Kind == kind {
			return a.For
		}
	}
	return ""
}

// sorted returns n in an order that does not depend on how it came about, each need once.
func (n Needs) sorted() Needs {
	slices.SortFunc(n, func(a, b Need) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Port, b.Port), cmp.Compare(a.For, b.For))
	})
	return slices.Compact(n)
}

// An adder adds the needs of one row for one object of a configuration.
type adder struct {
	in    *Input
	needs *Needs
	at    string // what they are for
	later bool   // Need.AtRunTime
}

func (a *adder) add(kind Kind) { a.addNeed(Need{Kind: kind}) }

func (a *adder) port(kind Kind, port uint16) { a.addNeed(Need{Kind: kind, Port: port}) }

func (a *adder) path(kind Kind, path string) { a.addNeed(Need{Kind: kind, Path: path}) }

func (a *adder) addNeed(n Need) {
	n.For, n.AtRunTime = a.at, a.later
	*a.needs = append(*a.needs, n)
}

// naming returns an adder for what something else needs.
func (a *adder) naming(what string) *adder {
	b := *a
	b.at = what
	return &b
}

// folder adds the folder of a path, and that of the file to which it leads: a file is replaced by renaming another one
// to its path, and permission for a file is permission for the one that is there now.
func (a *adder) folder(kind Kind, path string) {
	if !filepath.IsAbs(path) {
		return
	}
	path = filepath.Clean(path)
	if device(path) {
		a.path(kind, path)
		return
	}
	a.path(kind, filepath.Dir(path))
	if real, err := filepath.EvalSymlinks(path); err == nil && filepath.Dir(real) != filepath.Dir(path) {
		if device(real) {
			a.path(kind, real)
		} else {
			a.path(kind, filepath.Dir(real))
		}
	}
}

// device reports whether a path is one that nobody replaces, such as /dev/stdout.
func device(path string) bool {
	return strings.HasPrefix(path, "/dev/") || strings.HasPrefix(path, "/proc/")
}

// tree adds a folder, and where it really is: the keeper compares paths.
func (a *adder) tree(kind Kind, path string) {
	a.path(kind, path)
	if real, err := filepath.EvalSymlinks(path); err == nil && real != path {
		a.path(kind, real)
	}
}

// beneath reports whether a path is another one, or beneath it.
func beneath(path, above string) bool {
	return path == above || above == "/" || strings.HasPrefix(path, above+"/")
}
