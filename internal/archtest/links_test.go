package archtest

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// Links between pages, and to their sections, lead somewhere. So do the names of pages that comments and messages
// have, from the root of the repository, and their addresses at GitHub.
func TestLinks(t *testing.T) {
	pages := allFiles(t, nil, ".md")
	check := func(name string, line int, link, target, anchor string) {
		if _, err := os.Stat(filepath.Join("..", "..", target)); err != nil {
			t.Errorf("%s:%d: %s: there is no file %s", name, line, link, target)
			return
		}
		if anchor == "" || ofLine.MatchString(anchor) && path.Ext(target) == ".go" { // TestTour follows those
			return
		}
		if text, ok := pages[target]; !ok || !slices.Contains(anchors(text), anchor) {
			t.Errorf("%s:%d: %s: %s has no section of that name", name, line, link, target)
		}
	}
	for name, text := range pages {
		for _, l := range links(text) {
			target, anchor, _ := strings.Cut(l.to, "#")
			if target == "" {
				target = path.Base(name)
			}
			check(name, l.line, l.to, path.Join(path.Dir(name), target), anchor)
		}
	}
	files := allFiles(t, dated, ".md", ".go", ".yaml", ".yml", ".json", ".js", ".html", ".sh", ".service", ".socket")
	delete(files, "internal/archtest/links_test.go") // has examples
	for name, text := range files {
		for i, line := range strings.Split(text, "\n") {
			for _, m := range pageName.FindAllStringSubmatch(line, -1) {
				check(name, i+1, m[0], m[1], m[2])
			}
		}
	}
}

// pageName matches the name of a page, from the root of the repository, or its address at GitHub.
var pageName = regexp.MustCompile(`(?:^|[^\w./-]|github\.com/penstock/penstock/blob/main/)(docs/[\w./-]+\.md)(?:#([\w-]+))?`)

// ofLine matches the anchor of a line of a file at GitHub.
var ofLine = regexp.MustCompile(`^L\d+$`)

type link struct {
	line int
	to   string
}

var (
	linkTo   = regexp.MustCompile(`\]\(([^()\s]+)\)|\b(?:href|src|srcset)="([^"]+)"`)
	inCode   = regexp.MustCompile("`[^`]*`")
	external = regexp.MustCompile(`^[a-z]+:`)
)

// links returns the links of a page of Markdown to files and sections.
func links(text string) (all []link) {
	prose(text, func(line int, text string) {
		for _, m := range linkTo.FindAllStringSubmatch(inCode.ReplaceAllString(text, ""), -1) {
			if to := m[1] + m[2]; !external.MatchString(to) {
				all = append(all, link{line, to})
			}
		}
	})
	return all
}

var (
	heading  = regexp.MustCompile(`^#+ +(.*?)[ #]*$`)
	linkText = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
)

// anchors returns what the headings of a page are called in links to them, by GitHub's rules: lower case, without
// punctuation, with a hyphen for each space, and a number if there was one of the same name.
func anchors(text string) (all []string) {
	count := map[string]int{}
	prose(text, func(_ int, line string) {
		m := heading.FindStringSubmatch(line)
		if m == nil {
			return
		}
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || unicode.In(r, unicode.Letter, unicode.Mark, unicode.Nd, unicode.Pc):
				return unicode.ToLower(r)
			}
			return -1
		}, linkText.ReplaceAllString(m[1], "$1"))
		if n := count[name]; n > 0 {
			all = append(all, fmt.Sprintf("%s-%d", name, n))
		} else {
			all = append(all, name)
		}
		count[name]++
	})
	return all
}

// prose calls f with the lines of a page that are not code in a fence.
func prose(text string, f func(line int, text string)) {
	code := false
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		} else if !code {
			f(i+1, line)
		}
	}
}

func TestAnchors(t *testing.T) {
	text := "# The `foo` of *x*\n```\n# no heading\n```\n## A, and b-c_d: [e](f.md#g)!\n## Twice\n### Twice ###\n## Über 2²\n"
	if got, want := anchors(text), []string{"the-foo-of-x", "a-and-b-c_d-e", "twice", "twice-1", "über-2"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestPageLinks(t *testing.T) {
	text := "[a](b.md) `[c](d)` ![e](f/g.png)\n```\n[h](i)\n```\n[j](https://k/l) [m](#n) [![o](p.svg)](q) <img src=\"r.png\">\n"
	want := []link{{1, "b.md"}, {1, "f/g.png"}, {5, "#n"}, {5, "p.svg"}, {5, "q"}, {5, "r.png"}}
	if got := links(text); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for text, want := range map[string][]string{
		"// docs/a.md explains":                                      {"docs/a.md", ""},
		"see (docs/design/b-1.md#c-d).":                              {"docs/design/b-1.md", "c-d"},
		"/usr/share/docs/e.md":                                       nil,
		"https://github.com/penstock/penstock/blob/main/docs/f.md#g": {"docs/f.md", "g"},
	} {
		var got []string
		if m := pageName.FindStringSubmatch(text); m != nil {
			got = m[1:]
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
