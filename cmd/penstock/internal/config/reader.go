package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Bounds of a file. What is above them is an error, not a slow start.
const (
	maxFile    = 4 << 20 // bytes
	maxDepth   = 32      // of nesting
	maxAliased = 100_000 // values that are there because of aliases
	maxErrors  = 1000    // that are told
)

// place is where a value stands.
type place struct {
	up        *place
	key       string // in a mapping
	index     int    // in a list; -1 in a mapping
	line, col int
}

// path is the place in words: listeners.web.routes[0].
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

// node is a value of the file and where it stands. Its kind is never an alias.
type node struct {
	*yaml.Node
	at      *place
	aliased bool // it is there because of an alias
}

// reader takes a file apart. It goes on after an error, so that all are told.
type reader struct {
	file     string
	errs     []Error
	warnings []Error
	// places has what the file says, by the address of where it was read to. What
	// is not in it takes its default.
	places  map[any]*place
	aliased int
	refs    []reference
	secrets func(path string) ([]byte, error) // reads a file that the file names; nil: they are not read
}

// reference is a group that is still only a name, or an endpoint.
type reference struct {
	to   **spec.Group
	text string
	at   *place
}

// fault is what is wrong with one value.
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

// said tells whether the file itself says what was read to p.
func (r *reader) said(p any) bool { return r.places[p] != nil }

// at returns the place of the first of the values that the file has.
func (r *reader) at(values ...any) *place {
	for _, p := range values {
		if at := r.places[p]; at != nil {
			return at
		}
	}
	return &place{line: 1, col: 1, index: -1}
}

// child follows an alias, and says where the value stands. It is false when
// aliases have made the file too big.
func (r *reader) child(up node, y *yaml.Node, key string, index int) (node, bool) {
	n := node{y, &place{up.at, key, index, y.Line, y.Column}, up.aliased}
	for n.Kind == yaml.AliasNode {
		n.Node, n.aliased = n.Alias, true
	}
	if n.aliased {
		if r.aliased++; r.aliased > maxAliased {
			if r.aliased == maxAliased+1 {
				r.fail(n.at, fault{problem: "aliases make the file too big", allowed: fmt.Sprintf("%d values", maxAliased)})
			}
			return n, false
		}
	}
	return n, true
}

// mapping calls each with every key of a mapping, once, in the file's order.
// The place of a value is its key's: that is what is wrong if it is unknown.
func (r *reader) mapping(n node, each func(key *place, name string, v node)) {
	seen := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, y := n.Content[i], n.Content[i+1]
		at := &place{n.at, k.Value, -1, k.Line, k.Column}
		switch {
		case k.Kind != yaml.ScalarNode:
			at.key = "?"
			r.fail(at, fault{problem: "a key is " + kindOf(k), allowed: "a text"})
			continue
		case k.Tag == "!!merge":
			r.fail(at, fault{problem: "keys of another mapping are not merged in", allowed: "the section defaults, or an alias for a whole value"})
			continue
		}
		if line, ok := seen[k.Value]; ok {
			r.fail(at, fault{problem: fmt.Sprintf("the key is there already, in line %d", line), allowed: "each key once"})
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

// kindOf names what a value is.
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
		return "a text"
	}
	return "of the type " + plain(n.ShortTag())
}
