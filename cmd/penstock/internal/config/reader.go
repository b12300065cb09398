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
	maxFile    = 4 << 20 // bytes
	maxDepth   = 32      // of nesting
	maxAliased = 100_000 // values that come from aliases
	maxErrors  = 1000    // reported
)

// place is the position of a value.
type place struct {
	up        *place
	key       string // in a mapping
	index     int    // in a list; -1 in a mapping
	line, col int
}

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

// node is a value of the file with its position. Its kind is never an alias.
type node struct {
	*yaml.Node
	at      *place
	aliased bool // it comes from an alias
}

// reader reads a configuration. It continues after an error, so that all are reported.
type reader struct {
	file     string
	errs     []Error
	warnings []Error
	// places holds the position of each value that the file sets, by the address that it was
	// read to. A value that is missing here has its default.
	places  map[any]*place
	aliased int
	refs    []reference
	secrets func(path string) ([]byte, error) // reads a file that the configuration names; nil: such files are not read
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
	return Error{File: r.file, Line: at.line, Column: at.col, Path: at.path(), Problem: f.problem, Near: f.near, Allowed: f.allowed}
}

// isSet reports whether the file sets the value that p points to.
func (r *reader) isSet(p any) bool { return r.places[p] != nil }

// at returns the position of the first of the values that the file sets.
func (r *reader) at(values ...any) *place {
	for _, p := range values {
		if at := r.places[p]; at != nil {
			return at
		}
	}
	return &place{line: 1, col: 1, index: -1}
}

// child returns a value inside up with its position, following aliases. It returns false when
// aliases have made the file too large.
func (r *reader) child(up node, y *yaml.Node, key string, index int) (node, bool) {
	n := node{y, &place{up.at, key, index, y.Line, y.Column}, up.aliased}
	for n.Kind == yaml.AliasNode {
		n.Node, n.aliased = n.Alias, true
	}
	if n.aliased {
		if r.aliased++; r.aliased > maxAliased {
			if r.aliased == maxAliased+1 {
				r.fail(n.at, fault{problem: "aliases make the file too large", allowed: fmt.Sprintf("up to %d values", maxAliased)})
			}
			return n, false
		}
	}
	return n, true
}

// mapping calls each for every key of a mapping, once, in the file's order, with the position of
// the key and the value.
func (r *reader) mapping(n node, each func(key *place, name string, v node)) {
	seen := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, y := n.Content[i], n.Content[i+1]
		at := &place{n.at, k.Value, -1, k.Line, k.Column}
		switch {
		case k.Kind != yaml.ScalarNode:
			at.key = "?"
			r.fail(at, fault{problem: "a key is " + kindOf(k), allowed: "a string"})
			continue
		case k.Tag == "!!merge":
			r.fail(at, fault{problem: "keys of another mapping are not merged in", allowed: "the section defaults, or an alias for a whole value"})
			continue
		}
		if line, ok := seen[k.Value]; ok {
			r.fail(at, fault{problem: fmt.Sprintf("duplicate key, first used at line %d", line), allowed: "each key once"})
			continue
		}
		seen[k.Value] = k.Line
		v, ok := r.child(n, y, k.Value, -1)
		if !ok {
			return
		}
		each(at, k.Value, v)
	}
}

// kindOf describes the kind of a value.
func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	switch n.ShortTag() {
	case "!!null":
		return "empty"
	case "!!bool":
		return "true or false"
	case "!!int", "!!float":
		return "a number"
	case "!!str":
		return "a string"
	}
	return "of the type " + plain(n.ShortTag())
}
