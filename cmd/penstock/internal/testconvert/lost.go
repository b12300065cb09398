package testconvert

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
)

// A Language is what the tests of completeness know of a product's.
type Language struct {
	Reader *convert.Reader
	// Begins reports whether a section or block begins in a line of these words.
	Begins func(words []string) bool
	// Variants returns line i without all of it, and without each of its options or directives. The values name
	// what is missing: where it stands, and its word.
	Variants func(lines []string, i int) map[string]string
	// Unknown returns line i with something that nobody knows, which has zz in it, given one of its variants and what is missing there.
	Unknown func(line, without, what string) []Unknown
}

// An Unknown is a line with a word that nobody knows.
type Unknown struct {
	Line string
	What string
	// Listed reports whether the outcome says so; base is that of the original.
	Listed func(base, outcome string) bool
}

// told reports whether there is a note at a line, or its section is left out.
func (l *Language) told(outcome string, name string, lines []string, i int) bool {
	if strings.Contains(outcome, fmt.Sprintf("%s:%d: ", name, i+1)) {
		return true
	}
	if strings.Contains(lines[i], "-check ") && strings.Contains(outcome, ": the check of ") {
		return true // the check is left out as a whole
	}
	for ; i >= 0; i-- {
		if words := strings.Fields(lines[i]); len(words) > 0 && l.Begins(words) {
			_, note, ok := strings.Cut(outcome, fmt.Sprintf("%s:%d: ", name, i+1))
			note, _, _ = strings.Cut(note, name+":")
			return ok && (strings.Contains(note, "left out") || strings.Contains(note, "it is disabled"))
		}
	}
	return false
}

// each calls f with each variant of each line of each original.
func (l *Language) each(t *testing.T, f func(name, base string, lines []string, i int, without, what string)) {
	for _, o := range Originals(t, l.Reader) {
		base := Outcome(l.Reader, o.Name, string(o.Text))
		lines := strings.SplitAfter(string(o.Text), "\n")
		for i := range lines {
			for without, what := range l.Variants(lines, i) {
				f(o.Name, base, lines, i, without, what)
			}
		}
	}
}

// with returns the outcome with another line i.
func (l *Language) with(name string, lines []string, i int, line string) string {
	rest := slices.Clone(lines)
	rest[i] = line
	return Outcome(l.Reader, name, strings.Join(rest, ""))
}

// NothingIsLost tests that nothing of an original is left out without a word: without a line, or an option of one, the
// result differs somewhere, or its word is on the list of those that change nothing here. At least most of them are shown.
func (l *Language) NothingIsLost(t *testing.T, least int) {
	shown, silent := map[string]bool{}, map[string]string{}
	l.each(t, func(name, base string, lines []string, i int, without, what string) {
		if l.told(base, name, lines, i) || l.with(name, lines, i, without) != base {
			shown[what] = true
		} else {
			silent[what] = fmt.Sprintf("%s:%d: %s", name, i+1, strings.TrimSpace(lines[i]))
		}
	})
	if len(shown) < least {
		t.Errorf("only %d directives and options are converted or listed", len(shown))
	}
	nothing := convert.WordsOf(l.Reader.Silent)
	for what, where := range silent {
		if place, word, _ := strings.Cut(what, " "); !shown[what] && !nothing(place, word) {
			t.Errorf("%s changes nothing: %s", what, where)
		}
	}
}

// UnknownIsListed tests that what nobody knows is listed, wherever it stands.
func (l *Language) UnknownIsListed(t *testing.T) {
	l.each(t, func(name, base string, lines []string, i int, without, what string) {
		if l.told(base, name, lines, i) {
			return
		}
		for _, u := range l.Unknown(lines[i], without, what) {
			if !u.Listed(base, l.with(name, lines, i, u.Line)) {
				t.Errorf("%s:%d: %s %s is not listed", name, i+1, u.What, strings.TrimSpace(lines[i]))
			}
		}
	})
}
