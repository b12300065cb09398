package haproxy

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/testconvert"
)

// Real configurations: what comes out of them is in testdata, and check accepts it.
func TestGolden(t *testing.T) { testconvert.Golden(t, Reader) }

// FuzzHAProxy: no text makes the reader panic, and whatever it converts is a configuration without errors.
func FuzzHAProxy(f *testing.F) { testconvert.Fuzz(f, Reader) }

// FuzzShuffled: the same of lines of all originals in random order. A directive that nobody knows is added to the first section.
func FuzzShuffled(f *testing.F) {
	testconvert.FuzzShuffled(f, Reader, testconvert.Mix{
		Begin:   "listen b1\nserver s 192.0.2.1:1\nbind 127.0.0.1:1\n",
		Skip:    func(line string) bool { return strings.Contains(line, "mode http") || strings.HasPrefix(line, ".") },
		Unknown: " zz-unknown\n",
		Insert: func(r *rand.Rand, text, line string) string {
			lines := strings.SplitAfter(text, "\n")
			end := 1 // of the first section
			for end < len(lines)-1 && !sectionWords[strings.TrimSpace(strings.SplitN(strings.TrimSpace(lines[end])+" ", " ", 2)[0])] {
				end++
			}
			return strings.Join(slices.Insert(lines, 1+r.IntN(end), line), "")
		},
	})
}
