package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Bounds of a configuration. Exceeding one is an error rather than a slow start.
const (
	maxFile         = 4 << 20 // bytes
	maxDepth        = 32      // of nesting
	maxAliased      = 100_000 // values that come from aliases
	maxAliasedDepth = 64      // of nesting, aliases included
	maxErrors       = 1000    // reported
)

// place is the position of a value.
type place struct {
	up        *place
	from      *source
	key       string // in a mapping
	index     int    // in a list; -1 in a mapping
	line, col int
}

// String returns the place as FILE:LINE:COLUMN.
func (p *place) String() string { return fmt.Sprintf("%s:%d:%d", p.from.name, p.line, p.col) }

// path returns the keys that lead to the place: listeners.web.routes[0].
func (p *place) path() string {
	var parts []string
	for ; p.up != nil; p = p.up {
		switch {
		case p.index >= 0:
			parts = append(parts, "["+strconv.Itoa(p.index)+"]")
		case p.up.up == nil:
			parts = append(parts, plain(p.key))
		default:
			parts = append(parts, "."+plain(p.key))
		}
	}
	slices.Reverse(parts)
	return strings.Join(parts, "")
}

// node is a value with its position.
type node struct {
	*tree
	at *place
}

// reader reads a configuration. It continues after an error, so that all are reported.
type reader struct {
	errs     []Error
	warnings []Error
	// places holds the position of each value that the file sets, by the address that it was
	// read to. A value that is missing here has its default.
	places map[any]*place
	start  *place // of the whole configuration
	refs   []reference
	// secrets reads a file that the configuration names. It is nil if such files are not read.
	secrets func(path string) ([]byte, error)
	moved   bool // a relative path has become absolute
}

// reference is a group that is not resolved yet: its name or URL.
type reference struct {
	to   **spec.Group
	text string
	at   *place
}

// fault is an error of one value.
type fault struct {
	problem, near, allowed string
}

func (r *reader) fail(at *place, f fault) {
	if len(r.errs) < maxErrors {
		r.errs = append(r.errs, r.describe(at, f))
	}
}

func (r *reader) warn(at *place, f fault) {
	if len(r.warnings) < maxErrors {
		r.warnings = append(r.warnings, r.describe(at, f))
	}
}

func (r *reader) describe(at *place, f fault) Error {
	return Error{File: at.from.name, order: at.from.order, Line: at.line, Column: at.col, Path: at.path(), Problem: f.problem, Near: f.near, Allowed: f.allowed}
}

// isSet reports whether the file sets the value that p points to.
func (r *reader) isSet(p any) bool { return r.places[p] != nil }

// position returns the position of the first of the values that the file sets.
func (r *reader) position(values ...any) *place {
	for _, p := range values {
		if at := r.places[p]; at != nil {
			return at
		}
	}
	return r.start
}

// child returns a value inside up with its position.
func (r *reader) child(up node, t *tree, key string, index int) node {
	return node{t, &place{up.at, t.from, key, index, t.Line, t.Column}}
}

// mapping calls each for every key of a mapping, once, in the file's order, with the position of
// the key and the value.
func (r *reader) mapping(n node, each func(key *place, name string, v node)) {
	seen := make(map[string]*tree, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		at := &place{n.at, k.from, k.Value, -1, k.Line, k.Column}
		if k.Kind != yaml.ScalarNode {
			at.key = "?"
			r.fail(at, fault{problem: "a key is " + kindOf(k), allowed: "a string"})
			continue
		}
		if first, ok := seen[k.Value]; ok {
			r.fail(at, fault{problem: fmt.Sprintf("duplicate key, first used at line %d", first.Line), allowed: "each key once"})
			continue
		}
		seen[k.Value] = k
		each(at, k.Value, r.child(n, n.Content[i+1], k.Value, -1))
	}
}
