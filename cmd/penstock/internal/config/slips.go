package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// Slips: texts that are not YAML for one of a few common reasons, which the YAML library tells in
// its own words. They are found by looking at the text where the library stopped.

// syntax reports a syntax error that the YAML library found.
func (l *loader) syntax(from *source, text []byte, err error) {
	at := &place{from: from, index: -1, line: 1, col: 1}
	var e *yaml.LoadError
	if !errors.As(err, &e) {
		l.r.fail(at, fault{problem: "invalid YAML: " + oneLine(err.Error())})
		return
	}
	line, col, f := badCharacter(text)
	if f == nil || e.Mark.Line > 0 && e.Mark.Line < line {
		line, col, f = slip(text, e.Mark.Line, e.Mark.Column)
	}
	if at.line, at.col = max(line, 1), max(col, 1); f != nil {
		l.r.fail(at, *f)
		return
	}
	problem := "invalid YAML: " + e.Message
	if e.ContextMsg != "" {
		problem += fmt.Sprintf(", %s that begins at line %d", e.ContextMsg, e.ContextMark.Line)
	}
	l.r.fail(at, fault{problem: oneLine(problem)})
}

// badCharacter returns the first byte of a text that is not UTF-8, or the first character that YAML
// does not have, with what is wrong about it. Texts in UTF-16, which YAML also has, have none.
func badCharacter(text []byte) (line, col int, f *fault) {
	line, col = 1, 1
	if len(text) > 1 && (text[0] == 0xff && text[1] == 0xfe || text[0] == 0xfe && text[1] == 0xff) {
		return line, col, nil
	}
	for len(text) > 0 {
		c, n := utf8.DecodeRune(text)
		switch {
		case c == utf8.RuneError && n == 1:
			return line, col, &fault{problem: fmt.Sprintf("the byte 0x%02X is not UTF-8", text[0]), allowed: "a text in UTF-8"}
		case c == '\n':
			line, col = line+1, 0
		case c < ' ' && c != '\t' && c != '\r', c >= 0x7f && c < 0xa0 && c != 0x85, c == 0xfffe, c == 0xffff:
			return line, col, &fault{problem: fmt.Sprintf("the control character %U", c), allowed: `a text without it; in double quotes "\n" and "\x00" stand for such characters`}
		}
		text, col = text[n:], col+1
	}
	return line, col, nil
}

// slip returns what is wrong where the YAML library stopped, and the place of that; nil: nothing
// that is known.
func slip(text []byte, line, col int) (int, int, *fault) {
	at, ok := lineOf(text, line)
	if !ok || col < 1 || col > len(at)+1 {
		return line, col, nil
	}
	before, after := at[:col-1], at[col-1:]
	whole := string(at)
	indent := whole[:len(whole)-len(strings.TrimLeft(whole, " \t"))]
	if tab := strings.IndexByte(indent, '\t'); tab >= 0 {
		return line, tab + 1, &fault{problem: "a tab in the indentation", allowed: "spaces; YAML has no tabs there"}
	}
	if n := len(before); n > 0 && before[n-1] == '*' { // the library stops behind a lone *
		col--
		before, after = at[:col-1], at[col-1:]
	}
	if len(after) == 0 {
		return line, col, nil
	}
	return line, col, slipAt(string(before), string(after))
}

// slipAt is slip within a line, of which after begins where the library stopped.
func slipAt(before, after string) *fault {
	inQuotes := func(problem, value string) *fault {
		return &fault{problem: problem, near: strconv.Quote(value), allowed: "such a value in quotes"}
	}
	word := untilSeparator(after)
	switch c := after[0]; {
	case c == '{' && strings.HasSuffix(before, "$"):
		begin := strings.LastIndexAny(strings.TrimSuffix(before, "$"), separators) + 1
		variable, rest, ok := strings.Cut(after, "}")
		if !ok {
			return nil
		}
		return inQuotes("inside of [...] and {...}, a value with ${ ends at its brace", before[begin:]+variable+"}"+untilSeparator(rest))
	case strings.HasPrefix(after, "*.") || word == "*":
		return inQuotes("a value that begins with * is an alias in YAML", word)
	case c == '*':
		return &fault{problem: "no anchor &" + word[1:] + " comes before this alias", allowed: "an alias of an anchor, or a value in quotes"}
	case c == '@' || c == '`' || c == '%':
		return inQuotes("a value cannot begin with "+string(c)+" in YAML", word)
	case c == ':':
		return &fault{problem: "a key where none can be", allowed: `keys of one mapping with the same indentation, and values that contain ": " in quotes`}
	}
	return nil
}

// separators end a value inside of [...] and {...}.
const separators = " \t\r\n,[]{}"

func untilSeparator(s string) string {
	if i := strings.IndexAny(s, separators); i >= 0 {
		return s[:i]
	}
	return s
}

// lineOf returns a line of a text, in characters, with its end.
func lineOf(text []byte, n int) ([]rune, bool) {
	for line := range strings.Lines(string(text)) {
		if n--; n == 0 {
			return []rune(line), true
		}
	}
	return nil, false
}
