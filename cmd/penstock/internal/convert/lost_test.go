package convert

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// outcome is all that a conversion says.
func outcome(from Product, name, text string) string {
	r, err := Convert(from, []File{{name, []byte(text)}}, folder("testdata"))
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(string(r.YAML), r.Notes)
}

// told reports whether there is a note at a line, or its section is left out.
func told(outcome string, name string, lines []string, i int) bool {
	if strings.Contains(outcome, fmt.Sprintf("%s:%d: ", name, i+1)) {
		return true
	}
	if strings.Contains(lines[i], "-check ") && strings.Contains(outcome, ": the check of ") {
		return true // the check is left out as a whole
	}
	for ; i >= 0; i-- {
		if words := strings.Fields(lines[i]); len(words) > 0 && (sectionWords[words[0]] || words[len(words)-1] == "{") {
			_, note, ok := strings.Cut(outcome, fmt.Sprintf("%s:%d: ", name, i+1))
			note, _, _ = strings.Cut(note, name+":")
			return ok && (strings.Contains(note, "left out") || strings.Contains(note, "it is disabled"))
		}
	}
	return false
}

// Nothing of an original is left out without a word: without a line, or an option of one, the
// result differs somewhere, or its word is on the list of those that change nothing here.
func TestNothingIsLost(t *testing.T) {
	shown, silent := map[string]bool{}, map[string]string{}
	for _, path := range originals(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(path)
		from := Guess(File{Name: name})
		base := outcome(from, name, string(text))
		lines := strings.SplitAfter(string(text), "\n")
		for i, line := range lines {
			for without, what := range variants(from, lines, i) {
				rest := slices.Clone(lines)
				rest[i] = without
				if told(base, name, lines, i) {
					shown[what] = true
				} else if outcome(from, name, strings.Join(rest, "")) != base {
					shown[what] = true
				} else {
					silent[what] = fmt.Sprintf("%s:%d: %s", name, i+1, strings.TrimSpace(line))
				}
			}
		}
	}
	if len(shown) < 200 {
		t.Errorf("only %d directives and options are converted or listed", len(shown))
	}
	for what, where := range silent {
		if from, rest, _ := strings.Cut(what, " "); !shown[what] && !nothing(Product(from), strings.Fields(rest)[0], strings.Join(strings.Fields(rest)[1:], " ")) {
			t.Errorf("%s changes nothing: %s", what, where)
		}
	}
}

// variants are a line without all of it, and without each of its options, with a name for what is missing.
func variants(from Product, lines []string, i int) map[string]string {
	if from == Nginx {
		return nginxVariants(lines, i)
	}
	p := &plan{seen: map[Note]bool{}}
	words, _ := p.haproxyWords(at{}, lines[i])
	section := ""
	for j := i; j >= 0 && section == ""; j-- {
		if w, _ := p.haproxyWords(at{}, lines[j]); len(w) > 0 && sectionWords[w[0]] {
			if section = w[0]; j == i {
				return nil
			}
		}
	}
	if len(words) == 0 || section == "" || strings.HasPrefix(words[0], ".") || slices.Contains(lines[:i], ".if feature(OPENSSL)\n") {
		return nil
	}
	if section == "defaults" && slices.Contains(lines, "\tmode http\n") && slices.Index(lines, "\tmode http\n") <= i && !slices.Contains(lines[i:], "\tmode tcp\n") {
		return nil // of sections that are left out
	}
	if words[0] == "no" {
		words = words[1:]
	}
	list := map[string]string{}
	where := "proxy " + words[0]
	switch {
	case section == "global":
		where = "global " + words[0]
	case section != "defaults" && section != "frontend" && section != "backend" && section != "listen":
		return nil // left out as a whole
	}
	if len(words) > 1 && slices.Contains([]string{"option", "timeout", "stats", "tcp-check", "tcp-request", "http-check"}, words[0]) {
		where = words[0] + " " + words[1]
	}
	list["\n"] = "haproxy " + where
	skip := map[string]int{"bind": 2, "server": 3, "default-server": 1, "server-template": 4}[words[0]]
	for j := skip; skip > 0 && j < len(words); j++ {
		n, kind := 1, "server"
		values := serverWords
		if words[0] == "bind" {
			kind, values = "bind", bindWords
		}
		if values[words[j]] {
			n = 2
		}
		rest := append(slices.Clone(words[:j]), words[min(j+n, len(words)):]...)
		for k := range rest {
			rest[k] = "'" + rest[k] + "'"
		}
		list[strings.Join(rest, " ")+"\n"] = "haproxy " + kind + " " + words[j]
		j += n - 1
	}
	return list
}

// nginxVariants are a line without each of its directives.
func nginxVariants(lines []string, i int) map[string]string {
	list := map[string]string{}
	var blocks []string // that are open
	for k, line := range lines[:i+1] {
		begin, quoted := 0, false
		for j := 0; j < len(line); j++ {
			switch c := line[j]; {
			case c == '"':
				quoted = !quoted
			case quoted:
			case c == '#':
				j = len(line)
			case c == '}':
				blocks, begin = blocks[:len(blocks)-1], j+1
			case c == '{' && (j == 0 || line[j-1] != '$'):
				blocks, begin = append(blocks, strings.Fields(line[begin:j])[0]), j+1
			case c == ';':
				where := "main"
				if n := len(blocks); n > 0 {
					where = strings.Replace(blocks[n-1], "server", "stream", 1)
				}
				directive := line[begin:j]
				skipped := slices.Contains(blocks, "http") || slices.Contains([]string{"map", "geo", "split_clients"}, where) || strings.Contains(line, "modules-enabled")
				if k == i && !skipped { // parts of what is left out as a whole, or of variables
					list[line[:begin]+line[j+1:]] = "nginx " + where + " " + strings.Fields(directive)[0]
				}
				begin = j + 1
			}
		}
	}
	return list
}

// What nobody knows is listed, wherever it stands.
func TestUnknownIsListed(t *testing.T) {
	for _, path := range originals(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(path)
		from := Guess(File{Name: name})
		lines := strings.SplitAfter(string(text), "\n")
		base := outcome(from, name, string(text))
		for i, line := range lines {
			for without, what := range variants(from, lines, i) {
				if told(base, name, lines, i) {
					continue
				}
				rest := slices.Clone(lines)
				trimmed := strings.TrimRight(line, "\n")
				switch {
				case from == Nginx:
					at := 0 // of the directive that is missing
					for at < len(without) && at < len(line) && without[at] == line[at] {
						at++
					}
					at = strings.LastIndexAny(line[:at], ";{}") + 1
					rest[i] = line[:at] + " zz_unknown 1; " + line[at:]
				case without == "\n":
					rest[i] = trimmed + "\n zz-unknown\n"
				default:
					continue
				}
				if got := outcome(from, name, strings.Join(rest, "")); !strings.Contains(got, "zz") {
					t.Errorf("%s:%d: a directive beside %s is not listed", name, i+1, strings.TrimSpace(line))
				}
				if from == Nginx || strings.Contains(trimmed, "#") {
					continue
				}
				rest[i] = trimmed + " zz-word\n"
				if got := outcome(from, name, strings.Join(rest, "")); got == base && !silentRest(what) {
					t.Errorf("%s:%d: a word behind %s is not listed", name, i+1, strings.TrimSpace(line))
				}
			}
		}
	}
}

// silentRest reports whether a line changes nothing, whatever follows its word.
func silentRest(what string) bool {
	words := strings.Fields(what)
	return nothing(HAProxy, words[1], words[2]) ||
		words[1] == "tcp-request" && words[2] == "content" || // accept, whose condition only says when to stop waiting
		words[1] == "option" && words[2] == "httpchk" // a path, which http-check send replaces
}

// Whatever is converted does not make check warn of it.
func TestConvertedWithoutWarnings(t *testing.T) {
	for _, path := range originals(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f := File{filepath.Base(path), text}
		r, err := Convert(Guess(f), []File{f}, folder("testdata"))
		if err != nil {
			t.Fatal(err)
		}
		noWarnings(t, r)
	}
}

// warned are warnings that a converted file may cause: the original has the same flaw.
var warned = []string{"every member is drained", "checks have no client to connect from", "shorter than connect", "are refused if the member chooses what the group again offers"}

func noWarnings(t testing.TB, r *Result) {
	t.Helper()
	// A text in a registry is one that is in no file.
	source := config.Source{Paths: []string{"etcd://127.0.0.1:1/converted"}, Remote: func(string) (spec.Layer, error) { return spec.Layer{Text: r.YAML}, nil }}
	_, warnings, err := source.Load()
	if err != nil {
		t.Errorf("%v\n%s", err, r.YAML)
	}
	for _, w := range warnings {
		if !slices.ContainsFunc(warned, func(s string) bool { return strings.Contains(w.Error(), s) }) {
			t.Errorf("%v\n%s", w, r.YAML)
		}
	}
}
