package keeper

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/penstock/penstock/internal/sys"
)

// What the binary of an upgrade writes before it connects says why it does not: it is another program, or cannot be
// loaded, or does not know its flags. So its standard output and standard error are memory until then, which takes
// maxOutput bytes and no more. Descriptors with the keeper's own come along, and Connect moves them to where they belong.
const maxOutput = 16 << 10

// maxFirstLine is the maximum length of the line that becomes part of Upgrade.Reason.
const maxFirstLine = 200

// newOutput returns such a memory.
func newOutput() (fd int, err error) {
	fd, e := sys.Memfd("output", maxOutput)
	if e != 0 {
		return -1, os.NewSyscallError("memfd_create", e)
	}
	return fd, nil
}

// readOutput returns what was written to the memory.
func readOutput(fd int) string {
	b, e := sys.Map(fd, maxOutput)
	if e != 0 {
		return ""
	}
	defer sys.Unmap(b)
	return string(bytes.TrimRight(b, "\x00"))
}

// printableLines returns text without control characters but for the ends of lines: anybody may have written it, and it goes to logs.
func printableLines(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}

// firstLine returns the first line of printable text that is not empty, or the beginning of it.
func firstLine(text string) string {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if runes := []rune(line); len(runes) > maxFirstLine {
			line = string(runes[:maxFirstLine])
		}
		if line != "" {
			return line
		}
	}
	return ""
}

// takeOutput gives a worker the keeper's standard output and standard error, and passes on what it has written so far.
func takeOutput() {
	text, ok := os.LookupEnv(outputEnv)
	if !ok {
		return
	}
	os.Unsetenv(outputEnv)
	first, err := strconv.Atoi(text)
	if err != nil || first < 3 {
		return
	}
	sys.MoveOutput(first, readOutput(2))
}
