package sandboxed

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/sandboxneeds"
	"github.com/penstock/penstock/sandbox"
)

// The keeper knows where the folders really are that a worker may write, also if the configuration names them by way of a link, as
// /var/run: it compares them with where a binary or a link really is.
func TestPolicyOfResolvesFolders(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	run, alias := filepath.Join(dir, "run"), filepath.Join(dir, "alias")
	if err := os.Mkdir(run, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(run, alias); err != nil {
		t.Fatal(err)
	}
	h := &sandboxneeds.Held{}
	h.Policy = sandbox.Policy{Write: []string{alias, filepath.Join(dir, "gone")}}
	p := policyOf("on", h, nil, nil, nil, nil)
	if want := []string{alias, filepath.Join(dir, "gone"), run}; !slices.Equal(p.Write, want) {
		t.Errorf("%q, want %q", p.Write, want)
	}
	if len(h.Policy.Write) != 2 {
		t.Errorf("the sandbox of this process was changed: %q", h.Policy.Write)
	}
}
