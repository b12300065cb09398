// Package convert turns configurations of other products into Penstock's. It
// converts what concerns layer 4, and lists everything else.
//
// A [Reader] knows one product, and puts what its configuration says into a
// [Plan]: listeners, groups, and notes about what has no counterpart. This
// package has what they share, and writes the plan as YAML. The readers are in
// the packages haproxy and nginx below it.
//
// All of them are pure: text goes in, and YAML and a list come out. What a
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
	// Path returns the absolute path of what Read reads. If it is nil, only an absolute path is known.
	Path func(name string) string
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
	MaxText   = 4 << 20 // bytes of all files together
	MaxThings = 4096    // listeners, and groups
	maxNotes  = 10000
	MaxWords  = 1 << 20 // words of all files together
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

// A Reader reads configurations of one product.
type Reader struct {
	Product Product
	Name    string // as its makers write it
	// Read puts what the files say into the plan.
	Read func(p *Plan, files []File) *Error
	// Silent are the words that change nothing here.
	Silent []Silent
}

// Convert converts the files, in their order, as one configuration. The error is
// an [*Error]; without one, the result is a complete configuration of Penstock.
func (r *Reader) Convert(files []File, src Source) (*Result, error) {
	total := 0
	for _, f := range files {
		if total += len(f.Text); total > MaxText {
			return nil, &Error{File: f.Name, Text: fmt.Sprintf("too big; allowed: %d bytes in all", MaxText)}
		}
	}
	if len(files) == 0 {
		return nil, &Error{Text: "no file"}
	}
	p := NewPlan(src)
	p.budget -= total
	if err := r.Read(p, files); err != nil {
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
	return &Result{YAML: p.yaml(r.Name, files), Notes: p.notes}, nil
}
