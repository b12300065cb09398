package archtest

import (
	"fmt"
	"go/build/constraint"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const maxLines = 800

func TestFiles(t *testing.T) {
	for _, f := range tree(t) {
		for _, complaint := range checkFile(f) {
			t.Error(complaint)
		}
	}
}

// unfinished is built from parts so that this file passes the test.
var unfinished = regexp.MustCompile(`\b(` + strings.Join([]string{"TO" + "DO", "FIX" + "ME", "X" + "XX"}, "|") + `)\b`)

var vague = []string{"util", "utils", "helper", "helpers", "common", "misc", "manager"}

func checkFile(f *file) (complaints []string) {
	if f.lines > maxLines {
		complaints = append(complaints, fmt.Sprintf("%s: %d lines, split it (at most %d)", f.path, f.lines, maxLines))
	}
	if name := f.syntax.Name.Name; slices.Contains(vague, name) {
		complaints = append(complaints, fmt.Sprintf("%s: the package name %s says nothing: name what it holds", f.path, name))
	}
	for _, g := range f.syntax.Comments {
		for _, c := range g.List {
			if strings.HasPrefix(c.Text, "// \\t") {
				complaints = append(complaints, fmt.Sprintf("%s: the comment begins with a backslash and a t: what is indented begins with a tab", f.fset.Position(c.Pos())))
			}
		}
		if unfinished.MatchString(g.Text()) {
			complaints = append(complaints, fmt.Sprintf("%s: the comment marks something unfinished", f.fset.Position(g.Pos())))
		}
	}
	if strings.HasSuffix(strings.TrimSuffix(f.path, "_test.go"), "_stub") || strings.HasSuffix(f.path, "_stub.go") {
		if c := buildLine(f); c != "!linux" {
			complaints = append(complaints, fmt.Sprintf("%s: a stub is built for !linux, not for %q", f.path, c))
		}
	}
	return complaints
}

// buildLine returns the expression of f's //go:build line.
func buildLine(f *file) string {
	for _, g := range f.syntax.Comments {
		if g.Pos() > f.syntax.Package {
			break
		}
		for _, c := range g.List {
			if x, err := constraint.Parse(c.Text); err == nil {
				return x.String()
			}
		}
	}
	return ""
}
