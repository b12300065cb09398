package account

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/relay"
)

// docs/causes.md has a section for each cause and each reason, in their order,
// and no other.
func TestCausesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/causes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n## Causes\n")
	causes, reasons, ok := strings.Cut(rest, "\n## Reasons\n")
	if !ok {
		t.Fatal("docs/causes.md has no sections Causes and Reasons")
	}
	var want []string
	for c := range relay.Cause(numCauses) {
		want = append(want, c.String())
	}
	if got := headings(causes); !slices.Equal(got, want) {
		t.Errorf("causes:\n%v\nwant:\n%v", got, want)
	}
	want = nil
	for r := spec.ReasonNone + 1; r < spec.NumReasons; r++ {
		want = append(want, r.String())
	}
	if got := headings(reasons); !slices.Equal(got, want) {
		t.Errorf("reasons:\n%v\nwant:\n%v", got, want)
	}
}

// The engine has no causes, paths and reasons that are not counted here.
func TestAllAreCounted(t *testing.T) {
	for name, next := range map[string]fmt.Stringer{"numCauses": relay.Cause(numCauses), "numPaths": datapath.Path(numPaths), "numWhys": datapath.Why(numWhys)} {
		if next.String() != "unknown" {
			t.Errorf("%v is not counted: raise %s", next, name)
		}
	}
}

func headings(section string) (names []string) {
	for _, m := range regexp.MustCompile(`(?m)^### (.+)$`).FindAllStringSubmatch(section, -1) {
		names = append(names, m[1])
	}
	return names
}
