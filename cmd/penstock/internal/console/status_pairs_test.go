package console

import (
	"slices"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// Lines without a name belong to the one above.
func TestStatusMembersDiffer(t *testing.T) {
	s := &api.Status{Sandbox: &api.Sandbox{}}
	s.Groups = []api.GroupSummary{{Name: "g", Changed: 6, LookupError: "no answer"}}
	var names []string
	for _, p := range statusPairs(s) {
		names = append(names, p[0])
	}
	if want := []string{"penstock", "configuration", "", "", "sandbox"}; !slices.Equal(names[:5], want) {
		t.Errorf("%q", names)
	}
}
