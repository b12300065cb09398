package haproxy

import (
	"bytes"
	"slices"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
)

// maxPerLine bounds the words of one line.
const maxPerLine = 4096

// line is one line of HAProxy's configuration. Its words are read in turn, and those that
// nobody has read are listed.
type line struct {
	convert.Place
	no        bool // it began with "no"
	words     []string
	read      int  // how many of words have been read
	inherited bool // from a section defaults
}

// more reports whether there are words that have not been read.
func (l *line) more() bool { return l.read < len(l.words) }

// next reads a word; "": there is none.
func (l *line) next() string {
	if !l.more() {
		return ""
	}
	l.read++
	return l.words[l.read-1]
}

// peek returns the next word without reading it.
func (l *line) peek() string {
	if !l.more() {
		return ""
	}
	return l.words[l.read]
}

// rest reads all words that are left.
func (l *line) rest() []string {
	words := l.words[l.read:]
	l.read = len(l.words)
	return words
}

// text returns the whole line, for messages.
func (l *line) text() string { return strings.Join(l.words, " ") }

// section is one section of HAProxy's configuration, with the lines that it
// inherits from a section defaults.
type section struct {
	convert.Place
	kind, name string
	lines      []line // the inherited ones first
	from       string // of defaults, by name
}

// each calls read with each line and its first word, and lists the words that read leaves.
func (s *section) each(p *convert.Plan, read func(word string, l *line)) {
	for _, l := range s.lines {
		word := l.next()
		read(word, &l)
		if left := l.rest(); len(left) > 0 {
			p.Note(l.Place, "%s: no counterpart for %s", word, convert.Quoted(left))
		}
	}
}

// sectionWords begin sections. What HAProxy has beside the five that are
// converted is skipped as a whole.
var sectionWords = map[string]bool{
	"global": true, "defaults": true, "frontend": true, "backend": true, "listen": true,
	"peers": true, "resolvers": true, "userlist": true, "mailers": true, "program": true, "http-errors": true,
	"ring": true, "cache": true, "log-forward": true, "fcgi-app": true, "crt-store": true, "traces": true, "log-profile": true, "acme": true,
}

// readSections cuts a configuration into sections.
func readSections(p *convert.Plan, files []convert.File) ([]*section, *convert.Error) {
	x := &lexer{Plan: p, env: map[string]string{}, inherited: p.Source.Env}
	var all []*section
	var current *section
	skipping := 0 // .if that are open
	for _, f := range files {
		n := 0
		for text := range bytes.Lines(f.Text) {
			n++
			here := convert.Place{File: f.Name, Line: n}
			words, problem := x.words(here, string(text))
			if problem != "" {
				return nil, &convert.Error{File: f.Name, Line: n, Text: problem}
			}
			if len(words) == 0 {
				continue
			}
			if strings.HasPrefix(words[0], ".") {
				switch words[0] {
				case ".if":
					if skipping++; skipping == 1 {
						p.Note(here, "conditional blocks (.if to .endif) are left out")
					}
				case ".endif":
					skipping = max(skipping-1, 0)
				}
				continue
			}
			if skipping > 0 {
				continue
			}
			if sectionWords[words[0]] {
				current = &section{Place: here, kind: words[0]}
				rest := words[1:]
				if len(rest) > 0 && rest[0] != "from" {
					current.name, rest = rest[0], rest[1:]
				}
				if len(rest) > 1 && rest[0] == "from" {
					current.from, rest = rest[1], rest[2:]
				}
				if len(rest) > 0 {
					p.Note(here, "%s: no counterpart for %s", words[0], convert.Quoted(rest))
				}
				all = append(all, current)
				continue
			}
			l := line{Place: here, words: words}
			if words[0] == "no" && len(words) > 1 {
				l.no, l.words = true, words[1:]
			}
			if current == nil {
				return nil, &convert.Error{File: f.Name, Line: n, Text: convert.Quoted(words[:1]) + " before the first section; is this a configuration of HAProxy?"}
			}
			if current.kind == "global" {
				x.environment(words)
			}
			current.lines = append(current.lines, l)
		}
	}
	return inherit(p, all), nil
}

// inherit puts the lines of sections defaults in front of those that follow them.
func inherit(p *convert.Plan, all []*section) []*section {
	named := map[string]*section{}
	var last *section
	lines := 0
	for _, s := range all {
		from := last
		if s.from != "" {
			if from = named[s.from]; from == nil {
				p.Note(s.Place, "there is no section defaults %s", convert.Quote(s.from))
			}
		}
		switch s.kind {
		case "defaults":
			if s.from != "" && from != nil {
				s.lines = append(slices.Clone(from.lines), s.lines...)
			}
			last = s
			if s.name != "" {
				named[s.name] = s
			}
		case "frontend", "backend", "listen":
			if from != nil {
				if lines += len(from.lines); lines > convert.MaxWords {
					p.Note(s.Place, "too many lines: those of defaults are left out from here on")
					continue
				}
				own := s.lines
				s.lines = slices.Clone(from.lines)
				for i := range s.lines {
					s.lines[i].inherited = true
				}
				s.lines = append(s.lines, own...)
			}
		}
	}
	return all
}

// A lexer cuts lines into words. What the section global says of environment variables counts for the lines that follow.
type lexer struct {
	*convert.Plan
	env       map[string]string                // variables that the original sets itself
	inherited func(name string) (string, bool) // those of this process
}

// words cuts a line into words (HAProxy's configuration manual, 2.2):
// quotes, backslashes, comments, and environment variables in double quotes.
func (x *lexer) words(here convert.Place, text string) (words []string, problem string) {
	var word strings.Builder
	in, quote := false, byte(0)
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quote == '\'':
			if c == '\'' {
				quote = 0
			} else {
				word.WriteByte(c)
			}
		case c == '\\' && i+1 < len(text) && text[i+1] != '\n':
			i++
			in = true
			switch text[i] {
			case 'n':
				word.WriteByte('\n')
			case 'r':
				word.WriteByte('\r')
			case 't':
				word.WriteByte('\t')
			case 'x':
				if b, ok := hexByte(text[i+1:]); ok {
					word.WriteByte(b)
					i += 2
				} else {
					word.WriteByte('x')
				}
			default:
				word.WriteByte(text[i])
			}
		case quote == '"' && c == '"':
			quote = 0
		case quote == '"' && c == '$':
			value, n := x.variable(here, text[i+1:])
			word.WriteString(value)
			i += n
		case quote == '"':
			word.WriteByte(c)
		case c == '"' || c == '\'':
			quote, in = c, true
		case c == '#':
			i = len(text)
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\\':
			if in {
				words = append(words, word.String())
				word.Reset()
				in = false
			}
		default:
			in = true
			word.WriteByte(c)
		}
		if len(words) > maxPerLine {
			return nil, "too many words in one line"
		}
	}
	if quote != 0 {
		return nil, "a quote does not end in its line"
	}
	if in {
		words = append(words, word.String())
	}
	return words, ""
}

// environment keeps what a line of the section global says of environment variables, for the lines
// that follow.
func (x *lexer) environment(words []string) {
	switch names := words[1:]; words[0] {
	case "setenv", "presetenv":
		if len(names) != 2 {
			return
		}
		if _, set := x.getenv(names[0]); !set || words[0] == "setenv" {
			x.env[names[0]] = names[1]
		}
	case "unsetenv":
		for _, name := range names {
			x.env[name] = ""
		}
	case "resetenv":
		kept := map[string]string{}
		for _, name := range names {
			if v, ok := x.env[name]; ok {
				kept[name] = v
			} else if v, ok := x.getenv(name); ok {
				kept[name] = v
			}
		}
		x.env, x.inherited = kept, nil
	}
}

// getenv returns the value of a variable of the environment of this process.
func (x *lexer) getenv(name string) (string, bool) {
	if x.inherited == nil {
		return "", false
	}
	return x.inherited(name)
}

// variable expands the environment variable that text begins with, as NAME,
// {NAME} or {NAME-default}, and returns how many bytes it took.
func (x *lexer) variable(here convert.Place, text string) (value string, n int) {
	name, end := "", 0
	if strings.HasPrefix(text, "{") {
		if end = strings.IndexByte(text, '}'); end < 0 {
			return "$", 0
		}
		name = text[1:end]
		end++
	} else {
		for end < len(text) && (text[end] == '_' || text[end] >= '0' && text[end] <= '9' || text[end]|0x20 >= 'a' && text[end]|0x20 <= 'z') {
			end++
		}
		name = text[:end]
	}
	name, def, _ := strings.Cut(strings.TrimSuffix(name, "[*]"), "-")
	if name == "" {
		return "$", 0
	}
	if v, ok := x.env[name]; ok {
		return v, end
	}
	if v, ok := x.getenv(name); ok && len(v) < 1<<12 {
		x.Note(here, "the environment variable %s has been replaced by its value", convert.Quote(name))
		return v, end
	}
	if def == "" {
		x.Note(here, "the environment variable %s is not set here", convert.Quote(name))
	}
	return def, end
}

func hexByte(s string) (byte, bool) {
	if len(s) < 2 {
		return 0, false
	}
	var b byte
	for _, c := range []byte(s[:2]) {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		b = b<<4 | c
	}
	return b, true
}
