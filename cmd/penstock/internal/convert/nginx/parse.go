package nginx

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
)

// Bounds of what is read.
const (
	maxFiles = 1000
	maxDepth = 16 // files that include files, and blocks in blocks
)

// directive is one directive of nginx, with what is in its braces.
type directive struct {
	convert.Place
	name  string
	args  []string
	block []*directive // nil: it ended with a semicolon
	used  bool         // something that is converted refers to it
}

// arg returns an argument, or "".
func (d *directive) arg(i int) string {
	if i < len(d.args) {
		return d.args[i]
	}
	return ""
}

// parser reads files of nginx. Included files are read in place.
type parser struct {
	*convert.Plan
	words int
	files int // that were included
	depth int // files that include each other

	included map[string]*included
}

// included is a file that was included, by its name in places.
type included struct {
	name string // as the configuration has it
	text []byte
	list []*directive
	kept bool   // it was looked at for a list
	as   string // the name of the list; empty: it is none
}

// token is a word, or one of ; { }.
type token struct {
	text string
	sign bool
	line int
}

// parse returns the directives of one file.
func (p *parser) parse(f convert.File) ([]*directive, *convert.Error) {
	tokens, err := p.tokens(f)
	if err != nil {
		return nil, err
	}
	list, rest, err := p.block(f.Name, tokens, 0)
	if err == nil && len(rest) > 0 {
		err = &convert.Error{File: f.Name, Line: rest[0].line, Text: `unexpected "}"`}
	}
	return list, err
}

// block reads directives until a closing brace, which it leaves, or the end.
func (p *parser) block(file string, tokens []token, depth int) ([]*directive, []token, *convert.Error) {
	list := []*directive{}
	if depth > maxDepth {
		return nil, nil, &convert.Error{File: file, Line: tokens[0].line, Text: fmt.Sprintf("more than %d blocks in each other", maxDepth)}
	}
	for len(tokens) > 0 {
		t := tokens[0]
		if t.sign && t.text == "}" {
			return list, tokens, nil
		}
		if t.sign {
			return nil, nil, &convert.Error{File: file, Line: t.line, Text: fmt.Sprintf("unexpected %q", t.text)}
		}
		d := &directive{Place: convert.Place{File: file, Line: t.line}, name: t.text}
		for tokens = tokens[1:]; len(tokens) > 0 && !tokens[0].sign; tokens = tokens[1:] {
			d.args = append(d.args, tokens[0].text)
		}
		if len(tokens) == 0 || tokens[0].text == "}" {
			return nil, nil, &convert.Error{File: file, Line: t.line, Text: fmt.Sprintf("the directive %s does not end with a semicolon", convert.Quote(d.name))}
		}
		open := tokens[0].text == "{"
		tokens = tokens[1:]
		if open {
			var err *convert.Error
			if d.block, tokens, err = p.block(file, tokens, depth+1); err != nil {
				return nil, nil, err
			}
			if len(tokens) == 0 {
				return nil, nil, &convert.Error{File: file, Line: t.line, Text: fmt.Sprintf("the block %s does not end", convert.Quote(d.name))}
			}
			tokens = tokens[1:]
		}
		if d.name == "include" && d.block == nil && len(d.args) == 1 {
			included, err := p.include(d)
			if err != nil {
				return nil, nil, err
			}
			list = append(list, included...)
			continue
		}
		list = append(list, d)
	}
	return list, nil, nil
}

// include reads the files that an include names. What cannot be read is listed.
func (p *parser) include(d *directive) ([]*directive, *convert.Error) {
	if strings.HasSuffix(d.arg(0), "mime.types") || strings.Contains(d.arg(0), "modules-enabled") {
		return nil, nil
	}
	if p.Source.Read == nil {
		p.Note(d.Place, "include %s was not read", d.arg(0))
		return nil, nil
	}
	files, err := p.Source.Read(d.arg(0))
	if err != nil {
		p.Note(d.Place, "include %s was not read: %v", d.arg(0), err)
		return nil, nil
	}
	if p.depth++; p.depth > maxDepth {
		return nil, &convert.Error{File: d.File, Line: d.Line, Text: fmt.Sprintf("more than %d files include each other", maxDepth)}
	}
	var list []*directive
	for _, f := range files {
		p.files++
		if !p.Spend(len(f.Text)) || p.files > maxFiles {
			return nil, &convert.Error{File: d.File, Line: d.Line, Text: fmt.Sprintf("too much is included; allowed: %d files and %d bytes in all", maxFiles, convert.MaxText)}
		}
		inner, err := p.parse(f)
		if err != nil {
			return nil, err
		}
		list = append(list, inner...)
		name := d.arg(0)
		if strings.ContainsAny(name, "*?[") {
			name = path.Join(path.Dir(name), path.Base(f.Name))
		}
		p.included[f.Name] = &included{name: name, text: f.Text, list: inner}
	}
	p.depth--
	return list, nil
}

// tokens cuts a file into words and signs.
func (p *parser) tokens(f convert.File) ([]token, *convert.Error) {
	var all []token
	text, line := f.Text, 1
	for i := 0; i < len(text); {
		c := text[i]
		switch c {
		case '\n':
			line++
			i++
			continue
		case ' ', '\t', '\r':
			i++
			continue
		case '#':
			for i < len(text) && text[i] != '\n' {
				i++
			}
			continue
		}
		if p.words++; p.words > convert.MaxWords {
			return nil, &convert.Error{File: f.Name, Line: line, Text: "too many words"}
		}
		if c == ';' || c == '{' || c == '}' {
			all = append(all, token{string(c), true, line})
			i++
			continue
		}
		begin := line
		word, n, lines, ok := cutWord(text[i:])
		if !ok {
			return nil, &convert.Error{File: f.Name, Line: begin, Text: "a quote does not end"}
		}
		line += lines
		i += n
		all = append(all, token{word, false, begin})
	}
	return all, nil
}

// cutWord reads a word, with or without quotes, and returns how many bytes and
// lines it took.
func cutWord(text []byte) (word string, n, lines int, ok bool) {
	var b strings.Builder
	quote := byte(0)
	if text[0] == '"' || text[0] == '\'' {
		quote = text[0]
		n = 1
	}
	for ; n < len(text); n++ {
		c := text[n]
		switch {
		case c == '\\' && n+1 < len(text):
			n++
			switch text[n] {
			case '"', '\'', '\\', ' ', ';', '{', '}':
				if text[n] == '\\' { // kept for regular expressions
					b.WriteByte('\\')
				}
				b.WriteByte(text[n])
			case 't':
				b.WriteByte('\t')
			case 'r':
				b.WriteByte('\r')
			case 'n':
				b.WriteByte('\n')
			default:
				b.WriteByte('\\')
				b.WriteByte(text[n])
			}
		case quote != 0 && c == quote:
			return b.String(), n + 1, lines, true
		case quote == 0 && c == '$' && n+1 < len(text) && text[n+1] == '{':
			end := strings.IndexByte(string(text[n:min(n+200, len(text))]), '}')
			if end < 0 {
				b.WriteByte(c)
				break
			}
			b.Write(text[n : n+end+1])
			n += end
		case quote == 0 && strings.IndexByte(" \t\r\n;{}", c) >= 0:
			return b.String(), n, lines, true
		default:
			b.WriteByte(c)
		}
		if n < len(text) && text[n] == '\n' {
			lines++
		}
	}
	return b.String(), n, lines, quote == 0
}

// keep remembers the file that a directive is from as a list of networks of a listener, if that is all that the file has: allow, deny, or ranges of
// a geo with one value.
func (n *conversion) keep(l *convert.Listener, d *directive) {
	f := n.included[d.File]
	if f == nil {
		return
	}
	if !f.kept {
		f.kept = true
		first := f.list[0]
		lines := first.name + " *"
		if first.name != "allow" && first.name != "deny" {
			lines = "* " + first.arg(0)
		}
		if !strings.ContainsAny(lines, "#;\"'\\\n\r\t") && strings.Count(lines, " ") == 1 && strings.Count(lines, "*") == 1 {
			f.as = n.KeepList(f.name, f.text, lines)
		}
	}
	if f.as != "" && !slices.Contains(l.Lists, f.as) {
		l.Lists = append(l.Lists, f.as)
	}
}
