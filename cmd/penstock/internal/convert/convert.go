// Package convert turns configurations of HAProxy and nginx into Penstock's. It
// converts what concerns layer 4, and lists everything else.
//
// The package is pure: text goes in, and YAML and a list come out. What a
// configuration names outside its own text (included files, environment
// variables) is asked of a [Source].
package convert

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Product is the program that a configuration was written for.
type Product string

// The products.
const (
	HAProxy Product = "haproxy"
	Nginx   Product = "nginx"
)

// File is the text of one file. Name is for messages.
type File struct {
	Name string
	Text []byte
}

// Source gives access to what a configuration refers to. Fields that are nil
// have nothing.
type Source struct {
	// Read returns the files that a path stands for; it may contain wildcards.
	Read func(pattern string) ([]File, error)
	// Stat tells what is at an absolute path.
	Stat func(path string) (folder, exists bool)
	// Env returns the value of an environment variable, and whether it is set.
	Env func(name string) (string, bool)
}

// Note is something in the original that has no counterpart, or none that
// behaves the same.
type Note struct {
	File string
	Line int
	Text string
}

func (n Note) String() string { return fmt.Sprintf("%s:%d: %s", n.File, n.Line, n.Text) }

// Error is returned when nothing can be converted: the text is not a
// configuration of the product, or has no layer-4 part.
type Error Note

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Text
	}
	return Note(*e).String()
}

// Result is a converted configuration.
type Result struct {
	YAML  []byte // with comments where a choice was made
	Notes []Note // in the order of the original, each once
}

// Bounds of what is converted.
const (
	maxText    = 4 << 20 // bytes of all files together
	maxFiles   = 1000
	maxDepth   = 16   // files that include files, and blocks in blocks
	maxThings  = 4096 // listeners, and groups
	maxNotes   = 10000
	maxWords   = 1 << 20 // words of all files together
	maxPerLine = 4096    // words of one line of HAProxy
)

// Guess returns the product that a file was most likely written for.
func Guess(f File) Product {
	switch path.Ext(f.Name) {
	case ".cfg":
		return HAProxy
	case ".conf":
		return Nginx
	}
	for line := range bytes.Lines(f.Text) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && (bytes.HasSuffix(line, []byte("{")) || bytes.HasSuffix(line, []byte(";"))) {
			return Nginx
		}
	}
	return HAProxy
}

// Convert converts the files, in their order, as one configuration. The error is
// an [*Error]; without one, the result is a complete configuration of Penstock.
func Convert(from Product, files []File, src Source) (*Result, error) {
	total := 0
	for _, f := range files {
		if total += len(f.Text); total > maxText {
			return nil, &Error{File: f.Name, Text: fmt.Sprintf("too big; allowed: %d bytes in all", maxText)}
		}
	}
	if len(files) == 0 {
		return nil, &Error{Text: "no file"}
	}
	p := &plan{src: src, seen: map[Note]bool{}, budget: maxText - total}
	var err *Error
	switch from {
	case HAProxy:
		err = haproxy(p, files)
	case Nginx:
		err = nginx(p, files)
	default:
		err = &Error{File: files[0].Name, Text: fmt.Sprintf("unknown product %q; allowed: haproxy, nginx", from)}
	}
	if err != nil {
		return nil, err
	}
	p.finish()
	order := map[string]int{}
	for _, f := range files {
		order[f.Name] = len(order)
	}
	slices.SortStableFunc(p.notes, func(a, b Note) int {
		return cmp.Or(cmp.Compare(order[a.File], order[b.File]), strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	if len(p.listeners) == 0 {
		text := "nothing to convert: no listener with a layer-4 counterpart"
		for _, n := range p.notes {
			text += "\n" + n.String()
		}
		return nil, &Error{File: files[0].Name, Text: text}
	}
	return &Result{YAML: p.yaml(from, files), Notes: p.notes}, nil
}
