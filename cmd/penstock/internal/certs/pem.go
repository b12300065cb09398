package certs

import (
	"bytes"
	"encoding/pem"
	"fmt"
)

// maxBlocks bounds the PEM blocks of a file. The lists of authorities of operating systems have 150.
const maxBlocks = 2000

// A block is a PEM block, and the line that it begins at.
type block struct {
	*pem.Block
	line int
}

var beginning = []byte("-----BEGIN ")

// parseBlocks returns the PEM blocks of a text. What is around them is ignored, as tools write comments there; a block that is
// damaged is an error.
func parseBlocks(text []byte) (blocks []block, err error) {
	line := 1
	for len(text) > 0 {
		start := beginningOf(text)
		if start < 0 {
			return blocks, nil
		}
		line += bytes.Count(text[:start], []byte("\n"))
		text = text[start:]
		end := len(text)
		if next := beginningOf(text[len(beginning):]); next >= 0 {
			end = len(beginning) + next
		}
		b, _ := pem.Decode(text[:end])
		if b == nil {
			return blocks, &lineError{line, "the PEM block that begins here is damaged"}
		}
		if len(blocks) == maxBlocks {
			return blocks, &lineError{line, fmt.Sprintf("there are more than %d PEM blocks", maxBlocks)}
		}
		blocks = append(blocks, block{b, line})
		line += bytes.Count(text[:end], []byte("\n"))
		text = text[end:]
	}
	return blocks, nil
}

// beginningOf returns where the first line is that begins a block; -1: nowhere.
func beginningOf(text []byte) int {
	for from := 0; ; {
		i := bytes.Index(text[from:], beginning)
		if i < 0 {
			return -1
		}
		if i += from; i == 0 || text[i-1] == '\n' {
			return i
		}
		from = i + len(beginning)
	}
}

// A lineError is an error in a line of a file.
type lineError struct {
	line int
	text string
}

func (e *lineError) Error() string { return e.text }

func lineErrorf(line int, format string, args ...any) *lineError {
	return &lineError{line, fmt.Sprintf(format, args...)}
}

// inFile returns the error as a problem of a file.
func (e *lineError) inFile(path string) Problem {
	return Problem{File: path, Line: e.line, Text: e.text}
}
