package nginx

import (
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/testconvert"
)

var language = testconvert.Language{
	Reader:   Reader,
	Begins:   func(words []string) bool { return words[len(words)-1] == "{" },
	Variants: variants,
	Unknown: func(line, without, _ string) []testconvert.Unknown {
		at := 0 // of the directive that is missing
		for at < len(without) && at < len(line) && without[at] == line[at] {
			at++
		}
		at = strings.LastIndexAny(line[:at], ";{}") + 1
		return []testconvert.Unknown{{Line: line[:at] + " zz_unknown 1; " + line[at:], What: "a directive beside", Listed: func(_, outcome string) bool { return strings.Contains(outcome, "zz") }}}
	},
}

func TestNothingIsLost(t *testing.T) { language.NothingIsLost(t, 50) }

func TestUnknownIsListed(t *testing.T) { language.UnknownIsListed(t) }

// variants are a line without each of its directives.
func variants(lines []string, i int) map[string]string {
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
					list[line[:begin]+line[j+1:]] = where + " " + strings.Fields(directive)[0]
				}
				begin = j + 1
			}
		}
	}
	return list
}
