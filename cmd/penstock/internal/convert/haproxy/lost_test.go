package haproxy

import (
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
	"github.com/penstock/penstock/cmd/penstock/internal/testconvert"
)

var language = testconvert.Language{
	Reader:   Reader,
	Begins:   func(words []string) bool { return sectionWords[words[0]] },
	Variants: variants,
	Unknown: func(line, without, what string) (list []testconvert.Unknown) {
		trimmed := strings.TrimRight(line, "\n")
		if without != "\n" {
			return nil
		}
		list = append(list, testconvert.Unknown{Line: trimmed + "\n zz-unknown\n", What: "a directive beside", Listed: func(_, outcome string) bool { return strings.Contains(outcome, "zz") }})
		if !strings.Contains(trimmed, "#") {
			list = append(list, testconvert.Unknown{Line: trimmed + " zz-word\n", What: "a word behind", Listed: func(base, outcome string) bool { return outcome != base || silentRest(what) }})
		}
		return list
	},
}

func TestNothingIsLost(t *testing.T) { language.NothingIsLost(t, 140) }

func TestUnknownIsListed(t *testing.T) { language.UnknownIsListed(t) }

// variants are a line without all of it, and without each of its options, with a name for what is missing.
func variants(lines []string, i int) map[string]string {
	x := &lexer{Plan: convert.NewPlan(convert.Source{})}
	words, _ := x.words(convert.Place{}, lines[i])
	section := ""
	for j := i; j >= 0 && section == ""; j-- {
		if w, _ := x.words(convert.Place{}, lines[j]); len(w) > 0 && sectionWords[w[0]] {
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
	list["\n"] = where
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
		list[strings.Join(rest, " ")+"\n"] = kind + " " + words[j]
		j += n - 1
	}
	return list
}

// silentRest reports whether a line changes nothing, whatever follows its word.
func silentRest(what string) bool {
	words := strings.Fields(what)
	return nothing(words[0], words[1]) ||
		words[0] == "tcp-request" && words[1] == "content" || // accept, whose condition only says when to stop waiting
		words[0] == "option" && words[1] == "httpchk" // a path, which http-check send replaces
}
