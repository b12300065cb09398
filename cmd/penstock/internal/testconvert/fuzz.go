package testconvert

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/convert"
)

// Fuzz converts any text: none makes the reader panic, and whatever it converts is a configuration without errors.
func Fuzz(f *testing.F, r *convert.Reader) {
	for _, o := range Originals(f, r) {
		f.Add(o.Text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		result, err := r.Convert([]convert.File{{Name: "fuzz", Text: text}}, convert.Source{})
		if err != nil {
			var e *convert.Error
			if !errors.As(err, &e) {
				t.Errorf("%T %v", err, err)
			}
			return
		}
		if _, err := config.Parse("fuzz.yaml", result.YAML); err != nil {
			t.Errorf("%v\n%s", err, result.YAML)
		}
		for _, n := range result.Notes {
			if n.Line < 1 || strings.ContainsAny(n.Text, "\n\r") {
				t.Errorf("note %q", n)
			}
		}
	})
}

// A Mix puts lines of all originals together in random order: other combinations than people write.
type Mix struct {
	Begin, End string                 // of every text
	Skip       func(line string) bool // lines that cannot stand alone
	Unknown    string                 // a line with a word that nobody knows, which has zz in it
	// Insert adds the unknown line where it has to be listed.
	Insert func(r *rand.Rand, text, line string) string
}

// FuzzShuffled converts such texts. What comes out is a configuration without errors, and a word that nobody knows is
// listed, wherever it stands.
func FuzzShuffled(f *testing.F, r *convert.Reader, m Mix) {
	for seed := range uint64(15) {
		f.Add(seed)
	}
	var lines []string
	for _, o := range Originals(f, r) {
		for line := range strings.Lines(string(o.Text)) {
			if !m.Skip(line) {
				lines = append(lines, line)
			}
		}
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		converted := 0
		for range 50 {
			if m.shuffled(t, r, random, lines) {
				converted++
			}
		}
		if converted < 3 {
			t.Errorf("%d converted", converted)
		}
	})
}

// shuffled converts random lines, and reports whether it could.
func (m *Mix) shuffled(t *testing.T, r *convert.Reader, random *rand.Rand, lines []string) bool {
	var b strings.Builder
	b.WriteString(m.Begin)
	for range 10 + random.IntN(60) {
		b.WriteString(lines[random.IntN(len(lines))])
	}
	b.WriteString(m.End)
	text := b.String()
	result, err := r.Convert([]convert.File{{Name: "shuffled", Text: []byte(text)}}, Folder("testdata"))
	if err != nil {
		return false
	}
	if NoWarnings(t, result); t.Failed() {
		t.Fatalf("of\n%s", text)
	}
	with := m.Insert(random, text, m.Unknown)
	result, err = r.Convert([]convert.File{{Name: "shuffled", Text: []byte(with)}}, Folder("testdata"))
	if err == nil && !slices.ContainsFunc(result.Notes, func(n convert.Note) bool { return strings.Contains(n.Text, "zz") }) {
		t.Fatalf("zz is not listed: %v\nof\n%s", result.Notes, with)
	}
	return true
}
