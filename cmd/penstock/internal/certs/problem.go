package certs

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// A Problem is something wrong with a file.
type Problem struct {
	File    string
	Line    int // from 1; 0: the file as a whole
	Text    string
	Warning bool  // the file is used nevertheless
	Err     error // of opening or reading the file; nil: its content is wrong
}

// String returns the problem as FILE:LINE: TEXT, and warnings marked as such.
func (p Problem) String() string {
	if p.Warning {
		return p.place() + ": warning: " + p.Text
	}
	return p.Message()
}

// Message returns the problem as FILE:LINE: TEXT.
func (p Problem) Message() string { return p.place() + ": " + p.Text }

func (p Problem) place() string {
	if p.Line > 0 {
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return p.File
}

// Problems are several. As an error, they are those that are no warnings.
type Problems []Problem

// Error returns the errors, a line for each.
func (p Problems) Error() string {
	var lines []string
	for _, e := range p.Errors() {
		lines = append(lines, e.String())
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns what reading failed with.
func (p Problems) Unwrap() (list []error) {
	for _, e := range p.Errors() {
		if e.Err != nil {
			list = append(list, e.Err)
		}
	}
	return list
}

// Errors returns those that are no warnings.
func (p Problems) Errors() Problems { return p.filter(false) }

// Warnings returns the warnings.
func (p Problems) Warnings() Problems { return p.filter(true) }

func (p Problems) filter(warning bool) (list Problems) {
	for _, e := range p {
		if e.Warning == warning {
			list = append(list, e)
		}
	}
	return list
}

// failed returns the problem of a file that could not be read.
func failed(path string, err error) Problem {
	var inner *fs.PathError
	text := err.Error()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		text = "no such file"
	case errors.As(err, &inner):
		text = inner.Err.Error()
	}
	return Problem{File: path, Text: text, Err: err}
}
