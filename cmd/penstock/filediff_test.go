package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// What a reload would change is what it then changes, with layers, included folders and files that
// appear and disappear; and asking changes nothing.
func TestFileDiffComposed(t *testing.T) {
	t.Parallel()
	one, two := speak(t, "one"), speak(t, "two")
	dir := shortDir(t)
	write := func(name, text string, values ...any) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(places(dir, text, values)), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("penstock.yaml", "include: conf.d\nadmin: {listen: 'unix://{dir}/admin.sock'}\nreload: {watch: false}\n")
	write("conf.d/10-web.yaml", "listeners: {web: {listen: 'tcp://127.0.0.1:0', to: api}}\ngroups: {api: {members: ['{0}']}}\n", one.url())
	write("conf.d/20-old.yaml", "listeners: {old: {listen: 'tcp://127.0.0.1:0', to: '{0}'}}\n", one.url())
	write("layers/10-drain.yaml", "drain: 10s\n")
	main, layers := filepath.Join(dir, "penstock.yaml"), filepath.Join(dir, "layers")
	c := &configured{dir: dir, file: main}
	c.begin(t, exec.Command(binary, "run", "-c", main, "-c", layers))
	c.mustReach("web", "one")
	ask := func() api.Diff {
		t.Helper()
		diff, err := c.admin.FileDiff(c.ctx())
		if err != nil {
			t.Fatal(err)
		}
		return diff
	}
	running := func() string {
		t.Helper()
		cfg, err := c.admin.Config(c.ctx())
		if err != nil {
			t.Fatal(err)
		}
		return cfg.Hash
	}
	before := running()
	if diff := ask(); len(diff.Changes) > 0 || diff.Hash != before {
		t.Fatalf("unchanged files: %+v, the hash is %s", diff, before)
	}

	write("conf.d/10-web.yaml", "listeners: {web: {listen: 'tcp://127.0.0.1:0', to: api}}\ngroups: {api: {members: ['{0}']}}\n", two.url())
	write("conf.d/30-new.yaml", "listeners: {new: {listen: 'tcp://127.0.0.1:0', to: api}}\n")
	write("layers/10-drain.yaml", "drain: 20s\n")
	write("layers/20-limits.yaml", "limits: {flows: 100}\n")
	if err := os.Remove(filepath.Join(dir, "conf.d/20-old.yaml")); err != nil {
		t.Fatal(err)
	}
	diff := ask()
	var said []string
	for _, change := range diff.Changes {
		said = append(said, change.Kind+" "+change.Name+" "+change.What)
	}
	for _, want := range []string{"setting drain changed", "setting limits.flows changed", "listener old removed", "listener new added", "member api/" + one.url() + " removed", "member api/" + two.url() + " added"} {
		if !slices.Contains(said, want) {
			t.Errorf("no %q in %q", want, said)
		}
	}
	c.mustReach("web", "one")
	if running() != before {
		t.Error("asking for the difference changed the configuration")
	}

	// An error names the file that has it.
	write("conf.d/40-bad.yaml", "listeners: {web: 1}\n")
	var problem *api.Problem
	if _, err := c.admin.FileDiff(c.ctx()); !errors.As(err, &problem) || len(problem.Errors) == 0 || !strings.HasSuffix(problem.Errors[0].Source, "40-bad.yaml") {
		t.Errorf("%+v", err)
	}
	if err := os.Remove(filepath.Join(dir, "conf.d/40-bad.yaml")); err != nil {
		t.Fatal(err)
	}

	done, err := c.admin.Reload(c.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(done.Changes, diff.Changes) || done.Hash != diff.Hash || running() != diff.Hash {
		t.Errorf("the reload changed\n%+v, said was\n%+v", done, diff)
	}
	c.mustReach("web", "two")
	c.mustReach("new", "two")
	if diff := ask(); len(diff.Changes) > 0 {
		t.Errorf("after the reload: %+v", diff)
	}
}
