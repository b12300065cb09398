package nginx

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/testconvert"
)

// Real configurations: what comes out of them is in testdata, and check accepts it.
func TestGolden(t *testing.T) { testconvert.Golden(t, Reader) }

// FuzzNginx: no text makes the reader panic, and whatever it converts is a configuration without errors.
func FuzzNginx(f *testing.F) { testconvert.Fuzz(f, Reader) }

// FuzzShuffled: the same of lines of all originals in random order. A directive that nobody knows is added to the block stream.
func FuzzShuffled(f *testing.F) {
	const end = "server { listen 1; proxy_pass a; }\nupstream a { server b:1; }\n}\n"
	testconvert.FuzzShuffled(f, Reader, testconvert.Mix{
		Begin: "stream {\n", End: end,
		Skip:    func(line string) bool { return strings.Count(line, "{") != strings.Count(line, "}") },
		Unknown: "zz_unknown 1;\n",
		Insert: func(r *rand.Rand, text, line string) string {
			lines := strings.SplitAfter(text, "\n")
			own := len(lines) - 1 - strings.Count(end, "\n") // lines in front of the end
			return strings.Join(slices.Insert(lines, 1+r.IntN(max(own, 1)), line), "")
		},
	})
}
