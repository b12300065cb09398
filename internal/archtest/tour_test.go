package archtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// step matches a step of the tour: a link to a file and a line, twice, and the function that is declared there.
var step = regexp.MustCompile("\\[([^]:]+):(\\d+)\\]\\(\\.\\./([^)#]+)#L(\\d+)\\) `([\\w.]+)`")

// Each step of docs/tour.md leads to the declaration of the function that it names. With -update, lines are corrected.
func TestTour(t *testing.T) {
	page := filepath.Join("..", "..", "docs", "tour.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	next := step.ReplaceAllStringFunc(string(text), func(s string) string {
		steps++
		m := step.FindStringSubmatch(s)
		file, name := m[1], m[5]
		source, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(file)))
		if err != nil {
			t.Errorf("docs/tour.md: %v; where is %s now?", err, name)
			return s
		}
		line := declared(string(source), name)
		if line == 0 {
			t.Errorf("docs/tour.md: %s does not declare %s any more; where is it now?", file, name)
			return s
		}
		is := fmt.Sprintf("[%s:%d](../%s#L%d) `%s`", file, line, file, line, name)
		if is != s && !*update {
			t.Errorf("docs/tour.md: %s is in line %d of %s, not %s: run go test ./internal/archtest -run TestTour -update", name, line, file, m[2])
		}
		return is
	})
	if links := strings.Count(next, "#L"); steps < 20 || links != steps {
		t.Errorf("docs/tour.md has %d steps, and %d links to lines", steps, links)
	}
	if *update {
		if err := os.WriteFile(page, []byte(next), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// declared returns the line in which a source declares a function, or a method as Type.Method; 0 if it does not.
func declared(source, name string) int {
	receiver, method, ok := strings.Cut(name, ".")
	begin := "func " + receiver + "("
	if ok {
		begin = `func \((?:\w+ )?\*?` + receiver + `\) ` + method + `\(`
	} else {
		begin = regexp.QuoteMeta(begin)
	}
	at := regexp.MustCompile(`(?m)^` + begin).FindStringIndex(source)
	if at == nil {
		return 0
	}
	return strings.Count(source[:at[0]], "\n") + 1
}

func TestDeclared(t *testing.T) {
	source := "package a\n\n// B is c.\nfunc B() {}\n\nfunc (d *D) B() {}\nfunc (E) B() {}\nfunc (e E) Bc() {}\n"
	for name, want := range map[string]int{"B": 4, "D.B": 6, "E.B": 7, "E.Bc": 8, "Bc": 0, "F.B": 0} {
		if got := declared(source, name); got != want {
			t.Errorf("%s: line %d, want %d", name, got, want)
		}
	}
}
