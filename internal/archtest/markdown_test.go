package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// dated folders hold notes and results as they were written on their day. Nothing there is changed afterwards.
var dated = []string{"docs/design/", "bench/results/"}

// built folders are what git ignores: programs, packages, and what was installed for them.
var built = []string{"bin", "dist", "site"}

// A paragraph of Markdown is one line, and so is an item of a list.
func TestMarkdownIsNotWrapped(t *testing.T) {
	for name, text := range textFiles(t, ".md") {
		for _, n := range wrapped(text) {
			t.Errorf("%s:%d: continues the paragraph above: join the lines", name, n)
		}
	}
}

// blockStart matches a line that begins a block of its own: a heading, an item, a row, a quotation, HTML, or a rule.
var blockStart = regexp.MustCompile(`^ *(#|[-*+] |\d+\. |\||>|<|---|===|\[[^]]+\]: )`)

// wrapped returns the numbers of the lines that continue the paragraph of the line before. Code and front matter have
// lines of their own.
func wrapped(text string) (lines []int) {
	var code, front, paragraph bool
	for i, line := range strings.Split(text, "\n") {
		switch trimmed := strings.TrimSpace(line); {
		case line == "---" && (i == 0 || front):
			front, paragraph = !front, false
		case strings.HasPrefix(trimmed, "```"):
			code, paragraph = !code, false
		case code, front, trimmed == "", strings.HasPrefix(line, "    "), strings.HasPrefix(line, "\t"):
			paragraph = false
		default:
			if paragraph && !blockStart.MatchString(line) {
				lines = append(lines, i+1)
			}
			paragraph = true
		}
	}
	return lines
}

func TestWrapped(t *testing.T) {
	for text, want := range map[string][]int{
		"A line.\nAnother one.\n":                  {2},
		"# Title\nText\n":                          {2},
		"- an item\n  goes on\n- the next\n":       {2},
		"A line.\n\nAnother paragraph.\n":          nil,
		"- one\n- two\n1. three\n":                 nil,
		"| a | b |\n|---|---|\n| c | d |\n":        nil,
		"Text:\n\n    code\n    more code\n":       nil,
		"```yaml\na: 1\nb: 2\n```\n":               nil,
		"---\nname: a\nabout: b\n---\n\nText\n":    nil,
		"<!-- table -->\n| a |\n\n![a](b)\n":       nil,
		"1. one\n   goes on\n\nText\nand more\n\n": {2, 5},
	} {
		if got := wrapped(text); !slices.Equal(got, want) {
			t.Errorf("wrapped(%q) = %v, want %v", text, got, want)
		}
	}
}

// textFiles returns the files of the repository with one of these extensions, by their path from its root, without what
// is dated, hidden (except .github), built or test data.
func textFiles(t *testing.T, extensions ...string) map[string]string {
	t.Helper()
	return allFiles(t, dated, extensions...)
}

// allFiles returns the files of the repository with one of these extensions, by their path from its root, without those
// in the folders left out, and without what is hidden (except .github), built or test data.
func allFiles(t *testing.T, without []string, extensions ...string) map[string]string {
	t.Helper()
	root := filepath.Join("..", "..")
	files := map[string]string{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		base := d.Name()
		if d.IsDir() {
			hidden := base[0] == '.' && name != root && base != ".github"
			if hidden || base == "testdata" || base == "node_modules" || slices.Contains(built, rel) || slices.Contains(without, rel+"/") {
				return filepath.SkipDir
			}
			return nil
		}
		if !slices.Contains(extensions, filepath.Ext(base)) {
			return nil
		}
		text, err := os.ReadFile(name)
		files[rel] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatalf("no files %v", extensions)
	}
	return files
}
