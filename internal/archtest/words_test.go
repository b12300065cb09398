package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The glossary of CONTRIBUTING.md is the list: the words in backticks of its column "never" occur nowhere, whether in
// prose, messages or names; those of its column "not as a name" are part of no name.
func TestWords(t *testing.T) {
	never, names := glossary(t)
	files := textFiles(t, ".go", ".md", ".yaml", ".yml", ".json", ".js", ".mjs", ".html", ".css", ".sh", ".service", ".socket", ".fish", ".bash")
	report := func(name, word, found, before string) {
		if !allowedWord(name, word) {
			line := 1 + strings.Count(before, "\n")
			t.Errorf("%s:%d: %q: the glossary of CONTRIBUTING.md has another word for %q", name, line, found, word)
		}
	}
	bad := map[string][]string{} // the banned words of each name, which occurs many times
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text := files[name]
		switch {
		case foreign(name):
			continue
		case name == "CONTRIBUTING.md":
			text = blank(text, glossaryPart)
		case name == "CHANGELOG.md":
			text = blank(text, backquoted)
		}
		at := 0
		for line := range strings.Lines(text) {
			lower := strings.ToLower(line)
			for _, word := range never {
				if !strings.Contains(lower, word.hint) {
					continue
				}
				for _, found := range word.pattern.FindAllStringIndex(line, -1) {
					report(name, word.text, line[found[0]:found[1]], text[:at+found[0]])
				}
			}
			at += len(line)
		}
		for _, n := range namesIn(name, text) {
			words, ok := bad[n.text]
			if !ok {
				lower := strings.ToLower(n.text)
				for _, word := range names {
					if strings.Contains(lower, word.hint) && word.pattern.MatchString(n.text) {
						words = append(words, word.text)
					}
				}
				bad[n.text] = words
			}
			for _, word := range words {
				report(name, word, n.text, text[:n.at])
			}
		}
	}
	for _, e := range wordExceptions {
		if !e.used {
			t.Errorf("the exception of %q in %s is not needed any more", e.word, e.where)
		}
	}
}

// A word of the glossary has another meaning in these places. The table is not a place for what is still to be renamed.
var wordExceptions = []*wordException{
	{where: "splice/", word: "a-reset", why: "package splice is symmetrical: its sides are a and b"},
	{where: "splice/", word: "b-reset", why: "as for a-reset"},
	{where: "splice/", word: "a-failed", why: "as for a-reset"},
	{where: "splice/", word: "b-failed", why: "as for a-reset"},
	{where: "bench/internal/world/", word: "bytes_received", why: "tcpi_bytes_received, a field of the kernel's"},
	{where: "cmd/penstock/scale/", word: "bytes_received", why: "what ss(8) prints"},
	{where: "cmd/penstock/scale/", word: "bytes_sent", why: "as for bytes_received"},
	{where: "relay/", word: "bytes_received", why: "tcpi_bytes_received, a field of the kernel's"},
	{where: "docs/kernel.md", word: "bytes_received", why: "as in relay/"},
	{where: "cmd/penstock/internal/earlykeeper/policy.go", word: "confined", why: "a key of the policy, which the keeper of an earlier version reads"},
	{where: "cmd/penstock/internal/config/errors.go", word: "backend", why: "the names that other products have, to suggest ours"},
	{where: "cmd/penstock/internal/config/errors.go", word: "frontend", why: "as for backend"},
	{where: "cmd/penstock/internal/convert/", word: "backend", why: "the directives of HAProxy and nginx"},
	{where: "cmd/penstock/internal/convert/", word: "frontend", why: "as for backend"},
	{where: "cmd/penstock/internal/convert/", word: "session", why: "as for backend"},
	{where: "cmd/penstock/internal/convert/", word: "force", why: "as for backend"},
	{where: "docs/migration.md", word: "backend", why: "as for backend"},
	{where: "docs/migration.md", word: "session", why: "as for backend"},
	{where: "docs/migration.md", word: "force", why: "as for backend"},
	{where: "docs/migration.md", word: "extra", why: "as for backend"},
	{where: "cmd/penstock/internal/xds/", word: "session", why: "names of Envoy's fields"},
	{where: "packaging/site/mkdocs.yml", word: "extra", why: "keys of the generator's"},
	{where: "cmd/penstock/internal/xds/", word: "extra", why: "names of Envoy's fields"},
	{where: "bench/trials/installed/", word: "session", why: "the name of a package of Debian"},
	{where: "bench/trials/tlsconformance/", word: "session", why: "names of scripts and scans of other tools"},
	{where: "docs/xds.md", word: "session", why: "names of Envoy's fields"},
	{where: "docs/xds.md", word: "extra", why: "names of Envoy's fields"},
}

type wordException struct {
	where, word, why string
	used             bool
}

func allowedWord(name, word string) bool {
	allowed := false
	for _, e := range wordExceptions {
		if e.word == word && (name == e.where || strings.HasSuffix(e.where, "/") && strings.HasPrefix(name, e.where)) {
			e.used, allowed = true, true
		}
	}
	return allowed
}

// foreign reports whether a file is somebody else's text, or this test.
func foreign(name string) bool {
	base := filepath.Base(name)
	return strings.HasPrefix(base, "uPlot") || name == "internal/archtest/words_test.go"
}

// A banned is a word of the glossary that something else has replaced.
type banned struct {
	text    string
	pattern *regexp.Regexp
	hint    string // a part of every match, in small letters
}

// newBanned returns the pattern of a word, or of several in a row: as words of prose, and as parts of a name in any of
// the usual spellings (aWord, a_word, a-word, AWord), also in the plural.
func newBanned(text string) banned {
	parts := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" _-", r) })
	var lower, camel []string
	for _, p := range parts {
		p = regexp.QuoteMeta(p)
		if p == strings.ToUpper(p) { // AB: a name of capitals stays one
			lower, camel = append(lower, p), append(camel, p)
			continue
		}
		initial := "[" + strings.ToUpper(p[:1]) + strings.ToLower(p[:1]) + "]"
		lower = append(lower, initial+p[1:])
		camel = append(camel, strings.ToUpper(p[:1])+p[1:])
	}
	between := `[ _-]?`
	if strings.ContainsAny(text, "_-") { // a-reset and aReset, not "a reset"
		between = `[_-]?`
	}
	plural, after := `s?`, `(?:\b|_|[A-Z0-9])`
	if text == strings.ToUpper(text) {
		plural, after = ``, `(?:\b|_|[0-9]|[A-Z][a-z])` // AB and toABPath, not ABI
	}
	longest := slices.MaxFunc(parts, func(a, b string) int { return len(a) - len(b) })
	return banned{text, regexp.MustCompile(
		`(?:\b|_)` + strings.Join(lower, between) + plural + after + `|[a-z0-9]` + strings.Join(camel, "") + plural + after),
		strings.ToLower(longest)}
}

var (
	glossaryPart = regexp.MustCompile(`(?ms)^## Words\n.*?^## `)
	backquoted   = regexp.MustCompile("`[^`\n]*`")
)

// glossary reads the table of CONTRIBUTING.md.
func glossary(t *testing.T) (never, names []banned) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, line := range strings.Split(glossaryPart.FindString(string(text)), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 6 || strings.HasPrefix(cells[1], "-") || strings.TrimSpace(cells[1]) == "word" {
			continue
		}
		rows++
		for i, list := range []*[]banned{&never, &names} {
			for _, quoted := range backquoted.FindAllString(cells[3+i], -1) {
				*list = append(*list, newBanned(strings.Trim(quoted, "`")))
			}
		}
	}
	if rows < 15 || len(never) < 10 || len(names) < 10 {
		t.Fatalf("CONTRIBUTING.md has a glossary of %d rows, with %d and %d banned words", rows, len(never), len(names))
	}
	return never, names
}

// A name is one that the project gives: an identifier, a key, a field, a metric, a value of an enumeration.
type name struct {
	text string
	at   int // its place in the file
}

var (
	nameShape  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*([_.-][A-Za-z0-9]+)*$`)
	yamlKey    = regexp.MustCompile(`(?m)(?:^|[{,-])[ ]*([A-Za-z][\w-]*):(?:\s|$)`)
	yamlNote   = regexp.MustCompile(`(?m)(?:^|\s)#.*$`)
	scriptName = regexp.MustCompile(`(?:\b(?:const|let|var|function|class)\s+|\.)([A-Za-z_]\w*)|([A-Za-z_]\w*):`)
	scriptNote = regexp.MustCompile(`(?m)(?:^|\s)//.*$`)
	metricName = regexp.MustCompile(`\bpenstock_\w+`)
	structTag  = regexp.MustCompile(`(?:json|yaml):"([\w-]+)`)
)

func namesIn(file, text string) (found []name) {
	add := func(pattern *regexp.Regexp, text string) {
		for _, at := range pattern.FindAllStringSubmatchIndex(text, -1) {
			for g := len(at) - 2; g >= 0; g -= 2 {
				if at[g] >= 0 && (g > 0 || len(at) == 2) {
					found = append(found, name{text[at[g]:at[g+1]], at[g]})
					break
				}
			}
		}
	}
	switch filepath.Ext(file) {
	case ".go":
		found = goNames(file, text)
	case ".md":
		for _, at := range backquoted.FindAllStringIndex(text, -1) {
			if n := strings.Trim(text[at[0]:at[1]], "`"); nameShape.MatchString(n) {
				found = append(found, name{n, at[0]})
			}
		}
	case ".yaml", ".yml":
		add(yamlKey, blank(text, yamlNote))
	case ".js", ".mjs":
		add(scriptName, blank(text, scriptNote))
	}
	if filepath.Ext(file) != ".go" {
		add(metricName, text)
	}
	return found
}

// goNames returns the identifiers that a file declares, and the names in its strings: of fields, attributes, metrics,
// states.
func goNames(file, text string) (found []name) {
	f, err := parseFile(token.NewFileSet(), file, []byte(text))
	if err != nil {
		return nil // another test tells
	}
	add := func(pos token.Pos, text string) {
		found = append(found, name{text, f.fset.Position(pos).Offset})
	}
	ids := func(list ...*ast.Ident) {
		for _, id := range list {
			if id != nil {
				add(id.Pos(), id.Name)
			}
		}
	}
	add(f.syntax.Name.Pos(), strings.TrimSuffix(filepath.Base(file), ".go"))
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			ids(n.Name)
		case *ast.TypeSpec:
			ids(n.Name)
		case *ast.ValueSpec:
			ids(n.Names...)
		case *ast.Field:
			ids(n.Names...)
		case *ast.RangeStmt:
			for _, x := range []ast.Expr{n.Key, n.Value} {
				if id, ok := x.(*ast.Ident); ok && n.Tok == token.DEFINE {
					ids(id)
				}
			}
		case *ast.AssignStmt:
			for _, x := range n.Lhs {
				if id, ok := x.(*ast.Ident); ok && n.Tok == token.DEFINE {
					ids(id)
				}
			}
		case *ast.ImportSpec:
			ids(n.Name)
			return false
		case *ast.BasicLit:
			if n.Kind != token.STRING || f.test {
				return true
			}
			value, err := strconv.Unquote(n.Value)
			switch {
			case err != nil:
			case nameShape.MatchString(value):
				add(n.Pos(), value)
			default:
				for _, m := range structTag.FindAllStringSubmatch(value, -1) {
					add(n.Pos(), m[1])
				}
				for _, m := range metricName.FindAllString(value, -1) {
					add(n.Pos(), m)
				}
			}
		}
		return true
	})
	return found
}

// blank replaces what a pattern matches by spaces, so that lines keep their numbers.
func blank(text string, pattern *regexp.Regexp) string {
	return pattern.ReplaceAllStringFunc(text, func(s string) string {
		return strings.Map(func(r rune) rune {
			if r == '\n' {
				return r
			}
			return ' '
		}, s)
	})
}

func TestBannedWords(t *testing.T) {
	for _, c := range []struct {
		word, text string
		want       bool
	}{
		{"way", "way", true},
		{"way", "ways", true},
		{"way", "flow_ways_total", true},
		{"way", "pathWay", true},
		{"way", "wayOf", true},
		{"way", "always", false},
		{"way", "gateway", false},
		{"way", "away", false},
		{"parked", "Parked flows", true},
		{"parked", "isParked", true},
		{"parked", "sparked", false},
		{"in force", "what is in force now", true},
		{"in force", "in forceful terms", false},
		{"bytes_sent", "bytes_sent", true},
		{"bytes_sent", "BytesSent", true},
		{"bytes_sent", "the bytes sent", false},
		{"kept back", "bytes are kept back", true},
		{"kept back", "keptBack", true},
		{"a-gone", "a-gone", true},
		{"a-gone", "CauseAGone", true},
		{"a-gone", "media-gone", false},
		{"a-gone", "a gone flow", false},
		{"AB", "AB", true},
		{"AB", "resultAB", true},
		{"AB", "ABI", false},
		{"AB", "tab", false},
		{"AB", "DATABASE", false},
	} {
		if got := newBanned(c.word).pattern.MatchString(c.text); got != c.want {
			t.Errorf("%q matches %q: %v, want %v", c.word, c.text, got, c.want)
		}
	}
}

func TestNamesIn(t *testing.T) {
	for _, c := range []struct{ file, text, want string }{
		{"a.go", "package p\n\ntype T struct {\n\tF int `json:\"f_x,omitempty\"`\n}\n\n// Note\nfunc (t T) M(a int) (b error) { c, d := \"queued\", \"some text\"; for e := range 3 {}; return a.Other() }\n",
			"a T F f_x M t a b c d queued e"},
		{"a.md", "Text `key` and `some code` and penstock_ready.\n", "key penstock_ready"},
		{"a.yaml", "# note: x\nkey: {inner: 1, \"quoted\": 2}\nlist:\n  - item-key: a # and: this\n", "key inner list item-key"},
		{"a.js", "// note: x\nconst a = {key: b.field};\nfunction f() {}\n", "a key field f"},
	} {
		var got []string
		for _, n := range namesIn(c.file, c.text) {
			got = append(got, n.text)
		}
		if s := fmt.Sprint(got); s != "["+c.want+"]" {
			t.Errorf("names in %s: %v, want [%s]", c.file, s, c.want)
		}
	}
}
